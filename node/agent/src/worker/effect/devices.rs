//! What a container gets with its devices of plugins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use node_device_plugins::ContainerDevices;
use runtimes_contract::{ContainerSpec, ContentKind, Device, Mount};

use super::Effects;
use super::start::unmade;
use crate::container::Role;
use crate::device_plugins;
use crate::record::PodSandbox;
use crate::worker::learn::StartFault;

impl Effects {
    /// Gets the devices of a container ready, and returns what it gets. A Pod that ends does not wait for a plugin.
    pub(super) async fn plugin_devices(
        &self,
        role: Role,
        container: &Container,
        kind: ContentKind,
        sandbox: &PodSandbox,
    ) -> Result<ContainerDevices, StartFault> {
        let request = device_plugins::container_request(role, container);
        if request.limits.is_empty() {
            return Ok(ContainerDevices::default());
        }
        let pod = device_plugins::pod_request(&self.pod);
        let preparing = self.node.device_plugins.prepare(&pod, &request);
        let prepared = self.ending.run_until_cancelled(preparing).await.ok_or(StartFault::Ending)?;
        let devices = prepared.map_err(|error| unmade("CreateContainerConfigError", error.to_string()))?;
        check(&devices, &container.name, kind, sandbox.sandbox.user.is_some()).map_err(|why| unmade("CreateContainerConfigError", why))?;
        for mount in &devices.mounts {
            if let Err(error) = tokio::fs::metadata(&mount.source).await {
                let (source, target) = (mount.source.display(), mount.target.display());
                return Err(unmade("CreateContainerError", format!("a device plugin mounts {source} at {target}: {error}")));
            }
        }
        Ok(devices)
    }
}

/// Whether this container can have devices.
fn check(devices: &ContainerDevices, name: &str, kind: ContentKind, has_user_namespace: bool) -> Result<(), String> {
    let Some(device) = devices.devices.first() else { return Ok(()) };
    let path = device.target.display();
    if kind == ContentKind::Wasm {
        return Err(format!("the device {path} of container \"{name}\": a WebAssembly container cannot have devices"));
    }
    if has_user_namespace {
        return Err(format!("the device {path} of container \"{name}\": a Pod with hostUsers: false cannot have devices"));
    }
    Ok(())
}

/// The container's own variables count before those of its devices, as upstream.
pub(super) fn under(mut variables: BTreeMap<String, String>, devices: &ContainerDevices) -> BTreeMap<String, String> {
    for (name, value) in &devices.envs {
        variables.entry(name.clone()).or_insert_with(|| value.clone());
    }
    variables
}

/// The container's own mounts count before those of its devices.
pub(super) fn with_mounts(mut mounts: Vec<Mount>, devices: &ContainerDevices) -> Vec<Mount> {
    for mount in &devices.mounts {
        if !mounts.iter().any(|own| own.target == mount.target) {
            mounts.push(Mount::new(&mount.source, &mount.target, mount.read_only));
        }
    }
    mounts
}

/// Adds the devices and the annotations to a container that is created next. Its block volumes count before its devices.
pub(super) fn add(spec: &mut ContainerSpec, devices: ContainerDevices) {
    for device in devices.devices {
        if !spec.devices.iter().any(|own| own.target == device.target) {
            spec.devices.push(Device { source: device.source, target: device.target, access: device.access });
        }
    }
    spec.annotations = devices.annotations;
}
