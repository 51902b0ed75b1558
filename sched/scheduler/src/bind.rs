//! What the scheduler writes: bindings, the `PodScheduled` condition, nominations, the end of preempted Pods, events.

use std::collections::HashMap;
use std::sync::Arc;

use api_client::error::chain;
use api_client::events::Recorder;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use sched_framework::{POD_GROUP_INITIALLY_SCHEDULED, PodGroupInfo, PodInfo};
use serde_json::{Map, Value, json};

/// How often a Pod is read after a binding without an answer.
const PRESENCE_READS: usize = 3;

/// The result of a binding.
#[derive(Debug)]
pub(crate) enum BindingResult {
    /// The Pod is bound to the node.
    Bound,
    /// The Pod does not exist any more. The informer reports that too.
    PodGone,
    /// The request failed, or another client changed the Pod at the same time. The binding may be tried again.
    Failed(kube::Error),
    /// An extender did not bind the Pod, for this reason. The binding may be tried again.
    Refused(String),
}

/// Where a Pod is.
#[derive(Debug)]
pub(crate) enum Presence {
    /// Bound to this node.
    Bound(String),
    /// It has no node yet.
    Waiting,
    /// The Pod does not exist any more.
    Gone,
}

/// Why a Pod has no node: the reason of its condition `PodScheduled`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// No node is feasible.
    Unschedulable,
    /// The decision could not be written.
    SchedulerError,
}

/// For whom Pods are preempted.
pub(crate) struct Preemptor {
    scheduler_name: String,
    /// Its kind in upstream's messages.
    kind: &'static str,
    uid: String,
    /// The node on which room is made.
    node: String,
}

impl Preemptor {
    /// A Pod that is nominated to the node.
    pub fn pod(pod: &PodInfo, node: &str) -> Self {
        Self { scheduler_name: pod.scheduler_name.clone(), kind: "pod", uid: pod.uid.clone(), node: node.to_owned() }
    }

    /// A PodGroup, for which room is made anywhere in the cluster, as upstream's events say.
    pub fn group(group: &PodGroupInfo, scheduler_name: &str) -> Self {
        Self { scheduler_name: scheduler_name.to_owned(), kind: "podgroup", uid: group.uid.clone(), node: "cluster".to_owned() }
    }
}

/// A condition of a PodGroup, to be written.
pub(crate) struct GroupCondition {
    namespace: String,
    name: String,
    patch: Value,
}

impl GroupCondition {
    /// Whether the group of that `namespace/name` was scheduled, and why not.
    pub fn new(key: &str, group: &PodGroupInfo, status: &'static str, reason: &'static str, message: &str) -> Self {
        let before = group.scheduled.as_ref().filter(|before| before.status == status);
        let since = before.map_or_else(api_clock::now, |before| before.last_transition_time.0);
        let mut condition = json!({"type": POD_GROUP_INITIALLY_SCHEDULED, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": api_model::meta::time(since)});
        if let (Some(generation), Some(fields)) = (group.generation, condition.as_object_mut()) {
            fields.insert("observedGeneration".to_owned(), generation.into());
        }
        // The UID is a precondition: another group may have the name by now.
        let patch = json!({"metadata": {"uid": group.uid}, "status": {"conditions": [condition]}});
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        Self { namespace: namespace.to_owned(), name: name.to_owned(), patch }
    }
}

#[derive(Clone)]
pub(crate) struct Writer {
    pub client: kube::Client,
    /// The recorders of the profiles, by `schedulerName`: it is the source of the events.
    pub recorders: Arc<HashMap<String, Recorder>>,
}

impl Writer {
    /// Binds the Pod to the node.
    pub async fn bind(&self, pod: &PodInfo, node: &str) -> BindingResult {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let answer: Result<serde_json::Value, _> =
            self.pods(pod).create_subresource("binding", &pod.name, &PostParams::default(), &binding).await;
        match answer {
            Ok(_) => {
                self.bound(pod, node);
                BindingResult::Bound
            }
            Err(kube::Error::Api(status)) if status.code == 404 => BindingResult::PodGone,
            Err(kube::Error::Api(status)) if status.code < 500 => BindingResult::Failed(kube::Error::Api(status)),
            Err(error) => self.unanswered(pod, node, error).await,
        }
    }

    /// The result of a binding without an answer: it may have been written, and the room of the Pod must not be given to another one then.
    async fn unanswered(&self, pod: &PodInfo, node: &str, error: kube::Error) -> BindingResult {
        for _ in 0..PRESENCE_READS {
            match self.presence(pod).await {
                Ok(Presence::Bound(on)) if on == node => {
                    self.bound(pod, node);
                    return BindingResult::Bound;
                }
                Ok(Presence::Gone) => return BindingResult::PodGone,
                Ok(_) => break,
                Err(error) => tracing::debug!(pod = pod.key(), error = chain(&error), "Pod not read"),
            }
        }
        BindingResult::Failed(error)
    }

    /// Records in an event that the Pod is bound to the node.
    pub fn bound(&self, pod: &PodInfo, node: &str) {
        if let Some(events) = self.events(pod) {
            events.normal(&reference(pod), "Scheduled", format!("Successfully assigned {} to {node}", pod.key()));
        }
    }

    /// Reads where the Pod is.
    pub async fn presence(&self, pod: &PodInfo) -> Result<Presence, kube::Error> {
        let present = self.pods(pod).get_opt(&pod.name).await?.filter(|present| present.metadata.uid.as_deref() == Some(pod.uid.as_str()));
        let Some(present) = present else { return Ok(Presence::Gone) };
        let node = present.spec.and_then(|spec| spec.node_name).filter(|node| !node.is_empty());
        Ok(node.map_or(Presence::Waiting, Presence::Bound))
    }

    /// Records in the condition `PodScheduled` and in an event why the Pod has no node. `nominated` is the new value of
    /// `nominatedNodeName`, if it changes; an empty one removes the field.
    pub async fn not_scheduled(&self, pod: &PodInfo, reason: Reason, message: &str, nominated: Option<&str>) {
        if let Some(events) = self.events(pod) {
            events.warning(&reference(pod), "FailedScheduling", message);
        }
        let (mut status, reason) = (Map::new(), format!("{reason:?}"));
        if !pod.unschedulable.as_ref().is_some_and(|(before, written)| *before == reason && written == message) {
            let now = api_model::meta::time(api_clock::now());
            let mut condition = json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message,
                "observedGeneration": pod.generation});
            if pod.unschedulable.is_none()
                && let Some(fields) = condition.as_object_mut()
            {
                fields.insert("lastTransitionTime".to_owned(), now.into());
            }
            status.insert("conditions".to_owned(), json!([condition]));
        }
        if let Some(node) = nominated.filter(|node| *node != pod.nominated_node_name) {
            status.insert("nominatedNodeName".to_owned(), if node.is_empty() { Value::Null } else { node.into() });
        }
        if !status.is_empty() {
            self.patch_status(pod, status.into()).await;
        }
    }

    /// Writes a condition of a PodGroup. Returns false after a failure, which is logged; a group that is gone is none.
    pub async fn group_condition(&self, GroupCondition { namespace, name, patch }: &GroupCondition) -> bool {
        let groups: Api<PodGroup> = Api::namespaced(self.client.clone(), namespace);
        match groups.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if is_gone(&status) => true,
            Err(error) => {
                tracing::warn!(group = name, namespace, error = api_client::error::chain(&error), "condition not written");
                false
            }
        }
    }

    /// Nominates the Pod to the node. A failure is logged.
    pub async fn nominate(&self, pod: &PodInfo, node: &str) {
        if pod.nominated_node_name != node {
            self.patch_status(pod, json!({"nominatedNodeName": node})).await;
        }
    }

    /// Removes the Pod's `nominatedNodeName`.
    pub async fn end_nomination(&self, pod: &PodInfo) {
        self.patch_status(pod, json!({"nominatedNodeName": null})).await;
    }

    async fn patch_status(&self, pod: &PodInfo, status: Value) {
        // The UID is a precondition: another Pod may have the name by now.
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid}, "status": status}));
        match self.pods(pod).patch_status(&pod.name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if is_gone(&status) => {}
            Err(error) => tracing::warn!(pod = pod.key(), error = api_client::error::chain(&error), "status not written"),
        }
    }

    /// Deletes a Pod to make room for `preemptor`. The Pod's condition `DisruptionTarget` says so before the end.
    ///
    /// # Errors
    /// When the Pod may still be there. A Pod that is gone is none.
    pub async fn preempt(&self, victim: &PodInfo, preemptor: &Preemptor) -> Result<(), kube::Error> {
        if victim.deleting {
            return Ok(());
        }
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": PodInfo::PREEMPTED,
            "message": format!("{}: preempting to accommodate a higher priority {}", preemptor.scheduler_name, preemptor.kind),
            "observedGeneration": victim.generation,
            "lastTransitionTime": api_model::meta::time(api_clock::now()),
        });
        let patch = Patch::Strategic(json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}));
        let preconditions = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
        let options = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let pods = self.pods(victim);
        let gone_is_fine = |answer: Result<(), kube::Error>| match answer {
            Err(kube::Error::Api(status)) if is_gone(&status) => Ok(false),
            answer => answer.map(|()| true),
        };
        let is_there = gone_is_fine(pods.patch_status(&victim.name, &PatchParams::default(), &patch).await.map(drop))?;
        if is_there && gone_is_fine(pods.delete(&victim.name, &options).await.map(drop))? {
            self.preempted(victim, preemptor);
        }
        Ok(())
    }

    /// Records in an event that a Pod lost its node to `preemptor`.
    pub fn preempted(&self, victim: &PodInfo, Preemptor { scheduler_name, kind, uid, node }: &Preemptor) {
        if let Some(events) = self.recorders.get(scheduler_name) {
            events.normal(&reference(victim), "Preempted", format!("Preempted by {kind} {uid} on node {node}"));
        }
    }

    /// Records that the Pod waits on its node for devices that are prepared.
    pub fn awaits_devices(&self, pod: &PodInfo, node: &str) {
        if let Some(events) = self.events(pod) {
            let message = format!("waiting for binding conditions for device on node {node}");
            events.normal(&reference(pod), "BindingConditionsPending", message);
        }
    }

    /// The recorder of the profile that schedules the Pod.
    fn events(&self, pod: &PodInfo) -> Option<&Recorder> {
        self.recorders.get(&pod.scheduler_name)
    }

    fn pods(&self, pod: &PodInfo) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
}

/// Whether the answer says that the object is gone, or that another one has its name. A conflict for another reason than the UID leaves the
/// object as it is.
fn is_gone(status: &kube::core::Status) -> bool {
    status.code == 404 || status.code == 409 && status.message.contains("UID")
}

fn reference(pod: &PodInfo) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name.clone()),
        namespace: Some(pod.namespace.clone()),
        uid: Some(pod.uid.clone()),
        resource_version: Some(pod.resource_version.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::plugins::fixtures::pod;

    /// The answer to a read of the Pod.
    #[derive(Clone, Copy)]
    enum Read {
        Broken,
        On(&'static str),
        Gone,
    }

    /// A writer whose bindings get no answer.
    fn writer(reads: &[Read]) -> Writer {
        let reads = Arc::new(Mutex::new(reads.iter().copied().collect::<VecDeque<_>>()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let reads = Arc::clone(&reads);
            async move {
                let read = if request.method() == http::Method::GET { reads.lock().pop_front() } else { None };
                let (code, body) = match read {
                    None | Some(Read::Broken) => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                    Some(Read::Gone) => {
                        (404, json!({"kind": "Status", "status": "Failure", "message": "", "reason": "NotFound", "code": 404}))
                    }
                    Some(Read::On(node)) => {
                        (200, json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [], "nodeName": node}}))
                    }
                };
                let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok(response.expect("a response"))
            }
        });
        Writer { client: kube::Client::new(service, "default"), recorders: Arc::default() }
    }

    #[tokio::test]
    async fn a_binding_without_an_answer_is_read() {
        for (reads, expected) in [
            (&[Read::On("n")] as &[Read], "bound"),
            (&[Read::Broken, Read::Broken, Read::On("n")], "bound"),
            (&[Read::Broken; 3], "failed"),
            (&[Read::On("other")], "failed"),
            (&[Read::On("")], "failed"),
            (&[Read::Gone], "gone"),
        ] {
            let result = writer(reads).bind(&pod("p", json!({})), "n").await;
            let name = match result {
                BindingResult::Bound => "bound",
                BindingResult::PodGone => "gone",
                BindingResult::Failed(_) => "failed",
                BindingResult::Refused(_) => "refused",
            };
            assert_eq!(name, expected, "{} reads", reads.len());
        }
    }
}
