//! Deployment: ReplicaSets of successive templates, moved from the old to the new one step by step.
//!
//! Watches Deployments, ReplicaSets and, for `Recreate`, Pods. Creates, scales, annotates, adopts and deletes ReplicaSets and
//! writes Deployment status and its revision annotation. Never touches Pods. Each pass plans from the caches alone; each write
//! carries the revision that was read, so a stale cache costs a retry and never a wrong step. A roll-back is the client's: it
//! restores a template, and the ReplicaSet with that template becomes the newest again.

mod fence;
mod history;
mod plan;
mod rollout;
mod scale;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::json;

use api_client::informer::{BY_CONTROLLER, Change, Informer, ObjectKey};

use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{claim, meta, pods, writes};
use plan::{Action, Plan, Snapshot};

/// The controller.
pub struct Deployments {
    client: kube::Client,
    recorder: Recorder,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("deployment"));
    let deployments =
        context.feed(&queue, |change: &Change<Deployment>| change.latest().map(|d| ObjectKey::from(&d.metadata)).into_iter().collect());
    let deployment_cache = deployments.clone();
    let sets = context.feed(&queue, move |change: &Change<ReplicaSet>| touched(change, &deployment_cache));
    let (deployment_cache, owners) = (deployments.clone(), sets.clone());
    let pods = context.feed(&queue, move |change: &Change<Pod>| waiting_for(change, &deployment_cache, &owners));
    let controller = Deployments { client: context.client(), recorder: context.recorder(Deployments::NAME), deployments, sets, pods };
    context.run(Arc::new(controller), queue);
}

fn owner(set: &ReplicaSet, deployments: &Informer<Deployment>) -> Option<Arc<Deployment>> {
    let reference = meta::controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
    let key = ObjectKey::new(meta::namespace(&set.metadata), &reference.name);
    deployments.get(&key).filter(|deployment| deployment.metadata.uid.as_deref() == Some(&reference.uid))
}

/// The Deployments that a change of a ReplicaSet concerns: its owners before and after, or, when it has none, the Deployments
/// that could adopt it.
fn touched(change: &Change<ReplicaSet>, deployments: &Informer<Deployment>) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = change.both().filter_map(|set| owner(set, deployments)).map(|d| ObjectKey::from(&d.metadata)).collect();
    if let Some(orphan) = change.new.as_ref().filter(|set| meta::controller_of(&set.metadata).is_none()) {
        let candidates = deployments.in_namespace(meta::namespace(&orphan.metadata)).into_iter();
        let adopters = candidates.filter(|d| meta::matches(&meta::selector(&d.spec.selector), orphan.metadata.labels.as_ref()));
        keys.extend(adopters.map(|d| ObjectKey::from(&d.metadata)));
    }
    keys
}

/// A `Recreate` Deployment waits until its old Pods are gone or have ended.
fn waiting_for(change: &Change<Pod>, deployments: &Informer<Deployment>, sets: &Informer<ReplicaSet>) -> Vec<ObjectKey> {
    let ended = change.new.as_ref().is_none_or(|pod| pods::is_terminal(pod));
    let Some(pod) = change.old.as_ref().filter(|_| ended) else { return Vec::new() };
    let Some(reference) = meta::controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else { return Vec::new() };
    let set = sets.get(&ObjectKey::new(meta::namespace(&pod.metadata), &reference.name));
    let deployment = set.and_then(|set| owner(&set, deployments)).filter(|d| fence::recreates(d));
    deployment.map(|d| ObjectKey::from(&d.metadata)).into_iter().collect()
}

impl Controller for Deployments {
    const NAME: &'static str = "deployment-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(Next::OnChange) };
        let selector = meta::selector(&deployment.spec.selector);
        if selector.is_everything() {
            return self.refuse(&deployment).await;
        }
        let sets = claim::claim(&self.client, claim::candidates(&self.sets, &deployment.metadata), deployment.as_ref(), &selector).await?;
        let now = api_clock::now();
        let running =
            |set: &ReplicaSet| self.pods.indexed(BY_CONTROLLER, meta::uid(&set.metadata)).iter().any(|pod| !pods::is_terminal(pod));
        let plan = plan::plan(&Snapshot { deployment: &deployment, sets, runs_pods: &running, now });
        self.apply(&deployment, plan).await
    }
}

impl Deployments {
    /// A selector that selects every Pod is never acted on.
    async fn refuse(&self, deployment: &Deployment) -> Result<Next, Failure> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.recorder.warning(&reference(deployment), "SelectingAll", message);
        let before = deployment.status.clone().unwrap_or_default();
        let status = DeploymentStatus { observed_generation: deployment.metadata.generation, ..before };
        writes::set_status(&self.client, deployment, deployment.status.as_ref(), &status).await?;
        Ok(Next::OnChange)
    }

    async fn apply(&self, deployment: &Deployment, plan: Plan) -> Result<Next, Failure> {
        let mut fresh = deployment.clone();
        for action in plan.actions {
            if let Some(changed) = self.perform(&fresh, action).await? {
                fresh = changed;
            }
        }
        writes::set_status(&self.client, &fresh, deployment.status.as_ref(), &plan.status).await?;
        Ok(Next::OnChange.or_after(plan.look_again))
    }

    /// Performs one action; returns the Deployment when the action changed it.
    async fn perform(&self, deployment: &Deployment, action: Action) -> Result<Option<Deployment>, Failure> {
        match action {
            Action::SetRevision(revision) => {
                let patch = json!({"metadata": {"annotations": {history::REVISION: revision}}});
                return writes::patch(&self.client, deployment, patch).await.map(Some);
            }
            Action::Create(set) => self.create(deployment, *set).await?,
            Action::Change { set, patch, scaled } => {
                writes::patch(&self.client, set.as_ref(), patch).await?;
                if let Some((from, to)) = scaled {
                    self.recorder.normal(&reference(deployment), "ScalingReplicaSet", plan::scaled_message(&set, from, to));
                }
            }
            Action::Delete(set) => gone_is_fine(writes::delete(&self.client, set.as_ref(), DeleteParams::background()).await)?,
        }
        Ok(None)
    }

    async fn create(&self, deployment: &Deployment, set: ReplicaSet) -> Result<(), Failure> {
        match writes::create(&self.client, &set).await {
            Ok(made) => {
                if let Some(count) = made.spec.replicas.filter(|count| *count > 0) {
                    self.recorder.normal(&reference(deployment), "ScalingReplicaSet", plan::scaled_message(&made, 0, count));
                }
                Ok(())
            }
            Err(failure) if failure.is_conflict() => self.collided(deployment, &set, failure).await,
            Err(failure) if failure.is_namespace_terminating() => Ok(()),
            Err(failure) => {
                let message = format!("Failed to create new replica set \"{}\": {}", meta::name(&set.metadata), failure.message());
                self.recorder.warning(&reference(deployment), status::REPLICA_SET_CREATE_ERROR, message.clone());
                let failed = status::with_create_failure(deployment, message, api_clock::now());
                writes::set_status(&self.client, deployment, deployment.status.as_ref(), &failed).await?;
                Err(failure)
            }
        }
    }

    /// The name exists already. Either this ReplicaSet has it and the cache is stale, or another one whose template has the
    /// same hash; then the collision count changes the hash.
    async fn collided(&self, deployment: &Deployment, wanted: &ReplicaSet, failure: Failure) -> Result<(), Failure> {
        let Some(existing) = writes::get::<ReplicaSet>(&self.client, &ObjectKey::from(&wanted.metadata)).await? else {
            return Err(failure);
        };
        let ours = meta::controller_uid(&existing.metadata) == meta::uid(&deployment.metadata);
        if ours && history::same_template(&existing, deployment) {
            return Err(failure);
        }
        let mut status = deployment.status.clone().unwrap_or_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
        writes::set_status(&self.client, deployment, deployment.status.as_ref(), &status).await?;
        Err(failure)
    }
}
