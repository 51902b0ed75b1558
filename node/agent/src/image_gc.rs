//! Image garbage collection: which images the node's Pods use, and the removal of the others when the disk is full.

use std::collections::BTreeSet;
use std::time::Duration;

use node_images::ImageError;
use tokio::time::Instant;

use crate::container::{self, ephemeral};
use crate::error::chain;
use crate::node::Node;

/// The pause between two events about a file system that has no blocks: more of them would leave no room for other events of the Node.
const CAPACITY_EVENT_PAUSE: Duration = Duration::from_secs(300);

/// The periodic collection.
#[derive(Default)]
pub(crate) struct ImageGc {
    /// When the event about a file system without blocks was recorded last; `None` after a collection that succeeded.
    capacity_event_at: Option<Instant>,
}

impl ImageGc {
    /// [`collect_images`], with an event when the file system of the images says that it has no blocks.
    pub(crate) async fn collect(&mut self, node: &Node, high: u8, low: u8) {
        let error = match collect(node, high, low).await {
            Err(error @ ImageError::NoCapacity) => error,
            result => {
                self.capacity_event_at = self.capacity_event_at.filter(|_| result.is_err());
                return log(result);
            }
        };
        if self.capacity_event_at.is_none_or(|at| at.elapsed() >= CAPACITY_EVENT_PAUSE) {
            self.capacity_event_at = Some(Instant::now());
            node.note_node(true, "InvalidDiskCapacity", error.to_string());
        }
    }
}

/// Removes unused images when the disk is fuller than the high threshold, until it is below the low one.
pub(crate) async fn collect_images(node: &Node, high: u8, low: u8) {
    log(collect(node, high, low).await);
}

async fn collect(node: &Node, high: u8, low: u8) -> Result<usize, ImageError> {
    node.parts.images.collect(&|| in_use(node), high, low).await
}

fn log(result: Result<usize, ImageError>) {
    match result {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "unused images removed"),
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
