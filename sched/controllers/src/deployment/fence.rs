//! The fences of a rollout: how many Pods above and below the wanted number are allowed.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::percent::{self, Round};

/// The replicas of a Deployment's spec.
pub fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// The replicas of a ReplicaSet's spec.
pub fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

/// Available replicas of a ReplicaSet.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

/// Whether all old Pods are deleted before new ones are created.
pub fn recreates(deployment: &Deployment) -> bool {
    deployment.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// Pods allowed above the wanted number.
pub fn max_surge(deployment: &Deployment) -> i32 {
    if recreates(deployment) { 0 } else { resolve(deployment).0 }
}

/// Pods allowed to be missing from the wanted number.
pub fn max_unavailable(deployment: &Deployment) -> i32 {
    let wanted = wanted(deployment);
    if recreates(deployment) || wanted == 0 { 0 } else { resolve(deployment).1.min(wanted) }
}

/// Surge is rounded up and unavailable down. If both are zero the rollout would never move, so one Pod may be unavailable.
fn resolve(deployment: &Deployment) -> (i32, i32) {
    let rolling = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.clone());
    let RollingUpdateDeployment { max_surge, max_unavailable } = rolling.unwrap_or_default();
    let wanted = wanted(deployment);
    let surge = scaled(max_surge.as_ref(), wanted, Round::Up);
    let unavailable = scaled(max_unavailable.as_ref(), wanted, Round::Down);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// 0 when absent; the API server's default for a stored Deployment is 25 %.
fn scaled(value: Option<&IntOrString>, total: i32, round: Round) -> i32 {
    value.map_or(0, |value| percent::scaled(value, total, round))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(replicas: i32, surge: Value, unavailable: Value) -> Deployment {
        serde_json::from_value(json!({"spec": {
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        }}))
        .expect("a Deployment")
    }

    #[test]
    fn recreate_has_no_fences() {
        let mut deployment = deployment(10, json!(1), json!(5));
        if let Some(strategy) = &mut deployment.spec.strategy {
            strategy.type_ = Some("Recreate".to_owned());
        }
        assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), (0, 0));
    }

    /// Upstream's `TestResolveFenceposts` and `TestMaxUnavailable`.
    #[test]
    fn fences_round_surge_up_and_unavailable_down() {
        let cases = [
            (10, json!("25%"), json!("25%"), (3, 2)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (3, json!(1), json!(0), (1, 0)),
            (3, json!(0), json!(0), (0, 1)),
            (4, json!("0%"), json!("10%"), (0, 1)),
            (2, json!(0), json!(5), (0, 2)),
            (0, json!("25%"), json!("25%"), (0, 0)),
            (10, json!("39%"), json!("39%"), (4, 3)),
            (10, json!(null), json!("39%"), (0, 3)),
            (10, json!("39%"), json!(null), (4, 0)),
            (10, json!(null), json!(null), (0, 1)),
            (10, json!(1), json!(10), (1, 10)),
            (5, json!(1), json!(10), (1, 5)),
            (0, json!(1), json!(10), (1, 0)),
            (10, json!(1), json!("50%"), (1, 5)),
            (10, json!(1), json!("100%"), (1, 10)),
        ];
        for (replicas, surge, unavailable, expected) in cases {
            let deployment = deployment(replicas, surge.clone(), unavailable.clone());
            assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), expected, "{replicas} {surge} {unavailable}");
        }
    }
}
