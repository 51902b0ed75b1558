//! OCI containers by runc. The spec that runc gets is a pure function of the contract's
//! [`ContainerSpec`](runtimes_contract::ContainerSpec) ([`bundle`]); each container has one small shim
//! (`skiff-shim-runc`) that is its subreaper, holds its stdio and writes its log and exit record, so
//! it does not need the agent.

mod bundle;
mod errors;
mod exec;
pub mod pause;
pub mod project_quota;
mod runtime;
pub mod stage;
mod tool;
mod version;

pub use bundle::{Facts, bundle, exec_process};
pub use runtime::{Config, RuncRuntime};
