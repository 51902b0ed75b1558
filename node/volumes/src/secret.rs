//! `secret` volumes: the keys of a Secret as files in memory, never on the node's disk.

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Volume;

use crate::VolumeError;
use crate::kind::{Context, VolumeKind};
use crate::payload::{self, Medium, Payload};
use crate::source::{SourceError, secret_data};

/// The kind.
pub(crate) struct SecretVolume;

#[async_trait]
impl VolumeKind for SecretVolume {
    fn name(&self) -> &'static str {
        "secret"
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.secret else { return Ok(None) };
        let optional = wanted.optional.unwrap_or(false);
        let name = wanted.secret_name.as_deref().unwrap_or_default();
        let data = match context.source.secret(context.namespace(), name).await {
            Err(SourceError::NotFound { .. }) if optional => Default::default(),
            other => secret_data(other?),
        };
        let mut payload = Payload::default();
        payload.add_items("secret", &data, wanted.items.as_deref(), payload::mode(wanted.default_mode), optional)?;
        payload::write(context, self.path(&context.pod_dir, volume), Medium::Memory, payload).await?;
        Ok(None)
    }

    fn read_only(&self, _volume: &Volume) -> bool {
        true
    }
}
