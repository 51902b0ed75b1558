//! The node's own object: registered once and again when it was deleted, its status written when it changes and every five minutes,
//! its Lease renewed so that the cluster knows the node lives. [`object`] and [`events`] hold the pure half.

mod events;
mod images;
mod lease;
pub(crate) mod object;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::chain;
use crate::health::{Health, NOT_LISTED};
use crate::node::Node;
use crate::routes::pod_cidr;
use events::NodeEvent;
use images::ImageList;
use object::Facts;

/// First and longest wait after a failed registration or renewal.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(7);
/// The pause between two reports of a plugin's devices: a device that flickers does not keep the API server busy.
const DEVICES_PAUSE: Duration = Duration::from_secs(1);
/// How long the cache may be behind an answer of the API.
const CACHE_LAG_MAX: Duration = Duration::from_secs(5);
/// How long a node that starts again may take before it reports that it is not ready. The first list of the containers may take longer.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// Registers the Node object and updates it.
pub(crate) struct Registrar {
    node: Arc<Node>,
    health: Arc<Health>,
    port: u16,
    nodes: Api<ApiNode>,
    /// The UID of the registered Node, for its Lease.
    uid: watch::Sender<String>,
    /// The status last written, without its heartbeat times, and when.
    written: Option<(Value, Instant)>,
    /// The Node as the API answered last.
    answered: Option<Arc<ApiNode>>,
    /// Whether the cache has had the Node of the present registration.
    is_cached: bool,
    /// Whether the Node was closed to new Pods at the last look.
    was_unschedulable: bool,
    images: ImageList,
}

impl Registrar {
    pub(crate) fn new(node: Arc<Node>, health: Arc<Health>, port: u16) -> Self {
        let (nodes, uid) = (Api::all(node.client.clone()), watch::Sender::new(String::new()));
        let (written, answered, images) = (None, None, ImageList::default());
        Self { node, health, port, nodes, uid, written, answered, is_cached: false, was_unschedulable: false, images }
    }

    /// Registers, then updates the status and the Lease until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        // Beside the registration, which may wait for the list of the containers.
        let lease = lease::renew(self.node.clone(), self.uid.subscribe());
        let work = async {
            self.register().await;
            self.keep().await;
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            ((), ()) = futures::future::join(lease, work) => {}
        }
    }

    /// Creates the Node, or reads the existing one. Tries until it succeeds.
    async fn register(&mut self) {
        let mut retry = RETRY;
        loop {
            match self.try_register().await {
                Ok(()) => {
                    tracing::info!(node = self.node.config.node_name, "node registered");
                    return;
                }
                Err(error) => tracing::warn!(error = chain(&error), "node not registered yet"),
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    async fn try_register(&mut self) -> Result<(), kube::Error> {
        let facts = self.facts().await;
        let wanted = object::node(&self.node.config, &facts, None);
        let name = &self.node.config.node_name;
        let node = match self.nodes.create(&PostParams::default(), &wanted).await {
            Ok(node) => {
                self.record(events::of_status(None, &node));
                node
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = json!({"metadata": {"labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations}});
                self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?
            }
            Err(error) => return Err(error),
        };
        let node = Arc::new(node);
        (self.answered, self.is_cached) = (Some(Arc::new(trimmed((*node).clone()))), false);
        self.uid.send_replace(node.metadata.uid.clone().unwrap_or_default());
        if pod_cidr(&node).is_some() {
            self.until_well().await;
        }
        self.write(Some(node)).await
    }

    fn record(&self, events: impl IntoIterator<Item = NodeEvent>) {
        events.into_iter().for_each(|event| self.node.note_node(event.warning, event.reason, event.message));
    }

    /// A node that was ready before the agent started again stays ready: a status that is not ready for the moment in which the
    /// network is restored and the containers are listed would remove its Pods from their Services. A list that is slow is waited for, one
    /// that has failed is not.
    async fn until_well(&self) {
        let began = Instant::now();
        while let Some(problem) = self.health.text() {
            let limit = if problem == NOT_LISTED { self.node.config.lease_duration / 2 } else { RETURN_LIMIT };
            if tokio::time::timeout_at(began + limit, self.health.changed.notified()).await.is_err() {
                tracing::warn!(problem, "the node is not ready yet");
                return;
            }
        }
    }

    /// Writes the status periodically, and at once when the health changes or a resource runs short.
    async fn keep(&mut self) {
        let (mut pressure, mut devices) = (self.node.pressure.subscribe(), self.node.device_plugins.changes());
        let mut devices_at = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.node.config.status_check) => {}
                () = self.health.changed.notified() => {}
                // The node, which this task holds, owns the senders.
                _ = pressure.changed() => {}
                () = changed_after(&mut devices, devices_at) => devices_at = Instant::now() + DEVICES_PAUSE,
            }
            let cached = self.node.objects.node(&self.node.config.node_name);
            if self.is_gone(cached.as_deref()) {
                self.register_again().await;
                continue;
            }
            let present = newest(cached, self.recent_answer());
            if let Err(error) = self.write(present).await {
                tracing::warn!(error = chain(&error), "node status not written");
                if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                    self.register_again().await;
                }
            }
        }
    }

    /// Whether the Node of the registration was deleted. A cache that does not have the Node yet is no sign of that, unless it had the time
    /// to get it.
    fn is_gone(&mut self, cached: Option<&ApiNode>) -> bool {
        let registered = self.answered.as_ref().and_then(|node| node.metadata.uid.as_ref());
        let is_same = cached.is_some_and(|node| node.metadata.uid.as_ref() == registered);
        self.is_cached |= is_same;
        let is_current = || self.recent_answer().is_none() && self.node.objects.are_listed();
        !is_same && (self.is_cached || is_current())
    }

    /// The answer to the last write, until the cache surely has it. The cache counts from then on, also if it has an earlier Node: the API
    /// server's data may have been restored from a backup.
    fn recent_answer(&self) -> Option<Arc<ApiNode>> {
        let is_recent = self.written.as_ref().is_some_and(|(_, at)| at.elapsed() < CACHE_LAG_MAX);
        self.answered.clone().filter(|_| is_recent)
    }

    /// The Node was deleted. Unlike the kubelet, which must be started again, the agent goes on with a new one.
    async fn register_again(&mut self) {
        tracing::warn!(node = self.node.config.node_name, "the Node was deleted: it is registered again");
        self.written = None;
        self.register().await;
    }

    /// Writes the status if it is due. `present` is the Node that the status is compared with.
    async fn write(&mut self, present: Option<Arc<ApiNode>>) -> Result<(), kube::Error> {
        // An event is the difference to what the node wrote last. A cache that is behind would have it recorded again.
        let before = newest(present.clone(), self.answered.clone());
        let (before, present) = (before.as_deref(), present.as_deref());
        let (pulse, age_max) = (&self.node.pulse, self.node.config.sync_loop_max);
        // The same text for as long as it lasts: each change of the health is written at once.
        let stands_still = || format!("Pod manager is not healthy: it has not been active for more than {age_max:?}");
        self.health.set("pod-manager", (!pulse.is_alive(age_max).await).then(stands_still));
        let facts = self.facts().await;
        let wanted = object::node(&self.node.config, &facts, present);
        let status = serde_json::to_value(&wanted.status).unwrap_or_default();
        let bare = object::without_heartbeats(&status);
        let due = |(last, at): &(Value, Instant)| *last != bare || at.elapsed() >= self.node.config.status_report;
        if let Some(before) = before {
            self.record(events::of_schedulability(self.was_unschedulable, before));
            self.was_unschedulable = events::is_unschedulable(before);
        }
        let fresh = !self.written.as_ref().is_none_or(due) && present.is_none_or(|present| object::says_the_same(present, &wanted));
        if fresh {
            return Ok(());
        }
        let patch = Patch::Strategic(object::status_patch(status, present, &wanted));
        let answer = self.nodes.patch_status(&self.node.config.node_name, &PatchParams::default(), &patch).await?;
        self.record(events::of_status(before, &wanted));
        (self.written, self.answered) = (Some((bare, Instant::now())), Some(Arc::new(trimmed(answer))));
        Ok(())
    }

    async fn facts(&mut self) -> Facts {
        let config = &self.node.config;
        let images = self.images.read(&*self.node.parts.images, config.node_status_images_max, config.image_list_refresh).await;
        Facts {
            machine: self.node.machine.clone(),
            pressure: *self.node.pressure.borrow(),
            allocatable: self.node.allocatable(),
            devices: self.node.device_plugins.amounts(),
            problem: self.health.text(),
            port: self.port,
            images,
            enforces_capacity: self.node.enforces_capacity,
            recursive_read_only: self.node.recursive_read_only,
            without_user_namespaces: self.node.without_user_namespaces.keys().map(|handler| (*handler).to_owned()).collect(),
            handlers: self.node.parts.runtimes.iter().map(|runtime| runtime.handler().to_owned()).collect(),
            now: api_clock::now(),
        }
    }
}

/// Waits for a change, and until a time.
async fn changed_after(changes: &mut watch::Receiver<u64>, at: Instant) {
    // The node owns the sender.
    let _ = changes.changed().await;
    tokio::time::sleep_until(at).await;
}

/// A Node without its images and the managers of its fields, which are the most of it.
fn trimmed(mut node: ApiNode) -> ApiNode {
    node.metadata.managed_fields = None;
    if let Some(status) = &mut node.status {
        status.images = None;
    }
    node
}

/// The later one of the Node in the cache and the Node as the API answered last.
fn newest(cached: Option<Arc<ApiNode>>, answered: Option<Arc<ApiNode>>) -> Option<Arc<ApiNode>> {
    let revision = |node: &Arc<ApiNode>| node.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok());
    // Of two that are equally old, the cache's: it is `max_by_key`'s last.
    answered.into_iter().chain(cached).max_by_key(revision)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_later_node_counts() {
        let node = |version: &str| -> Option<Arc<ApiNode>> {
            serde_json::from_value(json!({"metadata": {"name": "n", "resourceVersion": version}})).ok()
        };
        let version = |cached, answered| newest(cached, answered).and_then(|node| node.metadata.resource_version.clone());
        assert_eq!(version(node("9"), node("10")).as_deref(), Some("10"));
        assert_eq!(version(node("11"), node("10")).as_deref(), Some("11"));
        assert_eq!(version(None, node("10")).as_deref(), Some("10"));
        assert_eq!(version(None, None), None);
    }
}
