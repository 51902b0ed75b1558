//! Pod garbage collector: removes Pods that no other part of the cluster removes.
//!
//! Watches Pods and Nodes. Removes Pods of Nodes that are gone, Pods being deleted that never had a Node or whose Node is out
//! of service, and the oldest ended Pods above a threshold. It deletes them without grace: no kubelet is there to end them. It
//! runs at most every 20 s, and only after a change that may make a Pod garbage.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use parking_lot::Mutex;

use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, pods, writes};
use plan::{Quarantine, Reason};

/// The controller; it has one key.
pub struct PodGc {
    client: kube::Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    threshold: usize,
    quarantine_time: Duration,
    quarantine: Mutex<Quarantine>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue: Arc<WorkQueue<()>> = Arc::new(WorkQueue::new("orphaned_pods_nodes"));
    let (nodes, pods) = (context.informer::<Node>(), context.informer::<Pod>());
    let period = context.config.pod_gc_period;
    let (node_cache, woken) = (nodes.clone(), Arc::clone(&queue));
    context.on_change(&pods, move |change: &Change<Pod>| {
        let has_node = |pod: &Pod| pods::node_name(pod).is_none_or(|node| node_cache.get(&ObjectKey::new("", node)).is_some());
        let interesting = |pod: &Arc<Pod>| pods::is_terminal(pod) || meta::is_deleting(&pod.metadata) || !has_node(pod);
        if change.new.as_ref().is_some_and(interesting) {
            woken.add_after((), period);
        }
    });
    let woken = Arc::clone(&queue);
    context.on_change(&nodes, move |change: &Change<Node>| {
        if change.new.as_ref().is_none_or(|node| plan::is_out_of_service(node)) {
            woken.add_after((), period);
        }
    });
    let controller = PodGc {
        client: context.client(),
        nodes,
        pods,
        threshold: context.config.terminated_pod_gc_threshold,
        quarantine_time: context.config.pod_gc_quarantine,
        quarantine: Mutex::default(),
    };
    context.run(Arc::new(controller), queue);
}

impl Controller for PodGc {
    const NAME: &'static str = "pod-garbage-collector-controller";
    const WORKERS: usize = 1;
    type Key = ();

    async fn reconcile(&self, (): &()) -> Result<Next, Failure> {
        let now = api_clock::now();
        let (pods, nodes) = (self.pods.list(), self.nodes.list());
        let plan = {
            let mut quarantine = self.quarantine.lock();
            plan::plan(&pods, &nodes, &mut quarantine, &plan::Limits { ended_max: self.threshold, quarantine: self.quarantine_time }, now)
        };
        let mut gone: HashMap<String, bool> = HashMap::new();
        for (pod, reason) in plan.remove {
            if reason == Reason::NodeGone && !self.is_gone(pods::node_name(&pod).unwrap_or_default(), &mut gone).await? {
                continue;
            }
            let labels = [meta::namespace(&pod.metadata), reason.as_str()];
            self.remove(&pod, reason, now).await.inspect_err(|_| metrics::POD_GC_ERRORS.count(labels))?;
            metrics::POD_GC_DELETIONS.count(labels);
        }
        Ok(Next::OnChange.or_after(plan.look_again))
    }
}

impl PodGc {
    /// Whether a Node is gone. The server is asked once a pass; `checked` has the answers of this pass.
    async fn is_gone(&self, node: &str, checked: &mut HashMap<String, bool>) -> Result<bool, Failure> {
        if let Some(gone) = checked.get(node) {
            return Ok(*gone);
        }
        let gone = writes::get::<Node>(&self.client, &ObjectKey::new("", node)).await?.is_none();
        checked.insert(node.to_owned(), gone);
        Ok(gone)
    }

    async fn remove(&self, pod: &Pod, reason: Reason, now: Timestamp) -> Result<(), Failure> {
        tracing::info!(pod = %ObjectKey::from(&pod.metadata), ?reason, "removing pod");
        if let Some(status) = plan::last_status(pod, reason, now) {
            gone_is_fine(writes::patch_status(&self.client, pod, status).await)?;
        }
        writes::delete(&self.client, pod, DeleteParams::default().grace_period(0)).await
    }
}
