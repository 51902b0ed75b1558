//! Writes a Pod's status, and deletes the Pod at its end. Each Pod has one task. Writes are sent in order; a newer status
//! replaces one that waits. A change of Ready is sent at once. A status that only says "being created" waits a moment for a
//! newer one.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::conditions::RESIZE;
use crate::layout::PodName;

/// How long a status of no interest waits for a better one.
const GATHER: Duration = Duration::from_millis(100);
/// Waits after failed writes.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What a Pod's status should be.
#[derive(Clone, Default)]
struct Wanted {
    status: Option<PodStatus>,
    urgent: bool,
    delete: bool,
}

/// The worker's end.
pub(crate) struct Writer {
    wanted: watch::Sender<Wanted>,
}

impl Writer {
    /// Begins a Pod's writer among the worker's tasks; it ends with the worker's end of it, or with the token.
    pub(crate) fn start(client: kube::Client, pod: PodName, tasks: &mut JoinSet<()>, cancel: CancellationToken) -> Self {
        let (wanted, changes) = watch::channel(Wanted::default());
        let task = Task { pods: Api::namespaced(client, &pod.namespace), pod, changes };
        tasks.spawn(api_tasks::named("node-agent/status-writer", task.run(cancel)));
        Self { wanted }
    }

    /// Wants this status; nothing happens when it is the one wanted already, unless the Pod as it was last `seen`
    /// says otherwise: somebody has written over it. (The node controller takes `Ready` from the Pods of a node
    /// that is not ready.)
    pub(crate) fn set(&self, status: PodStatus, observed: Option<&Pod>) {
        let overwritten = observed.is_some_and(|pod| !says(pod, &status));
        self.wanted.send_if_modified(|wanted| {
            let same = wanted.status.as_ref() == Some(&status);
            wanted.urgent = !is_dull(&status);
            wanted.status = Some(status);
            !same || overwritten
        });
    }

    /// Wants this status to be the last, and the Pod deleted after it.
    pub(crate) fn finish(&self, status: PodStatus) {
        self.wanted.send_replace(Wanted { status: Some(status), urgent: true, delete: true });
    }
}

/// Whether a Pod's phase and conditions are those of a status.
fn says(pod: &Pod, status: &PodStatus) -> bool {
    let present = pod.status.as_ref();
    let conditions = |status: Option<&PodStatus>| status.and_then(|status| status.conditions.clone()).unwrap_or_default();
    let found = conditions(present);
    present.and_then(|present| present.phase.as_ref()) == status.phase.as_ref()
        && conditions(Some(status)).iter().all(|own| found.iter().any(|other| (&other.type_, &other.status) == (&own.type_, &own.status)))
}

/// A Pod that has just been seen: all its containers wait for their turn and nothing has gone wrong.
fn is_dull(status: &PodStatus) -> bool {
    let lists = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let mut reasons = lists.map(|status| status.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.as_deref()));
    status.phase.as_deref() == Some("Pending") && reasons.all(|reason| matches!(reason, Some("ContainerCreating" | "PodInitializing")))
}

struct Task {
    pods: Api<Pod>,
    pod: PodName,
    changes: watch::Receiver<Wanted>,
}

/// What became of a write.
enum Written {
    Done,
    /// The Pod is not there any more: there is nothing left to write.
    Gone,
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
                    match self.write(wanted).await {
                        Written::Done => break,
                        Written::Gone => return,
                        Written::Failed => {}
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

    /// Lets a dull status wait until an interesting one comes or the moment is over.
    async fn gather(&mut self) {
        let interesting = self.changes.wait_for(|wanted| wanted.urgent);
        if tokio::time::timeout(GATHER, interesting).await.is_err() {
            tracing::trace!(pod = %self.pod, "no better status came");
        }
    }

    async fn write(&self, wanted: Wanted) -> Written {
        let Some(status) = wanted.status else { return Written::Done };
        let patch = Patch::Strategic(body(&self.pod.uid, &status));
        match self.pods.patch_status(&self.pod.name, &PatchParams::default(), &patch).await {
            Ok(_) if wanted.delete => self.delete().await,
            Ok(_) => Written::Done,
            Err(error) => self.failed("writing status", &error),
        }
    }

    async fn delete(&self) -> Written {
        let preconditions = Some(Preconditions { uid: Some(self.pod.uid.clone()), resource_version: None });
        let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        match self.pods.delete(&self.pod.name, &params).await {
            Ok(_) => Written::Done,
            Err(error) => self.failed("deleting", &error),
        }
    }

    /// 404, and 409 because the name is another Pod's now, mean that ours is gone.
    fn failed(&self, doing: &'static str, error: &kube::Error) -> Written {
        match error {
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

/// A strategic merge patch: conditions merge by type, so those of others stay, and those of a resize that is over
/// are taken out; the UID keeps it off another Pod of the same name; what is unset now is unset there. Addresses
/// would merge too, and a Pod that got another one would have two: they are replaced.
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
