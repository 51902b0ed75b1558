//! Chooses the runtime of a container by the content of its image, or by the Pod's RuntimeClass. If both are given and do not
//! match, the container is not started and the error names the mismatch. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
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

/// The capability that a WASM container needs not: its runtime opens its ports.
const BINDS_LOW_PORTS: &str = "NET_BIND_SERVICE";

/// Rejects what a WASM container does not support: its mounts cannot be shared, it has no devices, no memory maps, and no privileges.
pub(crate) fn check_abilities(pod: &Pod, container: &Container, kind: ContentKind) -> Result<(), ConfigError> {
    if kind != ContentKind::Wasm {
        return Ok(());
    }
    if let Some(privilege) = privilege(container) {
        return Err(ConfigError(format!(
            "container \"{}\" has securityContext.{privilege}: a WebAssembly container makes no system calls, so that it cannot have privileges",
            container.name
        )));
    }
    let propagates = |mount: &&VolumeMount| mount.mount_propagation.as_deref().is_some_and(|propagation| propagation != "None");
    if let Some(device) = container.volume_devices.iter().flatten().next() {
        return Err(ConfigError(format!(
            "the device at {} of container \"{}\": a WebAssembly container cannot have devices; use a volume with volumeMode Filesystem",
            device.device_path, container.name
        )));
    }
    if let Some(mount) = container.volume_mounts.iter().flatten().find(|mount| writes_huge_pages(pod, mount)) {
        return Err(ConfigError(format!(
            "the mount at {} of container \"{}\" is of huge pages, which only a memory map can write and a WebAssembly container can only \
             read; set readOnly",
            mount.mount_path, container.name
        )));
    }
    match container.volume_mounts.iter().flatten().find(propagates) {
        Some(mount) => Err(ConfigError(format!(
            "the mount at {} of container \"{}\" has mountPropagation {}, which a WebAssembly container cannot have",
            mount.mount_path,
            container.name,
            mount.mount_propagation.as_deref().unwrap_or_default()
        ))),
        None => Ok(()),
    }
}

/// Whether a container may write to a volume of huge pages. The kernel has no write(2) for their files.
fn writes_huge_pages(pod: &Pod, mount: &VolumeMount) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    mount.read_only != Some(true) && volumes.any(|volume| volume.name == mount.name && node_volumes::is_of_huge_pages(volume))
}

/// The first setting by which a container wants more than others may.
fn privilege(container: &Container) -> Option<String> {
    let context = container.security_context.as_ref()?;
    let added = context.capabilities.as_ref().and_then(|capabilities| capabilities.add.as_ref());
    let added = added.into_iter().flatten().find(|name| name.trim_start_matches("CAP_") != BINDS_LOW_PORTS);
    let privileged = (context.privileged == Some(true)).then(|| "privileged".to_owned());
    let proc_mount = || context.proc_mount.clone().filter(|mount| mount != "Default").map(|mount| format!("procMount {mount}"));
    privileged.or_else(|| added.map(|name| format!("capabilities.add {name}"))).or_else(proc_mount)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_wasm_container_cannot_have_privileges() {
        let refused = |context: Value, kind| {
            let container = serde_json::from_value(json!({"name": "c", "securityContext": context})).expect("a container");
            check_abilities(&Pod::default(), &container, kind).err().map(|error| error.0)
        };
        for (context, named) in [
            (json!({"privileged": true}), Some("securityContext.privileged")),
            (json!({"capabilities": {"add": ["NET_BIND_SERVICE", "SYS_ADMIN"]}}), Some("securityContext.capabilities.add SYS_ADMIN")),
            (json!({"procMount": "Unmasked"}), Some("securityContext.procMount Unmasked")),
            (json!({"privileged": false, "procMount": "Default"}), None),
            (json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "allowPrivilegeEscalation": false}), None),
        ] {
            let why = refused(context.clone(), ContentKind::Wasm);
            assert_eq!(why.is_some(), named.is_some(), "{context}");
            assert!(named.is_none_or(|named| why.is_some_and(|why| why.contains(named))), "{context}");
            assert_eq!(refused(context, ContentKind::Linux), None);
        }
    }

    #[test]
    fn a_wasm_container_reads_huge_pages_and_does_not_write_them() {
        let refused = |medium: &str, mount: Value, kind| {
            let container = json!({"name": "c", "volumeMounts": [mount]});
            let volumes = json!([{"name": "v", "emptyDir": {"medium": medium}}, {"name": "w", "emptyDir": {}}]);
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [container], "volumes": volumes}})).expect("a Pod");
            check_abilities(&pod, &pod.spec.as_ref().expect("a spec").containers[0], kind).err().map(|error| error.0)
        };
        let mount = |name: &str, read_only: bool| json!({"name": name, "mountPath": "/m", "readOnly": read_only});
        for medium in ["HugePages", "HugePages-1Gi"] {
            let why = refused(medium, mount("v", false), ContentKind::Wasm);
            assert!(why.is_some_and(|why| why.starts_with("the mount at /m of container \"c\" is of huge pages, ")), "{medium}");
            assert_eq!(refused(medium, mount("v", true), ContentKind::Wasm), None);
            assert_eq!(refused(medium, mount("w", false), ContentKind::Wasm), None);
            assert_eq!(refused(medium, mount("v", false), ContentKind::Linux), None);
        }
        assert_eq!(refused("Memory", mount("v", false), ContentKind::Wasm), None);
    }
}
