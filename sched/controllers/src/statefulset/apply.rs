//! The writes of a StatefulSet's plan, with their events.

use std::time::Duration;

use api_client::events::reference;
use api_client::informer::ObjectKey;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::StatefulSets;
use super::plan::Action;
use crate::failure::{During, Failure};
use crate::{meta, writes};

/// The most writes at the same time, upstream's `MaxBatchSize`.
const BATCH_MAX: usize = 500;
/// A claim that is being deleted is looked at again after this time at the latest.
const CLAIM_GONE_MAX: Duration = Duration::from_secs(60);

impl StatefulSets {
    /// Performs the phases one after the other, until one fails. The next pass waits until the cache shows the written Pods.
    pub(super) async fn apply(&self, set: &StatefulSet, phases: Vec<Vec<Action>>) -> Result<(), Failure> {
        let mut written = Vec::new();
        let mut result = Ok(());
        for phase in phases {
            result = self.perform_all(set, phase, &mut written).await;
            if result.is_err() {
                break;
            }
        }
        self.unseen.add(&ObjectKey::from(&set.metadata), meta::uid(&set.metadata), &written, &self.pods);
        result
    }

    /// Performs actions in batches of 1, 2, 4, …: after a failure the other batches are not tried. The Pods of an ordered set
    /// are written one by one.
    async fn perform_all(&self, set: &StatefulSet, actions: Vec<Action>, written: &mut Vec<Pod>) -> Result<(), Failure> {
        let most = if set.spec.pod_management_policy.as_deref() == Some("Parallel") { BATCH_MAX } else { 1 };
        let (mut left, mut batch) = (actions.as_slice(), 1_usize);
        while !left.is_empty() {
            let (now, later) = left.split_at(batch.min(left.len()));
            let mut failure = None;
            for done in join_all(now.iter().map(|action| self.perform(set, action))).await {
                match done {
                    Ok(pod) => written.extend(pod),
                    Err(failed) if failed.is_namespace_terminating() => return Ok(()),
                    Err(failed) => failure = failure.or(Some(failed)),
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            left = later;
            batch = batch.saturating_mul(2).min(most);
        }
        Ok(())
    }

    /// Performs one action; returns the Pod that it wrote.
    async fn perform(&self, set: &StatefulSet, action: &Action) -> Result<Option<Pod>, Failure> {
        match action {
            Action::Create { pod, claims } => self.create(set, pod, claims).await.map(Some),
            Action::Claims { pod, claims } => {
                let created = self.create_claims(set, pod, claims).await;
                self.record(set, "update", pod, created.err()).map(|()| None)
            }
            Action::Change { pod, patch } => self.correct(set, pod, patch).await.map(Some),
            Action::Own { claim, owners } => writes::set_owners(&self.client, claim.as_ref(), owners).await.map(|_| None),
            Action::Delete(pod) => self.delete(set, pod).await,
            Action::ClaimDeleted { pod, claim } => {
                let waiting_for = format!("pvc {claim} is being deleted");
                let set_name = meta::name(&set.metadata);
                let message = format!("create Pod {pod} in StatefulSet {set_name} failed error: {waiting_for}");
                self.recorder.warning(&reference(set), "FailedCreate", message);
                let object = format!("StatefulSet {}", ObjectKey::from(&set.metadata));
                Err(Failure::Unfinished { object, waiting_for, at_most: CLAIM_GONE_MAX })
            }
        }
    }

    async fn create(&self, set: &StatefulSet, pod: &Pod, claims: &[PersistentVolumeClaim]) -> Result<Pod, Failure> {
        if let Err(failure) = self.create_claims(set, pod, claims).await {
            return self.failed(set, "create", pod, failure);
        }
        match writes::create(&self.client, pod).await {
            Ok(created) => {
                self.succeeded(set, "create", pod);
                Ok(created)
            }
            // A Pod of this name exists, which the cache does not show yet or which belongs to somebody else.
            Err(failure) if failure.is_conflict() => Err(failure),
            Err(failure) => self.failed(set, "create", pod, failure),
        }
    }

    /// Creates claims. One that exists already is left as it is.
    async fn create_claims(&self, set: &StatefulSet, pod: &Pod, claims: &[PersistentVolumeClaim]) -> Result<(), Failure> {
        for claim in claims {
            let (claim_name, pod_name, set_name) = (meta::name(&claim.metadata), meta::name(&pod.metadata), meta::name(&set.metadata));
            match writes::create(&self.client, claim).await {
                Ok(_) => {
                    let message = format!("create Claim {claim_name} Pod {pod_name} in StatefulSet {set_name} success");
                    self.recorder.normal(&reference(set), "SuccessfulCreate", message);
                }
                Err(failure) if failure.is_conflict() => {}
                Err(failure) => {
                    let why = failure.message();
                    let message = format!("create Claim {claim_name} for Pod {pod_name} in StatefulSet {set_name} failed error: {why}");
                    self.recorder.warning(&reference(set), "FailedCreate", message);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    async fn correct(&self, set: &StatefulSet, pod: &Pod, patch: &Value) -> Result<Pod, Failure> {
        let mut patch = patch.clone();
        let guard = json!({"metadata": {"resourceVersion": pod.metadata.resource_version, "uid": pod.metadata.uid}});
        meta::overlay(&mut patch, &guard);
        let api = writes::api::<Pod>(&self.client, meta::namespace(&pod.metadata));
        let corrected = api.patch(meta::name(&pod.metadata), &writes::patching(), &Patch::Strategic(&patch)).await;
        match corrected.during("patching", format!("Pod {}", ObjectKey::from(&pod.metadata))) {
            Ok(corrected) => {
                self.succeeded(set, "update", pod);
                Ok(corrected)
            }
            Err(failure) if failure.is_conflict() => Err(failure),
            Err(failure) => self.failed(set, "update", pod, failure),
        }
    }

    /// Deletes a Pod by UID; returns its last state, unless it is gone already.
    async fn delete(&self, set: &StatefulSet, pod: &Pod) -> Result<Option<Pod>, Failure> {
        let api = writes::api::<Pod>(&self.client, meta::namespace(&pod.metadata));
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let deleted = api.delete(meta::name(&pod.metadata), &DeleteParams::default().preconditions(preconditions)).await;
        match deleted.during("deleting", format!("Pod {}", ObjectKey::from(&pod.metadata))) {
            Ok(deleted) => {
                self.succeeded(set, "delete", pod);
                Ok(deleted.left())
            }
            // Another Pod of this name exists by now.
            Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(None),
            Err(failure) => self.failed(set, "delete", pod, failure),
        }
    }

    fn succeeded(&self, set: &StatefulSet, verb: &str, pod: &Pod) {
        let message = format!("{verb} Pod {} in StatefulSet {} successful", meta::name(&pod.metadata), meta::name(&set.metadata));
        self.recorder.normal(&reference(set), &format!("Successful{}", title(verb)), message);
    }

    fn failed<T>(&self, set: &StatefulSet, verb: &str, pod: &Pod, failure: Failure) -> Result<T, Failure> {
        if !failure.is_namespace_terminating() {
            let (pod, set_name, why) = (meta::name(&pod.metadata), meta::name(&set.metadata), failure.message());
            let message = format!("{verb} Pod {pod} in StatefulSet {set_name} failed error: {why}");
            self.recorder.warning(&reference(set), &format!("Failed{}", title(verb)), message);
        }
        Err(failure)
    }

    fn record(&self, set: &StatefulSet, verb: &str, pod: &Pod, failure: Option<Failure>) -> Result<(), Failure> {
        failure.map_or(Ok(()), |failure| self.failed(set, verb, pod, failure))
    }
}

/// The verb as it stands in event reasons.
fn title(verb: &str) -> &'static str {
    match verb {
        "create" => "Create",
        "update" => "Update",
        _ => "Delete",
    }
}
