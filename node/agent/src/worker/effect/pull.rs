//! Fetches the image of a container.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Container;
use node_images::{Image, ImageError};

use super::Effects;
use crate::container::{self, pull};
use crate::error::chain;
use crate::layout::PodName;
use crate::reason::Reason;
use crate::worker::learn::Report;

impl Effects {
    /// The image of a container, and the slow part of its first start.
    pub(crate) async fn pull(self, name: String) {
        let Some((_, container)) = container::find_any(&self.pod, &name) else { return };
        let result = self.fetch(&container).await;
        self.report(Report::Pulled(name, result)).await;
    }

    async fn fetch(&self, container: &Container) -> Result<Arc<Image>, Reason> {
        let reference = container.image.as_deref().unwrap_or_default();
        let policy = pull::policy(container.image_pull_policy.as_deref(), reference);
        let present = self.node.parts.images.get(reference).await.map_err(|error| image_fault(&error))?;
        let note = |reason: &'static str, message: String| self.node.note(&self.pod, Some(&container.name), false, reason, message);
        if let Some(image) = present.filter(|_| policy != node_images::PullPolicy::Always) {
            note("Pulled", format!("Container image \"{reference}\" already present on machine"));
            return Ok(Arc::new(image));
        }
        if policy == node_images::PullPolicy::Never {
            let never = ImageError::NeverPull { image: reference.to_owned() };
            return Err(image_fault(&never));
        }
        note("Pulling", format!("Pulling image \"{reference}\""));
        let requested_at = Instant::now();
        let auth = self.credentials().await;
        let _permit = self.node.pulls.acquire(&PodName::of(&self.pod).namespace).await;
        let began = Instant::now();
        let image = self.node.parts.images.pull(reference, policy, &auth).await.map_err(|error| image_fault(&error))?;
        let (took, waited) = (began.elapsed(), requested_at.elapsed());
        note(
            "Pulled",
            format!(
                "Successfully pulled image \"{reference}\" in {took:.3?} ({waited:.3?} including waiting). Image size: {} bytes.",
                image.size_bytes
            ),
        );
        Ok(Arc::new(image))
    }

    async fn credentials(&self) -> Vec<node_images::RegistryAuth> {
        let secrets = self.pod.spec.as_ref().and_then(|spec| spec.image_pull_secrets.clone()).unwrap_or_default();
        let names: Vec<String> = secrets.into_iter().map(|secret| secret.name).filter(|name| !name.is_empty()).collect();
        let namespace = PodName::of(&self.pod).namespace;
        let found = self.node.objects.pull_secrets(&namespace, &names).await;
        found.iter().flat_map(pull::credentials).collect()
    }
}

fn image_fault(error: &ImageError) -> Reason {
    let reason = match error {
        ImageError::InvalidName { .. } => "InvalidImageName",
        ImageError::NeverPull { .. } => "ErrImageNeverPull",
        _ => "ErrImagePull",
    };
    Reason::new(reason, chain(error))
}
