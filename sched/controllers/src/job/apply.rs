//! The writes of a Job's plan, with their events.

use std::sync::Arc;

use api_client::events::reference;
use api_client::informer::ObjectKey;
use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use serde_json::{Value, json};

use super::Jobs;
use super::counts::Counts;
use super::member;
use super::plan::Manage;
use super::track::{self, Managed, Tracking};
use crate::failure::{During, Failure, gone_is_fine};
use crate::pod_control::Deletions;
use crate::{meta, metrics, writes};

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Why a Job's Pods are created, in the words of upstream's metric.
fn creation_reason(job: &Job) -> &'static str {
    let status = job.status.as_ref();
    let replaces = status.is_some_and(|status| status.terminating.unwrap_or(0) > 0 || status.failed.unwrap_or(0) > 0);
    match (replaces, member::replaces_only_failed(job)) {
        (false, _) => "new",
        (true, false) => "recreate_terminating_or_failed",
        (true, true) => "recreate_failed",
    }
}

/// Counts the Pods and indexes whose end is in the status and was not in the Job as it was read.
fn count_finished(read: &Job, status: &JobStatus) {
    let more = |new: Option<i32>, old: Option<i32>| u64::try_from(new.unwrap_or(0).saturating_sub(old.unwrap_or(0))).unwrap_or(0);
    let old = read.status.clone().unwrap_or_default();
    let (succeeded, failed) = (more(status.succeeded, old.succeeded), more(status.failed, old.failed));
    let mode = member::completion_mode(read);
    for (result, count) in [("succeeded", succeeded), ("failed", failed)] {
        if count > 0 {
            metrics::JOB_PODS_FINISHED.add([mode, result], count);
        }
    }
    if member::is_indexed(read) {
        let limit = if member::limit_per_index(read).is_some() { "perIndex" } else { "global" };
        let completions = read.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(0);
        let total = |text: &Option<String>| text.as_deref().map_or(0, |text| super::indexes::Indexes::parse(text, completions).total());
        let failed = more(Some(total(&status.failed_indexes)), Some(total(&old.failed_indexes)));
        for (status, count) in [("succeeded", succeeded), ("failed", failed)] {
            if count > 0 {
                metrics::JOB_FINISHED_INDEXES.add([status, limit], count);
            }
        }
    }
}

impl Jobs {
    /// Performs the writes to Pods. Returns the counts after them, and the first failure.
    pub(super) async fn manage(&self, job: &Job, counts: &Counts, manage: Manage) -> (Managed, Result<(), Failure>) {
        let key = ObjectKey::from(&job.metadata);
        let before =
            Managed { active: number(counts.active.len()), ready: counts.ready, terminating: counts.terminating, is_settled: true };
        let after = |deletions: Deletions| {
            let (deleted, ready) = (number(deletions.deleted), number(deletions.ready));
            let (active, terminating) = (before.active.saturating_sub(deleted), before.terminating.saturating_add(deleted));
            (Managed { active, terminating, ready: before.ready.saturating_sub(ready), ..before }, deletions.result)
        };
        match manage {
            Manage::Nothing => (before, Ok(())),
            Manage::Create(wanted) => {
                self.expectations.expect_creations(&key, wanted.len());
                let (created, result) = self.control.create(job, &wanted).await;
                let reason = creation_reason(job);
                metrics::JOB_PODS_CREATION.add([reason, "succeeded"], created as u64);
                if result.is_err() {
                    metrics::JOB_PODS_CREATION.count([reason, "failed"]);
                }
                (Managed { active: before.active.saturating_add(number(created)), ..before }, result)
            }
            Manage::End => after(self.control.delete(job, &counts.active).await),
            Manage::Delete(surplus) => {
                let (given_up, failure) = self.give_up(&surplus).await;
                self.expectations.expect_deletions(&key, given_up.iter().map(|pod| meta::uid(&pod.metadata).to_owned()));
                let (managed, result) = after(self.control.delete(job, &given_up).await);
                (managed, result.and(failure))
            }
        }
    }

    /// Removes the finalizers of Pods that are deleted next: their end does not count. Returns the Pods without one, and the first failure.
    /// A Pod that has changed since it was read keeps its finalizer, because it may have ended, which counts.
    async fn give_up(&self, surplus: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Result<(), Failure>) {
        let removals = surplus.iter().map(|pod| self.remove_finalizer(pod, pod.metadata.resource_version.as_deref()));
        let (mut given_up, mut first) = (Vec::new(), Ok(()));
        for (pod, removed) in surplus.iter().zip(join_all(removals).await) {
            match removed {
                Ok(()) => given_up.push(Arc::clone(pod)),
                Err(failure) => first = first.and(Err(failure)),
            }
        }
        (given_up, first)
    }

    /// Removes the finalizer of one Pod; a Pod that is gone is no failure.
    pub(super) async fn untrack_one(&self, pod: &Pod) -> Result<(), Failure> {
        self.remove_finalizer(pod, None).await
    }

    /// Removes the finalizer of one Pod, if it is still as it was at the resource version; a Pod that is gone is no failure.
    async fn remove_finalizer(&self, pod: &Pod, resource_version: Option<&str>) -> Result<(), Failure> {
        if !member::is_tracked(pod) {
            return Ok(());
        }
        let mut patch = json!({"metadata": {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [member::FINALIZER]}});
        if let Some(version) = resource_version {
            meta::overlay(&mut patch, &json!({"metadata": {"resourceVersion": version}}));
        }
        let api = writes::api::<Pod>(&self.client, meta::namespace(&pod.metadata));
        let patched = api.patch(meta::name(&pod.metadata), &writes::patching(), &Patch::Strategic(&patch)).await;
        // A conflict says that another Pod has the name by now, that the Pod has changed since it was read, or that too many others write
        // to it. The cache will tell.
        gone_is_fine(patched.during("removing the finalizer of", format!("Pod {}", ObjectKey::from(&pod.metadata))))
    }

    /// Writes the status, removes finalizers, and writes the status with what is counted then.
    pub(super) async fn track(&self, job: &Arc<Job>, tracking: Tracking) -> Result<(), Failure> {
        let Tracking { mut status, untrack, mut tracked, end, event } = tracking;
        let read = job;
        let mut job = self.write_status(job, &status).await?;
        if let Some((reason, message)) = event {
            self.recorder.normal(&reference(job.as_ref()), reason, message.to_owned());
        }
        let removed = self.untrack(&ObjectKey::from(&job.metadata), &untrack, &mut tracked).await;
        track::count_untracked(&mut status, &tracked);
        if removed.is_err() {
            self.write_status(&job, &status).await?;
            count_finished(read, &status);
            return removed;
        }
        let ended = end.filter(|end| track::finish(&mut status, end.clone()));
        job = self.write_status(&job, &status).await?;
        count_finished(read, &status);
        if let Some(end) = ended {
            self.record_end(&job, &status, &end);
        }
        Ok(())
    }

    /// Removes finalizers, and takes the Pods without one out of `tracked`.
    async fn untrack(&self, key: &ObjectKey, pods: &[Arc<Pod>], tracked: &mut std::collections::HashSet<String>) -> Result<(), Failure> {
        self.removals.expect(key, pods.iter().map(|pod| meta::uid(&pod.metadata).to_owned()));
        let results = join_all(pods.iter().map(|pod| self.untrack_one(pod))).await;
        let mut first = Ok(());
        for (pod, result) in pods.iter().zip(results) {
            let uid = meta::uid(&pod.metadata);
            match result {
                Ok(()) => {
                    tracked.remove(uid);
                    // The cache may have shown the removal before it was expected, or the Pod may be gone.
                    let is_delivered = self
                        .pods
                        .get(&ObjectKey::from(&pod.metadata))
                        .is_none_or(|now| now.metadata.uid != pod.metadata.uid || !member::is_tracked(&now));
                    if is_delivered {
                        self.removals.observed(key, uid);
                    }
                }
                Err(failure) => {
                    self.removals.observed(key, uid);
                    first = first.and(Err(failure));
                }
            }
        }
        first
    }

    /// Writes a status that differs from the stored one, and waits until the cache has it: in an older status, Pods that were
    /// counted and have lost their finalizers are missing, and would be created again. Returns the Job as it is then.
    async fn write_status(&self, job: &Arc<Job>, status: &JobStatus) -> Result<Arc<Job>, Failure> {
        let value = |status: &JobStatus| serde_json::to_value(status).unwrap_or_default();
        let stored = job.status.as_ref().map_or_else(|| json!({}), value);
        let change = meta::merge_patch(&stored, &value(status));
        if change.as_object().is_some_and(serde_json::Map::<String, Value>::is_empty) {
            return Ok(Arc::clone(job));
        }
        let written = writes::patch_status(&self.client, job.as_ref(), change).await?;
        writes::delivered(&self.jobs, &written).await?;
        Ok(Arc::new(written))
    }

    fn record_end(&self, job: &Job, status: &JobStatus, end: &JobCondition) {
        let (reason, message) = (end.reason.clone().unwrap_or_default(), end.message.clone().unwrap_or_default());
        let mode = member::completion_mode(job);
        if end.type_ != "Complete" {
            metrics::JOBS_FINISHED.count([mode, "failed", &reason]);
            return self.recorder.warning(&reference(job), &reason, message);
        }
        metrics::JOBS_FINISHED.count([mode, "succeeded", ""]);
        let completions = job.spec.as_ref().and_then(|spec| spec.completions);
        if completions.is_some_and(|completions| status.succeeded.unwrap_or(0) > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            self.recorder.warning(&reference(job), "TooManySucceededPods", message.to_owned());
        }
        self.recorder.normal(&reference(job), "Completed", "Job completed".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use api_client::events::Recorder;
    use api_client::informer::Informer;
    use api_tasks::Tasks;
    use http::{Request, Response};
    use kube::client::Body;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::job::removals::Removals;
    use crate::pod_control::PodControl;
    use crate::work::Expectations;

    /// The controller with a server that answers every request with this code and reason.
    fn controller(code: u16, reason: &'static str) -> Jobs {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code});
        let service = tower::service_fn(move |_: Request<Body>| {
            let body = Body::from(status.to_string().into_bytes());
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("a response")))
        });
        with_client(kube::Client::new(service, "default"))
    }

    fn with_client(client: kube::Client) -> Jobs {
        let recorder = Recorder::new(client.clone(), "job-controller", None, &Tasks::new(CancellationToken::new()));
        let expectations = Arc::new(Expectations::default());
        let control = PodControl::new(client.clone(), recorder.clone(), Arc::clone(&expectations));
        let (jobs, pods, removals) = (Informer::detached(), Informer::detached(), Arc::new(Removals::default()));
        Jobs { client, control, recorder, jobs, pods, expectations, removals }
    }

    #[tokio::test]
    async fn only_a_pod_that_is_given_up_must_be_as_it_was_read() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7",
            "finalizers": [member::FINALIZER]}}))
        .expect("a Pod");
        let (sender, mut patches) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let sender = sender.clone();
            async move {
                let patch = request.into_body().collect_bytes().await.expect("a body");
                sender.send(serde_json::from_slice::<Value>(&patch).expect("JSON")).expect("received");
                let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
                Ok::<_, Infallible>(Response::builder().status(404).body(Body::from(gone.to_string().into_bytes())).expect("a response"))
            }
        });
        let controller = with_client(kube::Client::new(service, "default"));
        controller.give_up(&[Arc::new(pod.clone())]).await.1.expect("gone");
        controller.untrack_one(&pod).await.expect("gone");
        for wanted in [json!("7"), Value::Null] {
            let patch = patches.recv().await.expect("a patch");
            assert_eq!((&patch["metadata"]["resourceVersion"], &patch["metadata"]["uid"]), (&wanted, &json!("u")));
        }
    }

    #[tokio::test]
    async fn a_pod_whose_finalizer_could_not_be_removed_is_still_tracked() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "finalizers": [member::FINALIZER]}})).expect("a Pod");
        for (code, reason, is_gone) in [(404, "NotFound", true), (409, "Conflict", false), (500, "InternalError", false)] {
            let (controller, key) = (controller(code, reason), ObjectKey::new("", "j"));
            let mut tracked = std::collections::HashSet::from(["u".to_owned()]);
            let removed = controller.untrack(&key, &[Arc::new(pod.clone())], &mut tracked).await;
            assert_eq!((removed.is_ok(), tracked.is_empty()), (is_gone, is_gone), "{reason}");
            assert!(controller.removals.expected(&key).is_empty(), "{reason}: the next pass looks at the Pod again");
            let (given_up, result) = controller.give_up(&[Arc::new(pod.clone())]).await;
            assert_eq!((given_up.len(), result.is_ok()), (usize::from(is_gone), is_gone), "{reason}");
        }
    }
}
