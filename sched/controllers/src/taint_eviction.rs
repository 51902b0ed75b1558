//! Taint eviction: Pods leave a Node whose `NoExecute` taints they do not tolerate, or tolerate
//! only for a time.
//!
//! Watches Nodes and Pods; deletes Pods after it has set the condition `DisruptionTarget`. The time counts from the addition of
//! the taint, so that a restart of this process does not extend it.

mod plan;

use std::sync::Arc;

use api_client::informer::{BY_NODE, Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::context::ControllerContext;
use crate::eviction::{Evictions, Wording};
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, pods};

/// The controller; its keys are Pods'.
pub struct TaintEviction {
    evictions: Evictions,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
}

static WORDING: Wording = Wording {
    event: "TaintManagerEviction",
    marking: |pod| format!("Marking for deletion Pod {pod}"),
    cancelling: |pod| format!("Cancelling deletion of Pod {pod}"),
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
    deletions: &metrics::TAINT_DELETIONS,
    lateness: &metrics::TAINT_DELETION_DURATION,
};

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
    let evictions = Evictions::new(context.client(), context.recorder(TaintEviction::NAME), &WORDING);
    context.run(Arc::new(TaintEviction { evictions, nodes, pods }), queue);
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
            self.evictions.forget(key);
            return Ok(Next::OnChange);
        };
        let node = pods::node_name(&pod).and_then(|node| self.nodes.get(&ObjectKey::new("", node)));
        let taints = node.map(|node| plan::no_execute(&node)).unwrap_or_default();
        let now = api_clock::now();
        let verdict = plan::verdict(&taints, &plan::tolerations(&pod), self.evictions.first_observed(key, now), now);
        Ok(self.evictions.carry_out(key, &pod, verdict, now).await?.next())
    }
}
