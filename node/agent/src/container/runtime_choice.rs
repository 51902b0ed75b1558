//! Chooses the runtime of a container by the content of its image, or by the Pod's RuntimeClass. If both are given and do not
//! match, the container is not started and the error names the mismatch. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use runtimes_contract::{ContentKind, Runtime};

use super::ConfigError;
use crate::parts::Parts;

/// The runtime of a container. `class` is the Pod's RuntimeClass with its handler, if it names one.
pub(crate) fn choose(parts: &Parts, class: Option<(&str, &str)>, image: &str, kind: ContentKind) -> Result<Arc<dyn Runtime>, ConfigError> {
    let Some((class, handler)) = class else {
        let found = parts.by_kind(kind).cloned();
        return found
            .ok_or_else(|| ConfigError(format!("image \"{image}\" holds {}, which no runtime of this node runs", content_name(kind))));
    };
    let runtime = parts.by_handler(handler).ok_or_else(|| ConfigError(format!("no runtime for \"{handler}\" is configured")))?;
    if runtime.runs() != kind {
        return Err(ConfigError(format!(
            "image \"{image}\" holds {}, but RuntimeClass \"{class}\" (handler \"{handler}\") runs {}: use an image that fits or leave out runtimeClassName",
            content_name(kind),
            content_name(runtime.runs()),
        )));
    }
    Ok(runtime.clone())
}

fn content_name(kind: ContentKind) -> &'static str {
    match kind {
        ContentKind::Wasm => "WebAssembly",
        ContentKind::Linux => "a Linux file system",
    }
}

/// Rejects what a WASM container does not support: its mounts cannot be shared, and it has no devices.
pub(crate) fn check_abilities(container: &Container, kind: ContentKind) -> Result<(), ConfigError> {
    let propagates = |mount: &&VolumeMount| mount.mount_propagation.as_deref().is_some_and(|propagation| propagation != "None");
    if let Some(device) = container.volume_devices.iter().flatten().next().filter(|_| kind == ContentKind::Wasm) {
        return Err(ConfigError(format!(
            "the device at {} of container \"{}\": a WebAssembly container cannot have devices; use a volume with volumeMode Filesystem",
            device.device_path, container.name
        )));
    }
    match container.volume_mounts.iter().flatten().find(propagates) {
        Some(mount) if kind == ContentKind::Wasm => Err(ConfigError(format!(
            "the mount at {} of container \"{}\" has mountPropagation {}, which a WebAssembly container cannot have",
            mount.mount_path,
            container.name,
            mount.mount_propagation.as_deref().unwrap_or_default()
        ))),
        _ => Ok(()),
    }
}
