//! The node's own object: registered once, its status written when it changes and every five minutes,
//! its Lease renewed so that the cluster knows the node lives. [`object`] holds the pure half.

mod images;
pub(crate) mod object;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node as ApiNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::chain;
use crate::health::Health;
use crate::node::Node;
use crate::routes::pod_cidr;
use images::ImageList;
use object::Facts;

/// The namespace of node Leases.
const LEASES: &str = "kube-node-lease";
/// First and longest wait after a failed registration.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(7);
/// The pause between two reports of a plugin's devices: a device that flickers does not keep the API server busy.
const DEVICES_PAUSE: Duration = Duration::from_secs(1);
/// How long the network of a node that starts again may take before the node reports that it is not ready.
const RETURN_LIMIT: Duration = Duration::from_secs(5);

/// Registers the Node object and updates it.
pub(crate) struct Registrar {
    node: Arc<Node>,
    health: Arc<Health>,
    port: u16,
    nodes: Api<ApiNode>,
    /// The status last written, without its heartbeat times, and when.
    written: Option<(Value, Instant)>,
    images: ImageList,
}

impl Registrar {
    pub(crate) fn new(node: Arc<Node>, health: Arc<Health>, port: u16) -> Self {
        let nodes = Api::all(node.client.clone());
        Self { node, health, port, nodes, written: None, images: ImageList::default() }
    }

    /// Registers, then updates the status and the Lease until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let work = async {
            let node = self.register().await;
            let lease = renew(self.node.clone(), node.metadata.uid.unwrap_or_default());
            tokio::join!(lease, self.keep());
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }

    /// Creates the Node, or reads the existing one. Tries until it succeeds.
    async fn register(&mut self) -> ApiNode {
        let mut retry = RETRY;
        loop {
            match self.try_register().await {
                Ok(node) => {
                    tracing::info!(node = self.node.config.node_name, "node registered");
                    return node;
                }
                Err(error) => tracing::warn!(error = chain(&error), "node not registered yet"),
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    async fn try_register(&mut self) -> Result<ApiNode, kube::Error> {
        let facts = self.facts().await;
        let wanted = object::node(&self.node.config, &facts, None);
        let name = &self.node.config.node_name;
        let node = match self.nodes.create(&PostParams::default(), &wanted).await {
            Ok(node) => node,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = json!({"metadata": {"labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations}});
                self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?
            }
            Err(error) => return Err(error),
        };
        if pod_cidr(&node).is_some() {
            self.until_the_network_stands().await;
        }
        self.write(Some(&node)).await?;
        Ok(node)
    }

    /// A node that was ready before the agent started again stays ready: a status that is not ready for the moment in which the
    /// network is restored would remove its Pods from their Services.
    async fn until_the_network_stands(&self) {
        let mut stands = self.node.has_pod_range.subscribe();
        if tokio::time::timeout(RETURN_LIMIT, stands.wait_for(|stands| *stands)).await.is_err() {
            tracing::warn!("the node's network does not stand yet");
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
            let present = self.node.objects.node(&self.node.config.node_name);
            if let Err(error) = self.write(present.as_deref()).await {
                tracing::warn!(error = chain(&error), "node status not written");
                if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                    self.written = None;
                    self.register().await;
                }
            }
        }
    }

    async fn write(&mut self, present: Option<&ApiNode>) -> Result<(), kube::Error> {
        let (pulse, age_max) = (&self.node.pulse, self.node.config.sync_loop_max);
        // The same text for as long as it lasts: each change of the health is written at once.
        let stands_still = || format!("Pod manager is not healthy: it has not been active for more than {age_max:?}");
        self.health.set("pod-manager", (!pulse.is_alive(age_max).await).then(stands_still));
        let facts = self.facts().await;
        let wanted = object::node(&self.node.config, &facts, present);
        let status = serde_json::to_value(&wanted.status).unwrap_or_default();
        let bare = object::without_heartbeats(&status);
        let due = |(last, at): &(Value, Instant)| *last != bare || at.elapsed() >= self.node.config.status_report;
        let fresh = !self.written.as_ref().is_none_or(due) && present.is_none_or(|present| object::says_the_same(present, &wanted));
        if fresh {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({"status": status}));
        self.nodes.patch_status(&self.node.config.node_name, &PatchParams::default(), &patch).await?;
        self.written = Some((bare, Instant::now()));
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

/// Renews the Lease for as long as the node lives.
async fn renew(node: Arc<Node>, uid: String) {
    let leases: Api<Lease> = Api::namespaced(node.client.clone(), LEASES);
    let name = &node.config.node_name;
    let mut retry = RETRY;
    loop {
        let now = MicroTime(api_clock::now());
        let patch = json!({"spec": {"holderIdentity": name, "renewTime": now}});
        let renewal = async {
            match leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    // The Node may have been deleted and registered again: a Lease owned by the old Node would be garbage at
                    // once.
                    let present = node.objects.node(name).and_then(|node| node.metadata.uid.clone());
                    leases.create(&PostParams::default(), &lease(&node, &present.unwrap_or_else(|| uid.clone()), now)).await
                }
                other => other,
            }
        };
        // A connection that went silent must not hold up the next heartbeat.
        let failure = match tokio::time::timeout(node.config.lease_renew, renewal).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some("the API server did not answer in time".to_owned()),
        };
        let pause = match failure {
            None => {
                retry = RETRY;
                node.config.lease_renew
            }
            // The node counts as lost when some heartbeats are missing: the next attempt does not wait for its turn.
            Some(error) => {
                tracing::warn!(error, "lease not renewed");
                let pause = retry;
                retry = (retry * 2).min(RETRY_MAX).min(node.config.lease_renew);
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn lease(node: &Node, uid: &str, now: MicroTime) -> Lease {
    let name = node.config.node_name.clone();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta { name: Some(name.clone()), owner_references: Some(vec![owner]), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: i32::try_from(node.config.lease_duration.as_secs()).ok(),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    }
}
