//! Ephemeral-volume controller: a Pod's generic ephemeral volume gets a claim of its own.
//!
//! Watches Pods and claims. Creates the claim `POD-VOLUME` with the Pod as its owner, so that the garbage collector removes it
//! with the Pod. Changes and deletes nothing.

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::users::{self, ClaimUsers};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// The controller; its keys are Pods.
pub struct Ephemeral {
    client: kube::Client,
    recorder: Recorder,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("ephemeral_volume"));
    let pods = context.informer::<Pod>();
    let users = ClaimUsers::follow(context, &pods);
    context.feed_from(&pods, &queue, |change: &Change<Pod>| {
        let new =
            change.new.iter().filter(|pod| change.old.is_none() && users::volumes(pod).iter().any(|volume| volume.ephemeral.is_some()));
        new.map(|pod| ObjectKey::from(&pod.metadata)).collect()
    });
    // Somebody deleted the claim of a Pod: it is made again.
    let cache = pods.clone();
    let claims = context.feed(&queue, move |change: &Change<PersistentVolumeClaim>| {
        let gone = change.old.iter().filter(|_| change.new.is_none());
        gone.flat_map(|claim| users.of(&ObjectKey::from(&claim.metadata), &cache)).map(|pod| ObjectKey::from(&pod.metadata)).collect()
    });
    let (client, recorder) = (context.client(), context.recorder("ephemeral_volume"));
    context.run(Arc::new(Ephemeral { client, recorder, pods, claims }), queue);
}

/// What a volume of a Pod needs.
#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Create(Box<PersistentVolumeClaim>),
    /// Another claim has the name; upstream's words.
    Conflict(String),
}

/// `present` is the claim of that name.
fn plan(pod: &Pod, volume: &Volume, present: Option<&PersistentVolumeClaim>) -> Action {
    let Some(source) = &volume.ephemeral else { return Action::Nothing };
    let (namespace, name) = (meta::namespace(&pod.metadata), users::ephemeral_claim_name(pod, volume));
    if let Some(claim) = present {
        let pod_name = meta::name(&pod.metadata);
        return if users::owns(pod, claim) {
            Action::Nothing
        } else {
            Action::Conflict(format!("PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)"))
        };
    }
    let template = source.volume_claim_template.clone().unwrap_or_default();
    let from = template.metadata.unwrap_or_default();
    Action::Create(Box::new(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: pod.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            owner_references: Some(vec![meta::controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec),
        status: None,
    }))
}

impl Controller for Ephemeral {
    const NAME: &'static str = "ephemeral-volume-controller";
    const WORKERS: usize = 4;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| !meta::is_deleting(&pod.metadata)) else { return Ok(Next::OnChange) };
        for volume in users::volumes(&pod) {
            let present = self.claims.get(&ObjectKey::new(key.namespace.clone(), users::ephemeral_claim_name(&pod, volume)));
            let failure = match plan(&pod, volume, present.as_deref()) {
                Action::Nothing => continue,
                Action::Conflict(problem) => Failure::Unusable { object: format!("Pod {key}"), problem },
                Action::Create(claim) => match writes::create(&self.client, claim.as_ref()).await {
                    Ok(_) => continue,
                    Err(failure) if failure.is_namespace_terminating() => return Ok(Next::OnChange),
                    Err(failure) => failure,
                },
            };
            let why = match &failure {
                Failure::Unusable { problem, .. } => problem.clone(),
                other => format!("create PVC {}: {}", users::ephemeral_claim_name(&pod, volume), other.message()),
            };
            self.recorder.warning(&reference(pod.as_ref()), "FailedBinding", format!("ephemeral volume {}: {why}", volume.name));
            return Err(failure);
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_is_made_once_and_never_taken_from_others() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "plain", "emptyDir": {}},
                {"name": "data", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }}},
            ]},
        }))
        .expect("a Pod");
        let [plain, data] = users::volumes(&pod) else { panic!("two volumes") };
        assert_eq!(plan(&pod, plain, None), Action::Nothing);
        let Action::Create(claim) = plan(&pod, data, None) else { panic!("no claim") };
        let wanted = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "web-data", "namespace": "ns", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": true, "blockOwnerDeletion": true},
            ]},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        assert_eq!(serde_json::to_value(&claim).expect("JSON"), wanted);
        let mut stored = claim.as_ref().clone();
        assert_eq!(plan(&pod, data, Some(&stored)), Action::Nothing);
        stored.metadata.owner_references = None;
        let conflict = "PVC ns/web-data was not created for pod ns/web (pod is not owner)".to_owned();
        assert_eq!(plan(&pod, data, Some(&stored)), Action::Conflict(conflict));
    }
}
