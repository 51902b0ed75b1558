//! The messages of the device plugin API (`v1beta1`), with the field numbers of upstream's `api.proto`. They are hand-written, because
//! generated code would need `protoc` on every machine that builds Skiff.

use std::collections::BTreeMap;

use prost::Message;

/// The only version of the API.
pub const VERSION: &str = "v1beta1";
/// The state of a device that containers can get.
pub const HEALTHY: &str = "Healthy";
/// The socket of the registration in the directory of device plugins.
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// The methods of the API.
pub mod path {
    /// Served by the node.
    pub const REGISTER: &str = "/v1beta1.Registration/Register";
    /// Served by plugins, as all that follow.
    pub const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
    /// A stream of lists.
    pub const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
    /// Called before devices are chosen.
    pub const PREFERRED_ALLOCATION: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
    /// Called when devices are chosen.
    pub const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
    /// Called before each start of a container.
    pub const PRE_START: &str = "/v1beta1.DevicePlugin/PreStartContainer";
}

/// `Empty`, and `PreStartContainerResponse`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

/// `DevicePluginOptions`
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DevicePluginOptions {
    /// Whether `PreStartContainer` is to be called.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// Whether `GetPreferredAllocation` can be called.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// `RegisterRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegisterRequest {
    /// The version that the plugin speaks.
    #[prost(string, tag = "1")]
    pub version: String,
    /// The name of the plugin's socket in the directory.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// The extended resource.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// Not used: as upstream, the plugin is asked for its options.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// `ListAndWatchResponse`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListAndWatchResponse {
    /// All devices that there are.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// `Device`; its topology is not read.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// The plugin's name of the device.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`], or not.
    #[prost(string, tag = "2")]
    pub health: String,
}

/// `PreStartContainerRequest`, and `ContainerAllocateRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceIds {
    /// Devices of one container.
    #[prost(string, repeated, tag = "1")]
    pub devices_ids: Vec<String>,
}

/// `PreferredAllocationRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreferredAllocationRequest {
    /// One.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// `ContainerPreferredAllocationRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerPreferredAllocationRequest {
    /// From which to choose.
    #[prost(string, repeated, tag = "1")]
    pub available_device_ids: Vec<String>,
    /// Those that must be chosen.
    #[prost(string, repeated, tag = "2")]
    pub must_include_device_ids: Vec<String>,
    /// How many to choose.
    #[prost(int32, tag = "3")]
    pub allocation_size: i32,
}

/// `PreferredAllocationResponse`, with `ContainerPreferredAllocationResponse`, which looks like [`DeviceIds`].
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreferredAllocationResponse {
    /// One for each request.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<DeviceIds>,
}

/// `AllocateRequest`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateRequest {
    /// One.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<DeviceIds>,
}

/// `AllocateResponse`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateResponse {
    /// One for each request.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// `ContainerAllocateResponse`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerAllocateResponse {
    /// Environment variables.
    #[prost(btree_map = "string, string", tag = "1")]
    pub envs: BTreeMap<String, String>,
    /// Files and directories of the node.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
    /// Devices of the node.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DeviceSpec>,
    /// Annotations for the runtime.
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
    /// Devices of the Container Device Interface.
    #[prost(message, repeated, tag = "5")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// `Mount`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Where the container sees it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the node has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether writes fail.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// `DeviceSpec`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceSpec {
    /// Where the container sees it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the node has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Letters of `rwm`.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// `CDIDevice`
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CdiDevice {
    /// For example `vendor.com/gpu=0`.
    #[prost(string, tag = "1")]
    pub name: String,
}
