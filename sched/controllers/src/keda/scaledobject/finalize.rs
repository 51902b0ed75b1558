//! The end of a ScaledObject: its marks on Services are removed, its autoscaler is deleted, and its target gets back its replicas if the user wants that.

use api_client::events::reference;
use api_client::informer::ObjectKey;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use serde_json::json;

use super::{Draft, ScaledObjects};
use crate::failure::{Failure, gone_is_fine};
use crate::keda::FINALIZER;
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::ScaledObjectSpec;
use crate::keda::status::ScaledObjectStatus;
use crate::podautoscaler::target::{NoScale, Target};
use crate::{meta, writes};

impl ScaledObjects {
    /// Restores the target, and removes the finalizer.
    pub async fn finalize(&self, key: &ObjectKey, object: &ScaledObject) -> Result<(), Failure> {
        self.forget(key);
        if !meta::has_finalizer(&object.metadata, FINALIZER) {
            return Ok(());
        }
        self.mark_services(key, &[]).await?;
        let status = Draft::new(&object.status).status;
        // Upstream leaves the autoscaler to the garbage collector. Until then, it would scale the target that was restored.
        self.delete_autoscaler(&ObjectKey::new(&key.namespace, &status.hpa_name), object).await?;
        if let Err(failure) = self.restore(key, object, status).await {
            // As upstream: the object must not stay because its target cannot be scaled.
            tracing::warn!(scaled_object = %key, error = failure.chain(), "target not restored");
            let message = format!("Failed to restore scaleTarget's replica count back to the original: {}", failure.message());
            self.recorder.warning(&reference(object), "ScaledObjectUpdateFailed", message);
        }
        let rest: Vec<&String> = object.metadata.finalizers.iter().flatten().filter(|name| *name != FINALIZER).collect();
        let removed = writes::patch(&self.client, object, json!({"metadata": {"finalizers": meta::list_or_null(&rest)}})).await;
        gone_is_fine(removed)?;
        self.recorder.warning(&reference(object), "ScaledObjectDeleted", "ScaledObject was deleted");
        Ok(())
    }

    /// As upstream, a target that is gone, or that was never scaled, needs nothing.
    async fn restore(&self, key: &ObjectKey, object: &ScaledObject, status: ScaledObjectStatus) -> Result<(), Failure> {
        let spec: ScaledObjectSpec = serde_json::from_value(object.spec.clone()).unwrap_or_default();
        let wanted = spec.advanced.is_some_and(|advanced| advanced.restore_to_original_replica_count);
        let (true, Some(kind), Some(replicas)) = (wanted, status.scale_target_gvkr, status.original_replica_count) else { return Ok(()) };
        let name = spec.scale_target_ref.name;
        let reference = CrossVersionObjectReference { api_version: Some(kind.api_version()), kind: kind.kind, name };
        match Target::get(&self.client, &self.resources, &key.namespace, &reference).await {
            Ok(mut target) if target.replicas().spec != replicas => gone_is_fine(target.rescale(replicas).await),
            Ok(_) => Ok(()),
            Err(NoScale::Request(failure)) => gone_is_fine::<()>(Err(failure)),
            Err(NoScale::Version(_) | NoScale::NoKind { .. }) => Ok(()),
        }
    }
}
