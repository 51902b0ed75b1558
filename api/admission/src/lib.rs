//! Admission: the built-in plugins, webhooks and policies, as pure functions of a view of the stored objects.
//!
//! After a request is authenticated and authorized and its object has its defaults, the chain calls the mutating step of
//! the plugins ([`Chain::admit`]). When the object is final and validated, it calls their validating step
//! ([`Chain::validate`]). The plugins, their names, their order and their messages are upstream's. No plugin does I/O: it
//! reads other objects from a [`View`]. Quotas are checked last, by a function that the server calls under its write
//! lock.

mod amount;
mod chain;
mod denied;
mod json;
mod matching;
mod plugin;
pub mod plugins;
mod pods;
pub mod policy;
mod request;
pub mod webhook;

#[cfg(test)]
mod testing;

pub use chain::{Chain, UnknownPlugin, known_plugin};
pub use denied::{Awaited, Cause, Denied};
pub use plugin::{Allows, Plugin};
pub use plugins::priority::system_priority;
pub use plugins::resource_quota;
pub use pods::api_object_reference;
pub use request::{Operation, Request};
