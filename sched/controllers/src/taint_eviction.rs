//! Taint eviction: Pods leave a Node whose `NoExecute` taints they do not tolerate, or tolerate
//! only for a time.
//!
//! Watches Nodes and Pods; deletes Pods after it has set the condition `DisruptionTarget`. The time counts from the addition of
//! the taint, so that a restart of this process does not extend it.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_NODE, Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use parking_lot::Mutex;
use serde_json::json;

use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, pods, writes};
use plan::Verdict;

/// The controller; its keys are Pods'.
pub struct TaintEviction {
    client: kube::Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// Pods that have a time to leave, by the time since when: when the taint is removed, an event reports that the eviction is
    /// cancelled.
    leaving: Mutex<HashMap<ObjectKey, Timestamp>>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("noexec_taint_pod"));
    let nodes = context.informer::<Node>();
    let node_cache = nodes.clone();
    let pods = context.feed(&queue, move |change: &Change<Pod>| {
        let Some(pod) = change.latest() else { return Vec::new() };
        let old = change.old.as_ref().and_then(|pod| pods::node_name(pod));
        let Some(node) = pods::node_name(pod) else { return Vec::new() };
        let tainted = node_cache.get(&ObjectKey::new("", node)).is_some_and(|node| !plan::no_execute(&node).is_empty());
        let moved = change.new.is_none() || old != Some(node) || tolerations_differ(change);
        if tainted && moved { vec![ObjectKey::from(&pod.metadata)] } else { Vec::new() }
    });
    let pod_cache = pods.clone();
    context.feed(&queue, move |change: &Change<Node>| {
        let taints = |node: Option<&Arc<Node>>| node.map(|node| plan::no_execute(node)).unwrap_or_default();
        let (Some(node), true) = (&change.new, taints(change.old.as_ref()) != taints(change.new.as_ref())) else { return Vec::new() };
        pod_cache.indexed(BY_NODE, meta::name(&node.metadata)).iter().map(|pod| ObjectKey::from(&pod.metadata)).collect()
    });
    let recorder = context.recorder(TaintEviction::NAME);
    context.run(Arc::new(TaintEviction { client: context.client(), recorder, nodes, pods, leaving: Mutex::default() }), queue);
}

fn tolerations_differ(change: &Change<Pod>) -> bool {
    let tolerations = |pod: Option<&Arc<Pod>>| pod.and_then(|pod| pod.spec.as_ref()?.tolerations.clone());
    tolerations(change.old.as_ref()) != tolerations(change.new.as_ref())
}

impl Controller for TaintEviction {
    const NAME: &'static str = "taint-eviction-controller";
    const WORKERS: usize = 8;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let pod = self.pods.get(key).filter(|pod| !meta::is_deleting(&pod.metadata));
        let Some(pod) = pod else {
            self.leaving.lock().remove(key);
            return Ok(Next::OnChange);
        };
        let node = pods::node_name(&pod).and_then(|node| self.nodes.get(&ObjectKey::new("", node)));
        let taints = node.map(|node| plan::no_execute(&node)).unwrap_or_default();
        let now = api_clock::now();
        let first_observed = self.leaving.lock().get(key).copied().unwrap_or(now);
        match plan::verdict(&taints, &plan::tolerations(&pod), first_observed, now) {
            Verdict::Stays => {
                if self.leaving.lock().remove(key).is_some() {
                    self.recorder.normal(&reference(pod.as_ref()), "TaintManagerEviction", format!("Cancelling deletion of Pod {key}"));
                }
                Ok(Next::OnChange)
            }
            Verdict::LeavesAt(at) if at > now => {
                self.leaving.lock().insert(key.clone(), first_observed);
                Ok(Next::After(Duration::try_from(at.duration_since(now)).unwrap_or_default()))
            }
            Verdict::LeavesAt(at) => {
                self.evict(key, &pod, now).await?;
                metrics::TAINT_DELETIONS.count([]);
                metrics::TAINT_DELETION_DURATION.observe([], metrics::seconds(api_clock::now().duration_since(at)));
                self.leaving.lock().remove(key);
                Ok(Next::OnChange)
            }
        }
    }
}

impl TaintEviction {
    async fn evict(&self, key: &ObjectKey, pod: &Pod, now: Timestamp) -> Result<(), Failure> {
        let conditions = plan::disrupted(pod, now);
        gone_is_fine(writes::patch_status(&self.client, pod, json!({"conditions": conditions})).await)?;
        self.recorder.normal(&reference(pod), "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        writes::delete(&self.client, pod, DeleteParams::default()).await
    }
}
