//! The writes of a DaemonSet's plan, with their events.

use api_client::events::reference;
use api_client::informer::ObjectKey;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;

use super::plan::{Ended, Plan};
use super::{DaemonSets, backoff_key, template};
use crate::failure::Failure;
use crate::meta;

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
        let wanted: Vec<Pod> = plan.create.iter().map(|node| template::pod(set, node, hash)).collect();
        let (_, created) = self.control.create(set, &wanted).await;
        let deletions = self.control.delete(set, &plan.delete).await;
        created.and(deletions.result)
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
}
