//! PersistentVolumeClaims and PersistentVolumes: binding, protection while they are used, ephemeral volumes, and the built-in
//! provisioner.

pub mod binder;
pub mod ephemeral;
pub mod local_path;
pub mod protection;

mod available;
mod class;
mod matching;
mod object;
#[cfg(test)]
mod testing;
mod users;
