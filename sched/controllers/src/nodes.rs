//! What controllers ask of a Node, and what of it is kept in the cache.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

use crate::work::Cached;

impl Cached for Node {
    /// Images and machine facts are long and of no use here.
    fn trim(&mut self) {
        if let Some(status) = &mut self.status {
            status.images = None;
            status.volumes_attached = None;
            status.volumes_in_use = None;
        }
    }
}

/// A condition of the Node.
pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}
