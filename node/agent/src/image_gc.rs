//! Image garbage collection: which images the node's Pods use, and the removal of the others when the disk is full.

use std::collections::BTreeSet;

use node_images::ImageError;

use crate::container::{self, ephemeral};
use crate::error::chain;
use crate::node::Node;

/// Removes unused images when the disk is fuller than the high threshold, until it is below the low one.
pub(crate) async fn collect_images(node: &Node, high: u8, low: u8) {
    match node.parts.images.collect(&|| in_use(node), high, low).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "unused images removed"),
        Err(error @ ImageError::NoCapacity) => node.note_node(true, "InvalidDiskCapacity", error.to_string()),
        Err(error) => tracing::warn!(error = chain(&error), "images not collected"),
    }
}

/// The names and ids of the images of all Pods.
fn in_use(node: &Node) -> BTreeSet<String> {
    let mut in_use = BTreeSet::new();
    for entry in node.directory.all() {
        let named = entry.pod.spec.iter().flat_map(container::all).filter_map(|(_, container)| container.image.as_deref());
        let named = named.chain(ephemeral::list(&entry.pod).filter_map(|container| container.image.as_deref()));
        let volumes = entry.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let named = named.chain(volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref()));
        // A name may refer to another image by now than the running one.
        let status = &entry.status;
        let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
        let statuses = lists.into_iter().flatten().flatten();
        in_use.extend(named.chain(statuses.map(|status| status.image_id.as_str()).filter(|id| !id.is_empty())).map(str::to_owned));
    }
    in_use
}
