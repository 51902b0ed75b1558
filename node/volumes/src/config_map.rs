//! `configMap` volumes: the keys of a ConfigMap as files on the node's disk.

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Volume;

use crate::VolumeError;
use crate::kind::{Context, VolumeKind};
use crate::payload::{self, Medium, Payload};
use crate::source::{SourceError, config_map_data};

/// The kind.
pub(crate) struct ConfigMapVolume;

#[async_trait]
impl VolumeKind for ConfigMapVolume {
    fn name(&self) -> &'static str {
        "configmap"
    }

    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        let Some(wanted) = &volume.config_map else { return Ok(None) };
        let optional = wanted.optional.unwrap_or(false);
        let data = match context.source.config_map(context.namespace(), &wanted.name).await {
            Err(SourceError::NotFound { .. }) if optional => Default::default(),
            other => config_map_data(other?),
        };
        let mut payload = Payload::default();
        payload.add_items("config", &data, wanted.items.as_deref(), payload::mode(wanted.default_mode), optional)?;
        payload::write(context, self.path(&context.pod_dir, volume), Medium::Disk, payload).await?;
        Ok(None)
    }

    fn read_only(&self, _volume: &Volume) -> bool {
        true
    }
}
