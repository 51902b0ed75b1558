//! What the scheduler writes: bindings, the `PodScheduled` condition, events.

use api_client::events::Recorder;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use sched_framework::PodInfo;
use serde_json::json;

/// The result of a binding.
#[derive(Debug)]
pub(crate) enum BindingResult {
    /// The Pod is bound to the node.
    Bound,
    /// The Pod does not exist any more. The informer reports that too.
    PodGone,
    /// Another client changed the Pod at the same time, or bound it.
    Conflict,
    /// The request failed; the binding may be tried again.
    Failed(kube::Error),
}

#[derive(Clone)]
pub(crate) struct Writer {
    pub client: kube::Client,
    pub events: Recorder,
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
                self.events.normal(&reference(pod), "Scheduled", format!("Successfully assigned {} to {node}", pod.key()));
                BindingResult::Bound
            }
            Err(kube::Error::Api(status)) if status.code == 404 => BindingResult::PodGone,
            Err(kube::Error::Api(status)) if status.code == 409 => BindingResult::Conflict,
            Err(error) => BindingResult::Failed(error),
        }
    }

    /// Records in the condition `PodScheduled` and in an event why the Pod has no node.
    pub async fn unschedulable(&self, pod: &PodInfo, message: &str) {
        self.events.warning(&reference(pod), "FailedScheduling", message);
        if pod.unschedulable.as_ref().is_some_and(|(reason, written)| reason == "Unschedulable" && written == message) {
            return;
        }
        let now = api_model::meta::time(api_clock::now());
        let mut condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        if pod.unschedulable.is_none()
            && let Some(fields) = condition.as_object_mut()
        {
            fields.insert("lastTransitionTime".to_owned(), now.into());
        }
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        match self.pods(pod).patch_status(&pod.name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // The Pod is gone, or another Pod has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => tracing::warn!(pod = pod.key(), error = api_client::error::chain(&error), "condition not written"),
        }
    }

    fn pods(&self, pod: &PodInfo) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
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
