//! Creates and deletes the Pods of a workload, with upstream's events and expectations: upstream's `PodControl`.

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::ObjectKey;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};

use crate::failure::{During, Failure};
use crate::work::Expectations;
use crate::writes::{self, Object};
use crate::{meta, pods};

/// Writes the Pods of the workloads of one controller. The caller expects creations and deletions before the first write; this
/// type takes back what did not happen.
pub struct PodControl {
    client: kube::Client,
    recorder: Recorder,
    expectations: Arc<Expectations>,
}

/// What became of several deletions.
#[derive(Debug)]
pub struct Deletions {
    /// The number of Pods that are being deleted or are gone.
    pub deleted: usize,
    /// How many of these were ready.
    pub ready: usize,
    /// The first failure.
    pub result: Result<(), Failure>,
}

impl PodControl {
    /// Writes through `client`; events come from `recorder`.
    pub fn new(client: kube::Client, recorder: Recorder, expectations: Arc<Expectations>) -> Self {
        Self { client, recorder, expectations }
    }

    /// Creates Pods in batches of 1, 2, 4, …: when one fails (a quota, a bad template), the other batches are not tried.
    /// Upstream's slow start. Returns how many Pods were created, and the first failure.
    pub async fn create<O: Object>(&self, owner: &O, wanted: &[Pod]) -> (usize, Result<(), Failure>) {
        let key = ObjectKey::from(owner.meta());
        let (mut left, mut batch, mut count) = (wanted, 1_usize, 0_usize);
        while !left.is_empty() {
            let (now, later) = left.split_at(batch.min(left.len()));
            let results = join_all(now.iter().map(|pod| self.create_one(owner, pod))).await;
            let failed: Vec<Failure> = results.into_iter().filter_map(Result::err).collect();
            count += now.len() - failed.len();
            let skipped = if failed.is_empty() { 0 } else { later.len() };
            (0..failed.len() + skipped).for_each(|_| self.expectations.created(&key));
            if let Some(failure) = failed.into_iter().next() {
                return (count, if failure.is_namespace_terminating() { Ok(()) } else { Err(failure) });
            }
            left = later;
            batch = batch.saturating_mul(2);
        }
        (count, Ok(()))
    }

    async fn create_one<O: Object>(&self, owner: &O, pod: &Pod) -> Result<(), Failure> {
        match writes::create(&self.client, pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", meta::name(&created.metadata));
                self.recorder.normal(&reference(owner), "SuccessfulCreate", message);
                Ok(())
            }
            Err(failure) => {
                if !failure.is_namespace_terminating() {
                    self.recorder.warning(&reference(owner), "FailedCreate", format!("Error creating: {}", failure.message()));
                }
                Err(failure)
            }
        }
    }

    /// Deletes Pods, each by UID. A Pod that is gone already is no failure.
    pub async fn delete<O: Object>(&self, owner: &O, surplus: &[Arc<Pod>]) -> Deletions {
        let results = join_all(surplus.iter().map(|pod| self.delete_one(owner, pod))).await;
        let mut deletions = Deletions { deleted: 0, ready: 0, result: Ok(()) };
        for (pod, result) in surplus.iter().zip(results) {
            match result {
                Ok(()) => {
                    deletions.deleted += 1;
                    deletions.ready += usize::from(pods::is_ready(pod));
                }
                Err(failure) => deletions.result = deletions.result.and(Err(failure)),
            }
        }
        deletions
    }

    async fn delete_one<O: Object>(&self, owner: &O, pod: &Pod) -> Result<(), Failure> {
        let name = meta::name(&pod.metadata);
        let api = writes::api::<Pod>(&self.client, meta::namespace(&pod.metadata));
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let deleted = api.delete(name, &DeleteParams::default().preconditions(preconditions)).await;
        let Err(failure) = deleted.during("deleting", format!("Pod {}", ObjectKey::from(&pod.metadata))) else {
            self.recorder.normal(&reference(owner), "SuccessfulDelete", format!("Deleted pod: {name}"));
            return Ok(());
        };
        self.expectations.deleted(&ObjectKey::from(owner.meta()), meta::uid(&pod.metadata));
        if failure.is_not_found() {
            return Ok(());
        }
        self.recorder.warning(&reference(owner), "FailedDelete", format!("Error deleting: {}", failure.message()));
        Err(failure)
    }
}
