//! The built-in admission plugins, each pure over a view of what is stored.
//!
//! After a request is authenticated and authorized and its object has its defaults, the chain
//! first lets plugins change the object ([`Chain::admit`]), then, when it is final and validated,
//! lets plugins refuse it ([`Chain::validate`]). The plugins, their names, their order and their
//! words are upstream's. No plugin does I/O: what it must know of other objects comes from a
//! [`View`]. Quotas are checked last, by a function that the server calls under its write lock.

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
pub use plugins::resource_quota;
pub use request::{Operation, Request};
