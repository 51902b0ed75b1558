//! Garbage collector: deletes objects that have lost all their owners, and completes deletions that wait for dependents
//! (`foregroundDeletion`) or release them (`orphan`).
//!
//! Gets the metadata of every object of every kind that can be listed, watched and deleted, custom kinds included (Events
//! excepted, as upstream). Deletes objects, removes vanished owners from them and removes its two finalizers. Never deletes an
//! object before a live read of it, and never because of an owner whose absence is not proven.

mod graph;
mod monitor;
mod plan;
mod remote;

use std::sync::Arc;

use api_client::events::Recorder;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PropagationPolicy};

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{self, Controller, Next, WorkQueue};
use graph::{Graph, Identity, NodeSnapshot, Phase};
use monitor::Monitor;
use plan::{Action, Owner};
use remote::Remote;

/// Finalizer of a deletion that waits for dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that releases dependents.
const ORPHAN: &str = "orphan";

/// The controller; its keys are UIDs.
pub struct GarbageCollector {
    graph: Arc<Graph>,
    remote: Remote,
    recorder: Recorder,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let graph = Arc::new(Graph::default());
    let remote = Remote::new(context.client());
    let observed = context.observe(Arc::clone(&graph) as _);
    let monitor =
        Monitor::new(context.client(), Arc::clone(&graph), remote.kinds(), observed, context.config.discovery_period, context.tasks());
    let controller = Arc::new(GarbageCollector { graph, remote, recorder: context.recorder(GarbageCollector::NAME) });
    context.run_beside(GarbageCollector::NAME, move |cancel| async move {
        let queue: Arc<WorkQueue<String>> = controller.graph.queue();
        monitor.start(cancel.clone()).await;
        work::work(controller, queue, cancel).await;
    });
}

impl Controller for GarbageCollector {
    const NAME: &'static str = "garbage-collector-controller";
    const WORKERS: usize = 20;
    type Key = String;

    async fn reconcile(&self, uid: &String) -> Result<Next, Failure> {
        let Some(node) = self.graph.snapshot(uid) else { return Ok(Next::OnChange) };
        match node.phase {
            Phase::Orphaning => self.orphan(uid, &node).await?,
            Phase::Deleting => {}
            Phase::Foreground => self.wait_for_dependents(uid, &node).await?,
            Phase::Living => self.judge(uid, &node).await?,
        }
        Ok(Next::OnChange)
    }
}

impl GarbageCollector {
    /// Removes this owner from its dependents, then removes the owner's finalizer.
    async fn orphan(&self, uid: &str, node: &NodeSnapshot) -> Result<(), Failure> {
        for (_, dependent) in &node.dependents {
            let Some(latest) = self.remote.read(&dependent.identity).await? else { continue };
            if let Some(owners) = plan::without_owners(&latest, &[uid]) {
                self.remote.set_owners(&dependent.identity, &latest, owners).await?;
            }
        }
        self.remote.remove_finalizer(&node.identity, uid, ORPHAN).await
    }

    /// Removes the finalizer of an owner whose blocking dependents are gone; else queues these dependents.
    async fn wait_for_dependents(&self, uid: &str, node: &NodeSnapshot) -> Result<(), Failure> {
        let blocking: Vec<&String> = node.dependents.iter().filter(|(_, d)| d.blocks).map(|(uid, _)| uid).collect();
        if blocking.is_empty() {
            return self.remote.remove_finalizer(&node.identity, uid, FOREGROUND).await;
        }
        for (dependent, _) in node.dependents.iter().filter(|(_, d)| d.blocks && d.phase != Phase::Foreground) {
            self.graph.look_at(dependent);
        }
        Ok(())
    }

    /// Whether the object may stay, and which of its owners are left.
    async fn judge(&self, uid: &str, node: &NodeSnapshot) -> Result<(), Failure> {
        if node.owners.is_empty() {
            return Ok(());
        }
        let latest = match self.remote.read(&node.identity).await? {
            Some(latest) if latest.uid.as_deref() == Some(uid) => latest,
            _ => {
                self.graph.forget(uid);
                return Ok(());
            }
        };
        let mut owners = Vec::new();
        for reference in latest.owner_references.iter().flatten() {
            owners.push((reference.uid.clone(), self.owner(&node.identity, reference, &latest).await?));
        }
        let dependents: Vec<Phase> = node.dependents.iter().map(|(_, dependent)| dependent.phase).collect();
        self.perform(uid, node, &latest, plan::plan(&latest, &owners, &dependents)).await
    }

    /// The state of one owner: from the graph if it is there, else from the server.
    async fn owner(
        &self,
        item: &Identity,
        reference: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference,
        latest: &ObjectMeta,
    ) -> Result<Owner, Failure> {
        if let Some(owner) = self.graph.owner(item, reference) {
            return Ok(owner);
        }
        let owner = self.remote.look_up(item, reference).await?;
        if owner == Owner::Absent && self.graph.lives_elsewhere(item, &reference.uid) {
            let message = format!(
                "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
                reference.api_version, reference.kind, item.namespace, reference.name, reference.uid, item.namespace
            );
            self.recorder.warning(&reference_of(item, latest), "OwnerRefInvalidNamespace", message);
        }
        Ok(owner)
    }

    async fn perform(&self, uid: &str, node: &NodeSnapshot, latest: &ObjectMeta, action: Action) -> Result<(), Failure> {
        match action {
            Action::Nothing => Ok(()),
            Action::SetOwners(owners) => self.remote.set_owners(&node.identity, latest, owners).await,
            Action::Delete { policy, unblock } => {
                let mut version = latest.resource_version.clone();
                if let Some(owners) = unblock {
                    self.remote.set_owners(&node.identity, latest, owners).await?;
                    version = None;
                }
                tracing::debug!(object = %node.identity, ?policy, "deleting garbage");
                let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
                if !self.remote.delete(&node.identity, uid, version, params).await? {
                    self.graph.forget(uid);
                }
                Ok(())
            }
        }
    }
}

fn reference_of(item: &Identity, latest: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(item.kind.api_version()),
        kind: Some(item.kind.kind.clone()),
        namespace: latest.namespace.clone(),
        name: latest.name.clone(),
        uid: latest.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The policy that an object's own finalizers request.
fn policy(latest: &ObjectMeta) -> PropagationPolicy {
    if crate::meta::has_finalizer(latest, ORPHAN) {
        PropagationPolicy::Orphan
    } else if crate::meta::has_finalizer(latest, FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}
