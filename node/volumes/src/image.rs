//! `image` volumes: the files of an image. The agent, which has the images, mounts them at the volume's path before a container starts.

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Volume;

use crate::VolumeError;
use crate::kind::{Context, VolumeKind};

/// The kind.
pub(crate) struct ImageVolume;

#[async_trait]
impl VolumeKind for ImageVolume {
    fn name(&self) -> &'static str {
        "image"
    }

    async fn set_up(&self, _context: &Context<'_>, _volume: &Volume) -> Result<Option<Timestamp>, VolumeError> {
        Ok(None)
    }

    fn read_only(&self, _volume: &Volume) -> bool {
        true
    }

    fn no_exec(&self) -> bool {
        true
    }

    fn ids_mapped(&self) -> bool {
        true
    }
}
