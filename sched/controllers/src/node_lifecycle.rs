//! Node lifecycle: detects that a Node is lost, marks the Node and its Pods, and taints the Node.
//!
//! Watches Nodes, their Leases and Pods. A Node whose Lease and status do not change for the grace period gets the conditions
//! `Unknown`; its Pods are marked not ready; taints follow the conditions. `NoExecute` taints, which make Pods leave, are
//! rate-limited by zone. When every Node is lost there are none: then this process itself has lost the network. Never deletes
//! Pods (taint eviction does) or Nodes. Times in heartbeats are only compared with each other, never with this machine's clock.

mod health;
mod taints;
mod zones;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_NODE, Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::config::NodeTiming;
use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, nodes, pods, writes};
use health::Health;
use zones::Ration;

/// The controller; its keys are Nodes' names.
pub struct NodeLifecycle {
    client: kube::Client,
    recorder: Recorder,
    timing: NodeTiming,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    health: Mutex<HashMap<String, Health>>,
    rations: Mutex<HashMap<String, Ration>>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("node_lifecycle_controller"));
    let nodes = context.informer::<Node>();
    let node_cache = nodes.clone();
    context.feed(&queue, move |change: &Change<Node>| {
        let mut keys: Vec<String> = change.latest().map(|node| meta::name(&node.metadata).to_owned()).into_iter().collect();
        let ready = |node: Option<&Arc<Node>>| node.map(|node| nodes::is_ready(node));
        if ready(change.old.as_ref()) != ready(change.new.as_ref()) {
            // Whether lost Nodes are evicted depends on the state of the other Nodes.
            let nodes = node_cache.list();
            metrics::set_zones(zones::sizes(&nodes));
            let lost = nodes.into_iter().filter(|node| !nodes::is_ready(node));
            keys.extend(lost.map(|node| meta::name(&node.metadata).to_owned()));
        }
        keys
    });
    let leases = context.feed_selected(nodes::LEASES, &queue, |change: &Change<Lease>| {
        change.latest().map(|lease| meta::name(&lease.metadata).to_owned()).into_iter().collect()
    });
    let node_cache = nodes.clone();
    let pods = context.feed(&queue, move |change: &Change<Pod>| {
        let node = change.new.as_ref().filter(|pod| pods::is_ready(pod)).and_then(|pod| pods::node_name(pod));
        let lost = |node: &&str| node_cache.get(&ObjectKey::new("", *node)).is_some_and(|node| !nodes::is_ready(&node));
        node.filter(lost).map(str::to_owned).into_iter().collect()
    });
    let controller = NodeLifecycle {
        client: context.client(),
        recorder: context.recorder("node-controller"),
        timing: context.config.nodes.clone(),
        nodes,
        leases,
        pods,
        health: Mutex::default(),
        rations: Mutex::default(),
    };
    context.run(Arc::new(controller), queue);
}

impl Controller for NodeLifecycle {
    const NAME: &'static str = "node-lifecycle-controller";
    const WORKERS: usize = 8;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(node) = self.nodes.get(&ObjectKey::new("", key)) else {
            self.removed(key);
            return Ok(Next::OnChange);
        };
        let (clock, now) = (Instant::now(), api_clock::now());
        let health = self.observe(key, &node, clock);
        if let Some(conditions) = health::conditions_of_lost(&node, &health, &self.timing, clock, now) {
            writes::patch_status(&self.client, node.as_ref(), json!({"conditions": conditions})).await?;
            tracing::warn!(node = key, "node is lost");
            if nodes::is_ready(&node) {
                self.recorder.normal(&reference(node.as_ref()), "NodeNotReady", format!("Node {key} status is now: NodeNotReady"));
            }
            return Ok(Next::OnChange);
        }
        if self.pods_are_not_ready(key, &node) {
            self.mark_pods(key).await.inspect_err(|_| self.mark_again(key))?;
        }
        let wait_for_ration = self.taint(key, &node, now).await?;
        Ok(Next::OnChange.or_after(health::lost_in(&node, &health, &self.timing, clock)).or_after(wait_for_ration))
    }
}

impl NodeLifecycle {
    /// Records the present heartbeats of the Node.
    fn observe(&self, key: &str, node: &Node, now: Instant) -> Health {
        let lease = self.leases.get(&ObjectKey::new(api_client::lease::NODE_LEASE_NAMESPACE, key));
        let mut all = self.health.lock();
        let before = all.get(key).filter(|health| health.uid == meta::uid(&node.metadata)).cloned();
        if before.is_none() {
            let message = format!("Node {key} event: Registered Node {key} in Controller");
            self.recorder.normal(&reference(node), "RegisteredNode", message);
        }
        let health = health::observe(before, node, lease.as_deref(), now);
        all.insert(key.to_owned(), health.clone());
        health
    }

    fn removed(&self, key: &str) {
        if let Some(health) = self.health.lock().remove(key) {
            let object = k8s_openapi::api::core::v1::ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(key.to_owned()),
                uid: Some(health.uid),
                ..Default::default()
            };
            self.recorder.normal(&object, "RemovingNode", format!("Node {key} event: Removing Node {key} from Controller"));
        }
    }

    /// Whether the Pods must be marked: always on a lost Node; once on a Node that reports itself not ready (its kubelet runs
    /// and corrects the marks that are wrong).
    fn pods_are_not_ready(&self, key: &str, node: &Node) -> bool {
        let Some(ready) = nodes::condition(node, "Ready") else { return false };
        let mut all = self.health.lock();
        let Some(health) = all.get_mut(key) else { return false };
        let since = meta::instant(ready.last_transition_time.as_ref());
        match ready.status.as_str() {
            "True" => false,
            "Unknown" => true,
            _ => std::mem::replace(&mut health.marked_since, since) != since,
        }
    }

    /// Some Pods could not be marked (their kubelet wrote at the same time): all Pods are checked again.
    fn mark_again(&self, key: &str) {
        if let Some(health) = self.health.lock().get_mut(key) {
            health.marked_since = None;
        }
    }

    async fn mark_pods(&self, node: &str) -> Result<(), Failure> {
        for pod in self.pods.indexed(BY_NODE, node).into_iter().filter(|pod| pods::is_ready(pod)) {
            let conditions = health::pod_conditions_not_ready(&pod, api_clock::now());
            gone_is_fine(writes::patch_status(&self.client, pod.as_ref(), json!({"conditions": conditions})).await)?;
            self.recorder.warning(&reference(pod.as_ref()), "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }

    /// Brings the taints in line with the conditions; returns how long a `NoExecute` taint must still wait for the zone's rate
    /// limit.
    async fn taint(&self, key: &str, node: &Node, now: Timestamp) -> Result<Option<Duration>, Failure> {
        let wanted = taints::no_execute(node);
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let has_it = wanted.is_some_and(|wanted| taints.clone().any(|taint| taint.key == wanted && taint.effect == "NoExecute"));
        // A change from one `NoExecute` taint to the other is not a new eviction.
        let has_any = taints.clone().any(taints::is_ours_no_execute);
        let (allowed, wait) = match wanted {
            None => (None, None),
            Some(_) if self.everything_is_lost() => (None, None),
            Some(wanted) if has_it || has_any => (Some(wanted), None),
            Some(wanted) => match self.ration(node) {
                Ok(()) => (Some(wanted), None),
                Err(wait) => (None, wait),
            },
        };
        if let Some(taints) = taints::planned(node, allowed, now) {
            writes::patch(&self.client, node, json!({"spec": {"taints": meta::list_or_null(&taints)}})).await?;
            if allowed.is_some() && !has_any {
                metrics::NODE_EVICTIONS.count([&zones::zone_of(node)]);
            }
            tracing::info!(node = key, no_execute = allowed, "taints changed");
        }
        Ok(wait)
    }

    fn everything_is_lost(&self) -> bool {
        self.nodes.list().iter().all(|node| !nodes::is_ready(node))
    }

    /// Takes the zone's permission to evict one more Node, or returns how long to wait for it; `None` until something changes.
    fn ration(&self, node: &Node) -> Result<(), Option<Duration>> {
        let zone = zones::zone_of(node);
        let zone_nodes: Vec<Arc<Node>> = self.nodes.list().into_iter().filter(|other| zones::zone_of(other) == zone).collect();
        let lost = zone_nodes.iter().filter(|node| !nodes::is_ready(node)).count();
        let rate = zones::rate(zone_nodes.len(), lost, &self.timing);
        self.rations.lock().entry(zone).or_default().take(rate, Instant::now())
    }
}
