//! Writes a Pod's status, and deletes the Pod at its end. Each Pod has one task. Writes are sent in order; a newer status
//! replaces one that waits. A change of Ready is sent at once. A status that only says "being created" waits a moment for a
//! newer one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::conditions::RESIZE;
use crate::kubelet_metrics::KubeletMetrics;
use crate::layout::PodName;
use crate::static_pods::{self, Origin};

/// How long a status without news waits for a newer one.
const GATHER: Duration = Duration::from_millis(100);
/// Waits after failed writes.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The wanted status of a Pod.
#[derive(Clone, Default)]
struct Wanted {
    /// The number of changes so far.
    change: u64,
    /// When the first change came that is not written yet.
    since: Option<Instant>,
    status: Option<Arc<PodStatus>>,
    urgent: bool,
    delete: bool,
}

impl Wanted {
    /// Counts a change, if it is one. `written` is the last change that was written.
    fn change(&mut self, is_one: bool, written: u64) {
        if is_one {
            let since = self.since.filter(|_| written < self.change);
            self.since = Some(since.unwrap_or_else(Instant::now));
            self.change += 1;
        }
    }
}

/// The worker's end.
pub(crate) struct Writer {
    wanted: watch::Sender<Wanted>,
    /// The last change that was written. The task ends when the Pod is gone.
    written: watch::Receiver<u64>,
}

impl Writer {
    /// Starts a Pod's writer as one of the worker's tasks. It ends when the worker drops its handle, or with the token. `status` is
    /// the one that an earlier writer has written.
    pub(crate) fn start(
        (client, metrics): (kube::Client, Arc<KubeletMetrics>),
        pod: PodName,
        origin: Origin,
        status: Option<Arc<PodStatus>>,
        tasks: &mut JoinSet<()>,
        cancel: CancellationToken,
    ) -> Self {
        let (wanted, changes) = watch::channel(Wanted { status, ..Wanted::default() });
        let (last, written) = watch::channel(0);
        let task = Task { pods: Api::namespaced(client, &pod.namespace), pod, origin, changes, written: last, metrics };
        tasks.spawn(api_tasks::named("node-agent/status-writer", task.run(cancel)));
        Self { wanted, written }
    }

    /// The wanted status.
    pub(crate) fn status(&self) -> Option<Arc<PodStatus>> {
        self.wanted.borrow().status.clone()
    }

    /// Whether nothing is left to write.
    pub(crate) fn is_written(&self) -> bool {
        *self.written.borrow() == self.wanted.borrow().change || self.written.has_changed().is_err()
    }

    /// Waits until nothing is left to write.
    pub(crate) async fn written(&mut self) {
        let change = self.wanted.borrow().change;
        if self.written.wait_for(|written| *written == change).await.is_err() {
            tracing::trace!("the Pod is gone");
        }
    }

    /// Whether a Pod has the phase and the conditions of the wanted status.
    pub(crate) fn is_status_of(&self, pod: &Pod) -> bool {
        self.wanted.borrow().status.as_ref().is_none_or(|status| says(pod, status))
    }

    /// Sets the wanted status. Nothing is written when it is equal to the one wanted before, unless the Pod as it was last
    /// `observed` has another one: then another writer has overwritten it. (The node controller clears `Ready` on the Pods of a
    /// node that is not ready.) Nor is the first one written when the Pod has it: thousands of Pods that an agent adopts have theirs.
    pub(crate) fn set(&self, status: Arc<PodStatus>, observed: Option<&Pod>) {
        self.wanted.send_if_modified(|wanted| {
            let changes = match (&wanted.status, observed) {
                (None, Some(pod)) => !has(pod, &status),
                (None, None) => true,
                (Some(before), observed) => *before != status || observed.is_some_and(|pod| !says(pod, &status)),
            };
            wanted.change(changes, *self.written.borrow());
            wanted.urgent = !is_uneventful(&status);
            wanted.status = Some(status);
            changes
        });
    }

    /// Wants this status to be the last, and the Pod deleted after it.
    pub(crate) fn finish(&self, status: Arc<PodStatus>) {
        self.wanted.send_modify(|wanted| {
            wanted.change(true, *self.written.borrow());
            (wanted.status, wanted.urgent, wanted.delete) = (Some(status), true, true);
        });
    }
}

/// Whether a write of the status would change nothing of the Pod.
fn has(pod: &Pod, status: &PodStatus) -> bool {
    let Some(present) = &pod.status else { return false };
    let (found, wanted) = (conditions_of(present), conditions_of(status));
    let is_over = |condition: &PodCondition| RESIZE.contains(&condition.type_.as_str()) && !wanted.contains(condition);
    written_by_nodes(present) == written_by_nodes(status) && wanted.iter().all(|own| found.contains(own)) && !found.iter().any(is_over)
}

/// The fields that nodes write, but for the conditions.
fn written_by_nodes(status: &PodStatus) -> PodStatus {
    let status = status.clone();
    PodStatus {
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        host_ip: status.host_ip,
        host_ips: status.host_ips,
        pod_ip: status.pod_ip,
        pod_ips: status.pod_ips,
        start_time: status.start_time,
        init_container_statuses: status.init_container_statuses,
        container_statuses: status.container_statuses,
        ephemeral_container_statuses: status.ephemeral_container_statuses,
        qos_class: status.qos_class,
        allocated_resources: status.allocated_resources,
        resources: status.resources,
        observed_generation: status.observed_generation,
        ..PodStatus::default()
    }
}

/// Whether a Pod has the phase and the conditions of a status.
fn says(pod: &Pod, status: &PodStatus) -> bool {
    let Some(present) = &pod.status else { return false };
    let found = conditions_of(present);
    let is_found = |own: &PodCondition| found.iter().any(|other| (&other.type_, &other.status) == (&own.type_, &own.status));
    present.phase == status.phase && conditions_of(status).iter().all(is_found)
}

fn conditions_of(status: &PodStatus) -> &[PodCondition] {
    status.conditions.as_deref().unwrap_or_default()
}

/// The status of a new Pod: all its containers wait to be started and nothing has failed.
fn is_uneventful(status: &PodStatus) -> bool {
    let lists = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let mut reasons = lists.map(|status| status.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref()));
    status.phase.as_deref() == Some("Pending") && reasons.all(|reason| matches!(reason, Some("ContainerCreating" | "PodInitializing")))
}

struct Task {
    pods: Api<Pod>,
    pod: PodName,
    origin: Origin,
    changes: watch::Receiver<Wanted>,
    written: watch::Sender<u64>,
    metrics: Arc<KubeletMetrics>,
}

/// The result of a write.
enum Written {
    Done,
    /// The Pod does not exist any more: there is nothing left to write.
    Gone,
    /// The mirror Pod does not exist yet, or is another one now.
    NoMirror,
    Failed,
}

impl Task {
    async fn run(mut self, cancel: CancellationToken) {
        let work = async {
            let mut retry = RETRY;
            while self.changes.changed().await.is_ok() {
                self.gather().await;
                loop {
                    let wanted = self.changes.borrow_and_update().clone();
                    let (change, since) = (wanted.change, wanted.since);
                    // Boxed: most of the time nothing is written.
                    match Box::pin(self.write(wanted)).await {
                        Written::Done => {
                            since.into_iter().for_each(|since| self.metrics.pods.status_synced(since.elapsed()));
                            self.written.send_replace(change);
                            break;
                        }
                        Written::Gone => return,
                        Written::Failed | Written::NoMirror => {}
                    }
                    // A newer status is tried at once.
                    let newer = tokio::time::timeout(retry, self.changes.changed()).await;
                    retry = if newer.is_ok() { RETRY } else { (retry * 2).min(RETRY_MAX) };
                    if matches!(newer, Ok(Err(_))) {
                        return;
                    }
                }
                retry = RETRY;
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }

    /// Lets a status without news wait until a newer one comes or the time is over.
    async fn gather(&mut self) {
        let interesting = self.changes.wait_for(|wanted| wanted.urgent);
        if tokio::time::timeout(GATHER, interesting).await.is_err() {
            tracing::trace!(pod = %self.pod, "no better status came");
        }
    }

    async fn write(&self, wanted: Wanted) -> Written {
        let Some(status) = wanted.status else { return Written::Done };
        let uid = match self.uid().await {
            Ok(Some(uid)) => uid,
            Ok(None) => return Written::NoMirror,
            Err(error) => return self.failed("reading the mirror Pod", &error),
        };
        let patch = Patch::Strategic(body(&uid, &status));
        match self.pods.patch_status(&self.pod.name, &PatchParams::default(), &patch).await {
            Ok(_) if wanted.delete => self.delete().await,
            Ok(_) => Written::Done,
            Err(error) => self.failed("writing status", &error),
        }
    }

    /// The UID of the Pod whose status it is in the API: that of a static Pod is in its mirror Pod.
    async fn uid(&self) -> Result<Option<String>, kube::Error> {
        if self.origin == Origin::Api {
            return Ok(Some(self.pod.uid.clone()));
        }
        let mirror = self.pods.get_opt(&self.pod.name).await?;
        let mirror = mirror.filter(|mirror| static_pods::mirrored_uid(mirror) == Some(self.pod.uid.as_str()));
        Ok(mirror.and_then(|mirror| mirror.metadata.uid))
    }

    async fn delete(&self) -> Written {
        let preconditions = Some(Preconditions { uid: Some(self.pod.uid.clone()), resource_version: None });
        let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        match self.pods.delete(&self.pod.name, &params).await {
            Ok(_) => Written::Done,
            Err(error) => self.failed("deleting", &error),
        }
    }

    /// 404, and 409 because another Pod has the name now, mean that our Pod is gone.
    fn failed(&self, doing: &'static str, error: &kube::Error) -> Written {
        match error {
            // It is made again, or was replaced. The node may not even ask for a Pod that is not there.
            kube::Error::Api(status) if self.origin == Origin::File && matches!(status.code, 403 | 404 | 409) => Written::NoMirror,
            kube::Error::Api(status) if status.code == 404 => Written::Gone,
            kube::Error::Api(status)
                if status.code == 409 && (status.message.contains("Precondition") || status.message.contains("uid")) =>
            {
                Written::Gone
            }
            _ => {
                tracing::warn!(pod = %self.pod, doing, error = crate::error::chain(error), "will try again");
                Written::Failed
            }
        }
    }
}

/// A strategic merge patch. Conditions merge by type, so those of others stay; those of a resize that has ended are removed.
/// The UID prevents a write to another Pod of the same name. Fields that are unset now are removed. Addresses would merge too,
/// and a Pod with a new address would have two, so they are replaced.
fn body(uid: &str, status: &PodStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for field in ["reason", "message"] {
            fields.entry(field).or_insert(Value::Null);
        }
        for list in ["podIPs", "hostIPs"] {
            if let Some(addresses) = fields.get_mut(list).and_then(Value::as_array_mut) {
                addresses.push(json!({"$patch": "replace"}));
            }
        }
        let mut conditions = fields.get_mut("conditions").and_then(Value::as_array_mut);
        if let Some(conditions) = &mut conditions {
            let over = RESIZE.iter().filter(|name| !conditions.iter().any(|condition| condition["type"] == **name));
            let over: Vec<_> = over.map(|name| json!({"type": name, "$patch": "delete"})).collect();
            conditions.extend(over);
        }
        for condition in conditions.into_iter().flatten() {
            if let Some(condition) = condition.as_object_mut().filter(|condition| !condition.contains_key("$patch")) {
                for field in ["reason", "message"] {
                    condition.entry(field).or_insert(Value::Null);
                }
            }
        }
    }
    json!({"metadata": {"uid": uid}, "status": value})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "status": status})).expect("a Pod")
    }

    /// What a node computes.
    fn computed() -> Value {
        json!({
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0, "image": "web:1", "imageID": "sha256:0"}],
        })
    }

    /// Whether a new agent writes the computed status of a Pod that has this status.
    fn writes(present: Value) -> bool {
        let status = pod(computed()).status.expect("a status");
        let (last, written) = watch::channel(0);
        let writer = Writer { wanted: watch::Sender::default(), written };
        writer.set(Arc::new(status.clone()), Some(&pod(present)));
        let writes = !writer.is_written();
        assert_eq!(writer.status().as_deref(), Some(&status));
        // The same status again changes nothing.
        last.send_replace(writer.wanted.borrow().change);
        writer.set(Arc::new(status), None);
        assert!(writer.is_written());
        writes
    }

    #[test]
    fn a_status_that_the_pod_has_is_not_written() {
        assert!(!writes(computed()));
        let [scheduled, gate] = ["PodScheduled", "example.com/gate"].map(|name| json!({"type": name, "status": "True"}));
        let others = json!([scheduled, computed()["conditions"][0], gate]);
        let with = |field: &str, value: Value| {
            let mut present = computed();
            present[field] = value;
            present
        };
        assert!(!writes(with("conditions", others)), "conditions of others");
        assert!(!writes(with("nominatedNodeName", json!("n1"))));
        for (field, value) in [
            ("phase", json!("Pending")),
            ("reason", json!("Evicted")),
            ("podIP", json!("10.0.0.2")),
            ("containerStatuses", Value::Null),
            ("allocatedResources", json!({"cpu": "1"})),
            ("resources", json!({"limits": {"cpu": "1"}})),
            ("conditions", json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:01Z"}])),
            ("conditions", json!([computed()["conditions"][0], {"type": "PodResizeInProgress", "status": "True"}])),
        ] {
            assert!(writes(with(field, value.clone())), "{field}: {value}");
        }
        assert!(writes(Value::Null));
    }
}
