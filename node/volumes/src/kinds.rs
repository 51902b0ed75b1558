//! The table of volume kinds: a new kind is one file and one line here.

use k8s_openapi::api::core::v1::Volume;

use crate::kind::VolumeKind;
use crate::{VolumeError, config_map, downward, empty_dir, host_path, image, persistent, projected, secret};

/// The kind of a volume.
pub(crate) fn kind_of_volume(volume: &Volume) -> Result<&'static dyn VolumeKind, VolumeError> {
    if volume.config_map.is_some() {
        Ok(&config_map::ConfigMapVolume)
    } else if volume.secret.is_some() {
        Ok(&secret::SecretVolume)
    } else if volume.projected.is_some() {
        Ok(&projected::ProjectedVolume)
    } else if volume.downward_api.is_some() {
        Ok(&downward::DownwardVolume)
    } else if volume.host_path.is_some() {
        Ok(&host_path::HostPathVolume)
    } else if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        Ok(&persistent::PersistentVolumeKind)
    } else if volume.image.is_some() {
        Ok(&image::ImageVolume)
    } else if volume.empty_dir.is_some() {
        Ok(&empty_dir::EmptyDirVolume)
    } else {
        Err(VolumeError::Unsupported(unsupported_name(volume)).in_volume(&volume.name))
    }
}

/// The field with the volume's source, for the message.
fn unsupported_name(volume: &Volume) -> String {
    let fields = serde_json::to_value(volume).ok();
    let named = fields.as_ref().and_then(|value| value.as_object()).and_then(|map| map.keys().find(|key| *key != "name"));
    named.cloned().unwrap_or_else(|| "unknown".to_owned())
}
