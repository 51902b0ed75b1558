//! What a plugin answers for a container: checked when it arrives, and merged over all resources of the container when it starts. Pure.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use prost::Message as _;

use crate::allocations::Allocation;
use crate::error::AllocateError;
use crate::wire::ContainerAllocateResponse;

/// The bytes of an answer: all of them are written to a file at each allocation.
const RESPONSE_LEN_MAX: usize = 256 << 10;

/// The start of annotations by which some plugins hand devices of the Container Device Interface to the runtime.
const CDI_ANNOTATIONS: &str = "cdi.k8s.io/";

/// What a container gets with its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerDevices {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Files and directories of the node.
    pub mounts: Vec<Mount>,
    /// Devices of the node.
    pub devices: Vec<Device>,
    /// Annotations for the runtime.
    pub annotations: BTreeMap<String, String>,
}

/// A file or directory of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Absolute path on the node.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    /// Whether writes fail.
    pub read_only: bool,
}

/// A device of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Absolute path on the node.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    /// Letters of `rwm`.
    pub access: String,
}

/// Whether a container can get this.
pub(crate) fn check(resource: &str, response: &ContainerAllocateResponse) -> Result<(), AllocateError> {
    let refused = |what: String| Err(AllocateError::Response { resource: resource.to_owned(), what });
    let len = response.encoded_len();
    if len > RESPONSE_LEN_MAX {
        return refused(format!("{len} bytes for a container; at most {RESPONSE_LEN_MAX} are possible"));
    }
    let cdi = response.cdi_devices.first().map(|device| &device.name);
    if let Some(name) = cdi.or_else(|| response.annotations.keys().find(|name| name.starts_with(CDI_ANNOTATIONS))) {
        return refused(format!("the CDI device {name:?}; this node has no CDI: have the plugin pass devices and mounts by their paths"));
    }
    if let Some(name) = response.envs.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return refused(format!("an environment variable named {name:?}"));
    }
    if let Some((name, _)) = response.envs.iter().find(|(_, value)| value.contains('\0')) {
        return refused(format!("a NUL in the environment variable {name:?}"));
    }
    let mounts = response.mounts.iter().map(|mount| (&mount.host_path, &mount.container_path));
    let devices = response.devices.iter().map(|device| (&device.host_path, &device.container_path));
    for (source, target) in mounts.chain(devices) {
        if let Some(bad) = [source, target].into_iter().find(|path| !is_plain(path)) {
            return refused(format!("the path {bad:?}, which is not an absolute path without \"..\""));
        }
        if Path::new(target) == Path::new("/") {
            return refused("the root of the container as the target of a mount or device".to_owned());
        }
    }
    let has_access = |access: &str| !access.is_empty() && access.chars().all(|letter| "rwm".contains(letter));
    match response.devices.iter().find(|device| !has_access(&device.permissions)) {
        Some(device) => refused(format!("the permissions {:?} for {}; they are letters of rwm", device.permissions, device.host_path)),
        None => Ok(()),
    }
}

fn is_plain(path: &str) -> bool {
    let path_of = Path::new(path);
    path_of.is_absolute() && !path.contains('\0') && !path_of.components().any(|component| component == Component::ParentDir)
}

/// What a container gets, over all of its resources. As upstream, the first of two that clash counts.
pub(crate) fn merge(resources: &BTreeMap<String, Allocation>) -> ContainerDevices {
    let mut all = ContainerDevices::default();
    for response in resources.values().map(|allocation| &allocation.response) {
        for (name, value) in &response.envs {
            all.envs.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &response.annotations {
            all.annotations.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for mount in &response.mounts {
            let target = PathBuf::from(&mount.container_path);
            if !all.mounts.iter().any(|present| present.target == target) {
                all.mounts.push(Mount { source: PathBuf::from(&mount.host_path), target, read_only: mount.read_only });
            }
        }
        for device in &response.devices {
            let target = PathBuf::from(&device.container_path);
            if !all.devices.iter().any(|present| present.target == target) {
                all.devices.push(Device { source: PathBuf::from(&device.host_path), target, access: device.permissions.clone() });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{self, CdiDevice, DeviceSpec};

    fn device(host_path: &str, container_path: &str, permissions: &str) -> DeviceSpec {
        let text = str::to_owned;
        DeviceSpec { container_path: text(container_path), host_path: text(host_path), permissions: text(permissions) }
    }

    fn mount(host_path: &str, container_path: &str) -> wire::Mount {
        wire::Mount { container_path: container_path.to_owned(), host_path: host_path.to_owned(), read_only: true }
    }

    #[test]
    fn answers_that_a_container_cannot_get_are_refused() {
        let none = ContainerAllocateResponse::default;
        let pair = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let good = ContainerAllocateResponse {
            envs: pair("A", "b=c"),
            mounts: vec![mount("/opt/lib", "/usr/lib/x")],
            devices: vec![device("/dev/a", "/dev/b", "rwm")],
            annotations: pair("example.com/a", "b"),
            cdi_devices: Vec::new(),
        };
        check("r", &good).expect("accepted");
        let cdi = CdiDevice { name: "vendor.com/gpu=0".to_owned() };
        let bad = [
            (ContainerAllocateResponse { cdi_devices: vec![cdi], ..good.clone() }, "CDI device \"vendor.com/gpu=0\""),
            (ContainerAllocateResponse { annotations: pair("cdi.k8s.io/x", "y"), ..none() }, "CDI device \"cdi.k8s.io/x\""),
            (ContainerAllocateResponse { envs: pair("A=B", ""), ..none() }, "an environment variable named"),
            (ContainerAllocateResponse { envs: pair("", ""), ..none() }, "an environment variable named"),
            (ContainerAllocateResponse { envs: pair("A", "\0"), ..none() }, "a NUL"),
            (ContainerAllocateResponse { envs: pair("A", &"x".repeat(RESPONSE_LEN_MAX)), ..none() }, "bytes for a container"),
            (ContainerAllocateResponse { mounts: vec![mount("opt", "/x")], ..none() }, "the path \"opt\""),
            (ContainerAllocateResponse { mounts: vec![mount("/opt", "/x/../../y")], ..none() }, "the path \"/x/../../y\""),
            (ContainerAllocateResponse { mounts: vec![mount("/opt", "//")], ..none() }, "the root of the container"),
            (ContainerAllocateResponse { devices: vec![device("/dev/a", "", "r")], ..none() }, "the path \"\""),
            (ContainerAllocateResponse { devices: vec![device("/dev/a", "/dev/a", "")], ..none() }, "the permissions \"\""),
            (ContainerAllocateResponse { devices: vec![device("/dev/a", "/dev/a", "rx")], ..none() }, "the permissions \"rx\""),
        ];
        for (response, wanted) in bad {
            let error = check("r", &response).expect_err(wanted).to_string();
            assert!(error.starts_with("the device plugin of r answered with ") && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn the_first_of_two_that_clash_counts() {
        let allocation = |value: &str| {
            let envs = [("A".to_owned(), value.to_owned()), (value.to_owned(), "1".to_owned())].into();
            let (mounts, devices) = (vec![mount(value, "/m")], vec![device(value, "/d", "r"), device(value, value, "w")]);
            let response = ContainerAllocateResponse { envs, mounts, devices, ..ContainerAllocateResponse::default() };
            Allocation { devices: Default::default(), response }
        };
        let merged = merge(&[("r1".to_owned(), allocation("/x")), ("r2".to_owned(), allocation("/y"))].into());
        let envs: Vec<_> = merged.envs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(envs, ["/x=1", "/y=1", "A=/x"]);
        assert_eq!(merged.mounts, [Mount { source: "/x".into(), target: "/m".into(), read_only: true }]);
        let devices: Vec<_> = merged.devices.iter().map(|device| (device.source.as_path(), device.target.as_path())).collect();
        let path = |text: &'static str| Path::new(text);
        assert_eq!(devices, [(path("/x"), path("/d")), (path("/x"), path("/x")), (path("/y"), path("/y"))]);
    }
}
