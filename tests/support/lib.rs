//! Support for the stories in `tests/it` (a story is one test of a whole cluster): network namespaces, clusters in
//! them, the real `kubectl`, and waiting for conditions with a deadline.
//!
//! A story's processes run in its namespaces and reach nothing else: the default route of a namespace leads to a bridge
//! without ports. Dropping the story's values removes all that the story made, also after a failure. [`Cluster::trace`]
//! checks that nothing stays.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: a failure is a failed test"
)]

pub mod backend;
pub mod client;
pub mod cluster;
pub mod device_plugin;
pub mod disk;
pub mod etcd;
#[cfg(target_arch = "x86_64")]
pub mod inject;
pub mod kubectl;
pub mod linear;
pub mod logind;
pub mod loop_device;
pub mod machine;
pub mod net;
pub mod project;
pub mod recorder;
pub mod run;
pub mod supervisor;
pub mod tasks;
pub mod toolchain;
pub mod trace;

pub use cluster::Cluster;
pub use disk::Disk;
pub use etcd::Etcd;
pub use kubectl::Kubectl;
pub use machine::Machine;
pub use net::Net;
pub use run::{Ran, eventually, eventually_within};
