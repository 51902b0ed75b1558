//! Which claims use devices of which pool, and the Pods for which they are reserved. Fed by the informer of ResourceClaims.

use std::collections::BTreeSet;

use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim};
use parking_lot::Mutex;
use sched_framework::{PoolId, selects_device};

use super::plan;
use crate::meta;
use crate::resourceclaim::reserved_for;

/// The allocated claims by the pools of their devices.
pub struct DeviceUsers {
    claims: Informer<ResourceClaim>,
    pools: Mutex<Relation>,
}

type Relation = crate::relation::Relation<ObjectKey, PoolId>;

impl DeviceUsers {
    /// No claims yet.
    pub fn new(claims: Informer<ResourceClaim>) -> Self {
        Self { claims, pools: Mutex::default() }
    }

    /// Follows a change of a claim. Returns the Pods to which it may matter.
    pub fn observe(&self, change: &Change<ResourceClaim>) -> BTreeSet<ObjectKey> {
        let Some(latest) = change.latest() else { return BTreeSet::new() };
        let results = change.new.as_deref().map(plan::results).unwrap_or_default();
        let pools = results.iter().map(|result| (result.driver.clone(), result.pool.clone())).collect();
        self.pools.lock().set(&ObjectKey::from(&latest.metadata), pools);
        let state = |claim: &ResourceClaim| (meta::uid(&claim.metadata).to_owned(), claim.status.clone());
        if change.old.as_deref().map(state) == change.new.as_deref().map(state) {
            return BTreeSet::new();
        }
        change.both().flat_map(|claim| consumers(claim)).collect()
    }

    /// The Pods with devices of the pool.
    pub fn of_pool(&self, pool: &PoolId) -> BTreeSet<ObjectKey> {
        let claims = self.pools.lock().keys_of(pool);
        claims.iter().filter_map(|claim| self.claims.get(claim)).flat_map(|claim| consumers(&claim).collect::<Vec<_>>()).collect()
    }

    /// The Pods with devices that the rule selects, and the number of these devices. A device counts once for each claim that has it.
    pub fn of_rule(&self, rule: &DeviceTaintRule) -> (BTreeSet<ObjectKey>, usize) {
        let Some(selector) = &rule.spec.device_selector else { return Default::default() };
        let claims = self.pools.lock().keys_where(|(driver, pool)| selects_device(selector, driver, pool, None));
        let (mut pods, mut devices) = (BTreeSet::new(), 0);
        for claim in claims.iter().filter_map(|claim| self.claims.get(claim)) {
            let selected = plan::results(&claim).iter().filter(|device| plan::selects(rule, device)).count();
            devices += selected;
            pods.extend(consumers(&claim).filter(|_| selected > 0));
        }
        (pods, devices)
    }
}

/// The Pods for which the claim is reserved.
fn consumers(claim: &ResourceClaim) -> impl Iterator<Item = ObjectKey> {
    let is_pod = |resource: &str, group: Option<&str>| resource == "pods" && group.unwrap_or_default().is_empty();
    let pods = reserved_for(claim).iter().filter(move |consumer| is_pod(&consumer.resource, consumer.api_group.as_deref()));
    pods.map(move |pod| ObjectKey::new(meta::namespace(&claim.metadata), &pod.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn claim(devices: &[(&str, &str)], pods: &[&str]) -> ResourceClaim {
        let results: Vec<Value> =
            devices.iter().map(|(pool, device)| json!({"request": "r", "driver": "d", "pool": pool, "device": device})).collect();
        let consumers: Vec<Value> = pods.iter().map(|pod| json!({"resource": "pods", "name": pod, "uid": pod})).collect();
        let status = json!({"allocation": {"devices": {"results": results}}, "reservedFor": consumers});
        let claim = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {}, "status": status});
        serde_json::from_value(claim).expect("a claim")
    }

    #[test]
    fn a_claim_that_changes_concerns_its_pods_before_and_after() {
        let users = DeviceUsers::new(Informer::detached());
        let observe = |old: Option<ResourceClaim>, new: Option<ResourceClaim>| {
            new.iter().for_each(|claim| users.claims.put(claim.clone()));
            let pods = users.observe(&Change { old: old.map(Arc::new), new: new.map(Arc::new) });
            pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>()
        };
        let rule = |selector: Value| {
            let spec = json!({"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}});
            let rule = json!({"metadata": {"name": "r"}, "spec": spec});
            let (pods, devices) = users.of_rule(&serde_json::from_value(rule).expect("a rule"));
            (pods.into_iter().map(|pod| pod.name).collect::<Vec<_>>().join(" "), devices)
        };
        let (first, second) = (|| claim(&[("p", "a"), ("q", "b")], &["one"]), || claim(&[("p", "a"), ("q", "b")], &["one", "two"]));
        assert_eq!(observe(None, Some(first())), ["one"]);
        assert_eq!(observe(Some(first()), Some(first())), [""; 0], "nothing changed");
        assert_eq!(observe(Some(first()), Some(second())), ["one", "two"]);
        assert_eq!(users.of_pool(&("d".to_owned(), "q".to_owned())).len(), 2);
        assert_eq!(users.of_pool(&("e".to_owned(), "q".to_owned())).len(), 0);
        assert_eq!(rule(json!({"driver": "d"})), ("one two".to_owned(), 2));
        assert_eq!(rule(json!({"device": "b"})), ("one two".to_owned(), 1));
        assert_eq!(rule(json!({"device": "c"})), (String::new(), 0));
        assert_eq!(rule(json!({"pool": "elsewhere"})), (String::new(), 0));
        assert_eq!(rule(Value::Null), (String::new(), 0));
        assert_eq!(observe(Some(second()), None), ["one", "two"]);
        assert_eq!(rule(json!({})), (String::new(), 0));
    }
}
