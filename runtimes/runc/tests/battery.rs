//! The battery on runc, and what is particular to OCI containers. Needs root, cgroups, runc and a
//! static busybox.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

#[path = "battery/hanging.rs"]
mod hanging;
#[path = "battery/harness.rs"]
mod harness;
#[path = "battery/oci.rs"]
mod oci;
#[path = "battery/processes.rs"]
mod processes;
#[path = "battery/project_quota.rs"]
mod project_quota;
#[path = "battery/user_namespaces.rs"]
mod user_namespaces;

runtimes_battery::battery!(harness::Runc::new());
