//! Removes the condition `DisruptionTarget` from Pods that were to be deleted and were not.
//!
//! A client that disrupts a Pod sets the condition first and deletes the Pod then. If the deletion never happens, the condition
//! would announce for ever that the Pod is about to be deleted.

use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, pods, writes};

/// Without a deletion the condition is stale after this time, upstream's `stalePodDisruptionTimeout`.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// The kubelet's own reason: it ends the Pod itself, without a deletion.
const BY_KUBELET: &str = "TerminationByKubelet";

/// The controller; its keys are Pods'.
struct StaleDisruption {
    client: kube::Client,
    pods: Informer<Pod>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("stale_pod_disruption"));
    let pods = context.feed(&queue, |change: &Change<Pod>| {
        let marked = change.new.iter().filter(|pod| marked_since(pod).is_some());
        marked.map(|pod| ObjectKey::from(&pod.metadata)).collect()
    });
    context.run(Arc::new(StaleDisruption { client: context.client(), pods }), queue);
}

/// The time since which the Pod has the condition without being deleted.
fn marked_since(pod: &Pod) -> Option<Timestamp> {
    if meta::is_deleting(&pod.metadata) || pods::is_terminal(pod) {
        return None;
    }
    let target = pods::condition(pod, DISRUPTION_TARGET)?;
    let is_open = target.status == "True" && target.reason.as_deref() != Some(BY_KUBELET);
    is_open.then(|| meta::instant(target.last_transition_time.as_ref()).unwrap_or(Timestamp::UNIX_EPOCH))
}

impl Controller for StaleDisruption {
    const NAME: &'static str = "disruption-controller";
    const WORKERS: usize = 1;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(pod) = self.pods.get(key) else { return Ok(Next::OnChange) };
        let Some(since) = marked_since(&pod) else { return Ok(Next::OnChange) };
        let now = api_clock::now();
        let left = Duration::try_from(TIMEOUT.saturating_sub(now.duration_since(since))).unwrap_or_default();
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        let condition = PodCondition {
            type_: DISRUPTION_TARGET.to_owned(),
            status: "False".to_owned(),
            last_transition_time: Some(meta::whole_seconds(now)),
            ..PodCondition::default()
        };
        let status = json!({"conditions": pods::with_condition(&pod, condition)});
        gone_is_fine(writes::patch_status(&self.client, pod.as_ref(), status).await)?;
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn only_a_pod_that_nobody_deletes_is_marked_in_vain() {
        let at = "2026-01-01T00:00:00Z";
        let pod = |metadata: Value, phase: &str, status: &str, reason: &str| -> Pod {
            let target = json!({"type": DISRUPTION_TARGET, "status": status, "reason": reason, "lastTransitionTime": at});
            serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase, "conditions": [target]}})).expect("a Pod")
        };
        let since = Some(at.parse().expect("a time"));
        assert_eq!(marked_since(&pod(json!({}), "Running", "True", "EvictionByEvictionAPI")), since);
        assert_eq!(marked_since(&pod(json!({}), "Running", "False", "")), None);
        assert_eq!(marked_since(&pod(json!({}), "Running", "True", BY_KUBELET)), None);
        assert_eq!(marked_since(&pod(json!({}), "Failed", "True", "EvictionByEvictionAPI")), None);
        assert_eq!(marked_since(&pod(json!({"deletionTimestamp": at}), "Running", "True", "EvictionByEvictionAPI")), None);
    }
}
