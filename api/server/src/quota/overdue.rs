//! Pods whose deletion should have ended: a node that is lost cannot report their end. As upstream, a quota counts such a Pod
//! only as an object, so that a replacement may be created.

use std::sync::Arc;

use api_model::kind::GroupResource;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Whether the object is a Pod whose grace period is over.
pub(super) fn is_overdue(resource: &GroupResource, object: &Value, now: Timestamp) -> bool {
    if !resource.group.is_empty() || resource.resource != "pods" {
        return false;
    }
    let at = |path: &str| object.pointer(path);
    let deleted = at("/metadata/deletionTimestamp").and_then(|time| time.as_str()?.parse::<Timestamp>().ok());
    let grace = at("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let (Some(deleted), Some(grace)) = (deleted, grace) else { return false };
    deleted.checked_add(SignedDuration::from_secs(grace)).is_ok_and(|end| end < now)
}

/// The Pod as it would be had it ended.
pub(super) fn ended(pod: &Value) -> Arc<Value> {
    let mut pod = pod.clone();
    api_wire::json::set(&mut pod, &["status", "phase"], json!("Failed"));
    Arc::new(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_overdue_after_its_grace_period() {
        let now = "2024-01-01T00:01:00Z".parse().expect("a time");
        let pods = GroupResource::new("", "pods");
        let object =
            |deleted: Value, grace: Value| json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}});
        for (resource, object, expected) in [
            (&pods, object(json!("2024-01-01T00:00:29Z"), json!(30)), true),
            (&pods, object(json!("2024-01-01T00:00:30Z"), json!(30)), false),
            (&pods, object(json!("2024-01-01T00:00:29Z"), json!(null)), false),
            (&pods, json!({"metadata": {}}), false),
            (&GroupResource::new("", "configmaps"), object(json!("2024-01-01T00:00:29Z"), json!(30)), false),
            (&GroupResource::new("metrics.k8s.io", "pods"), object(json!("2024-01-01T00:00:29Z"), json!(30)), false),
        ] {
            assert_eq!(is_overdue(resource, &object, now), expected, "{resource} {object}");
        }
    }
}
