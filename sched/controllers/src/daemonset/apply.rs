//! The writes of a DaemonSet's plan, with their events.

use std::sync::Arc;

use api_client::events::reference;
use api_client::informer::ObjectKey;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};

use super::plan::{Ended, Plan};
use super::{DaemonSets, backoff_key, template};
use crate::failure::{During, Failure};
use crate::{meta, writes};

impl DaemonSets {
    /// Deletes and creates what the plan says. The expectations have both before the first write.
    pub(super) async fn apply(&self, set: &DaemonSet, hash: &str, plan: Plan) -> Result<(), Failure> {
        if plan.create.is_empty() && plan.delete.is_empty() {
            return Ok(());
        }
        for ended in &plan.ended {
            self.note_end(set, ended);
        }
        let key = ObjectKey::from(&set.metadata);
        let uids = plan.delete.iter().map(|pod| meta::uid(&pod.metadata).to_owned());
        self.expectations.expect(&key, plan.create.len(), uids);
        let created = self.create(set, hash, &key, &plan.create).await;
        let deleted: Vec<_> = join_all(plan.delete.iter().map(|pod| self.delete_one(set, &key, pod))).await;
        deleted.into_iter().fold(created, Result::and)
    }

    fn note_end(&self, set: &DaemonSet, ended: &Ended) {
        let (pod, node) = (ObjectKey::from(&ended.pod.metadata), &ended.node);
        if ended.failed {
            self.backoffs.next(backoff_key(set, node));
            let message = format!("Found failed daemon pod {pod} on node {node}, will try to kill it");
            self.recorder.warning(&reference(set), "FailedDaemonPod", message);
        } else {
            let message = format!("Found succeeded daemon pod {pod} on node {node}, will try to delete it");
            self.recorder.normal(&reference(set), "SucceededDaemonPod", message);
        }
    }

    /// Creates Pods in batches of 1, 2, 4, …: after a failure the other batches are not tried.
    async fn create(&self, set: &DaemonSet, hash: &str, key: &ObjectKey, nodes: &[String]) -> Result<(), Failure> {
        let (mut left, mut batch) = (nodes, 1_usize);
        while !left.is_empty() {
            let (now, later) = left.split_at(batch.min(left.len()));
            let created = join_all(now.iter().map(|node| self.create_one(set, hash, node))).await;
            let failed: Vec<Failure> = created.into_iter().filter_map(Result::err).collect();
            let skipped = if failed.is_empty() { 0 } else { later.len() };
            for _ in 0..failed.len() + skipped {
                self.expectations.created(key);
            }
            if let Some(failure) = failed.into_iter().next() {
                return if failure.is_namespace_terminating() { Ok(()) } else { Err(failure) };
            }
            left = later;
            batch = batch.saturating_mul(2);
        }
        Ok(())
    }

    async fn create_one(&self, set: &DaemonSet, hash: &str, node: &str) -> Result<(), Failure> {
        match writes::create(&self.client, &template::pod(set, node, hash)).await {
            Ok(pod) => {
                self.recorder.normal(&reference(set), "SuccessfulCreate", format!("Created pod: {}", meta::name(&pod.metadata)));
                Ok(())
            }
            Err(failure) => {
                if !failure.is_namespace_terminating() {
                    self.recorder.warning(&reference(set), "FailedCreate", format!("Error creating: {}", failure.message()));
                }
                Err(failure)
            }
        }
    }

    async fn delete_one(&self, set: &DaemonSet, key: &ObjectKey, pod: &Arc<Pod>) -> Result<(), Failure> {
        let name = meta::name(&pod.metadata);
        let api = writes::api::<Pod>(&self.client, meta::namespace(&pod.metadata));
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let deleted = api.delete(name, &DeleteParams::default().preconditions(preconditions)).await;
        match deleted.during("deleting", format!("Pod {}", ObjectKey::from(&pod.metadata))) {
            Ok(_) => {
                self.recorder.normal(&reference(set), "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(failure) => {
                self.expectations.deleted(key, meta::uid(&pod.metadata));
                if failure.is_not_found() {
                    return Ok(());
                }
                self.recorder.warning(&reference(set), "FailedDelete", format!("Error deleting: {}", failure.message()));
                Err(failure)
            }
        }
    }
}
