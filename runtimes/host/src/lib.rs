//! The machine as runtimes and the node agent use it: cgroups ([`cgroup`]), processes that are not our children ([`process`]),
//! files ([`files`]), what they take on a disk ([`disk`]), mounts ([`mounts`]), user namespaces ([`user_namespace`]), AppArmor
//! profiles ([`app_armor`]), children that begin in a cgroup ([`spawn`]), work on hostile bytes in a confined process ([`helper`], by the
//! steps of [`confine`]), blocking calls ([`blocking()`]), and locks by key ([`Keyed`]). The crate does not know containers' states, images
//! or Pods.

pub mod app_armor;
mod blocking;
pub mod cgroup;
pub mod confine;
pub mod disk;
pub mod files;
pub mod helper;
mod keyed;
pub mod mounts;
pub mod process;
pub mod spawn;
pub mod user_namespace;

pub use blocking::{Interrupted, blocking};
pub use keyed::Keyed;
