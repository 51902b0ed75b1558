//! Fetches the image of a container, and the images that are its volumes.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Container;
use node_images::{Image, ImageError};
use runtimes_contract::UserNamespace;

use super::Effects;
use crate::container::{self, pull};
use crate::error::chain;
use crate::layout::{Layout, PodName};
use crate::reason::Reason;
use crate::worker::learn::Report;

impl Effects {
    /// The image of a container, after those of the volumes that it mounts.
    /// `user` is the Pod's user namespace.
    pub(crate) async fn pull(self, name: String, user: Option<UserNamespace>) {
        let Some((role, container)) = container::find_any(&self.pod, &name) else { return };
        let result = match self.mount_images(&container, user.as_ref()).await {
            Ok(()) => {
                let reference = container.image.as_deref().unwrap_or_default();
                self.fetch(reference, container.image_pull_policy.as_deref(), Some(&container.name)).await
            }
            Err(reason) => Err(reason),
        };
        if let Err(fault) = &result {
            self.node.kubelet_metrics.pods.container_started(role, Err(fault.reason));
        }
        self.report(Report::Pulled(name, result)).await;
    }

    /// Mounts the images that are volumes of the container.
    async fn mount_images(&self, container: &Container, user: Option<&UserNamespace>) -> Result<(), Reason> {
        for (volume, at) in self.node.volumes.images(&self.pod, container) {
            let Some(source) = &volume.image else { continue };
            let reference = source.reference.as_deref().unwrap_or_default();
            let image = self.fetch(reference, source.pull_policy.as_deref(), None).await?;
            let key = Layout::volumes_key(&PodName::of(&self.pod).uid);
            let mounted = self.node.parts.images.mount_files(&image, &key, &at, user).await;
            mounted.map_err(|error| Reason::new("CreateContainerError", format!("image volume {:?}: {}", volume.name, chain(&error))))?;
        }
        Ok(())
    }

    /// An image in the store. Events are about a container, or about the whole Pod.
    async fn fetch(&self, reference: &str, declared: Option<&str>, container: Option<&str>) -> Result<Arc<Image>, Reason> {
        let policy = pull::policy(declared, reference);
        let present = self.node.parts.images.get(reference).await.map_err(|error| image_fault(&error))?;
        let note = |reason: &'static str, message: String| self.node.note(&self.pod, container, false, reason, message);
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
        self.node.kubelet_metrics.pulled(image.size_bytes, waited);
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
