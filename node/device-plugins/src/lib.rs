//! Device plugins: programs beside the node that offer devices of the machine (GPUs, network functions, USB devices) as extended resources,
//! by upstream's API `v1beta1` over unix sockets in one directory. A plugin registers on the node's socket; the node then calls the plugin
//! on the plugin's own socket, for its list of devices, and to allocate them to containers.
//!
//! In come registrations and lists from plugins, and what Pods request from the agent. Out go the amounts for the Node object, and what a
//! container gets with its devices, as plain values. What a Pod is, and how a container gets them, is left to the agent.

mod allocations;
mod checkpoint;
mod choose;
mod directory;
mod error;
mod http2;
mod inventory;
mod manager;
mod plugin;
mod registration;
mod resource_name;
mod response;
mod serve;
pub mod wire;

pub use error::{AllocateError, CallError, DirectoryError, OpenError, PrepareError};
pub use inventory::Amount;
pub use manager::{Config, ContainerRequest, DevicePlugins, PodRequest};
pub use resource_name::is_extended_resource;
pub use response::{ContainerDevices, Device, Mount};
pub use serve::{remove, run};
