//! What the stories in `tests/it` stand on: network namespaces of their own, whole clusters in them,
//! the real `kubectl`, and waiting on conditions with a deadline.
//!
//! A story's processes run in its namespaces and reach nothing else: the only way out of one leads to
//! a bridge without ports. What a story leaves behind is removed when its values are dropped, also after a
//! failure, and by [`Cluster::trace`] it is checked that nothing stays.

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
pub mod disk;
pub mod etcd;
#[cfg(target_arch = "x86_64")]
pub mod inject;
pub mod linear;
pub mod machine;
pub mod net;
pub mod recorder;
pub mod run;
pub mod tasks;
pub mod trace;

pub use cluster::{Cluster, Kubectl};
pub use disk::Disk;
pub use etcd::Etcd;
pub use machine::Machine;
pub use net::Net;
pub use run::{Ran, eventually, eventually_within};
