//! The plugins, one file each, and their order.

use crate::chain::{Allows, Plugin};

pub mod resource_quota;

/// Every name that may be switched off: upstream's plugins, also those that have nothing to do here.
pub const NAMES: &[&str] = &["ResourceQuota"];

/// The plugins in the order in which they run.
pub fn all(_allows: Allows) -> Vec<Box<dyn Plugin>> {
    vec![Box::new(resource_quota::ResourceQuota)]
}
