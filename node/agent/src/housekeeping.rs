//! Periodic work: log rotation and image garbage collection.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::error::chain;
use crate::image_gc::collect_images;
use crate::layout::PodName;
use crate::logs::rotate;
use crate::node::Node;

/// Runs until cancelled.
pub(crate) async fn run(node: Arc<Node>, cancel: CancellationToken) {
    // Not at once: first the node must know all its Pods again.
    let period = node.config.housekeeping;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        rotate_logs(&node).await;
        let (high, low) = node.config.image_gc_percent;
        collect_images(&node, high, low).await;
    }
}

async fn rotate_logs(node: &Node) {
    for entry in node.directory.all() {
        let names = PodName::of(&entry.pod);
        for (name, instance) in &entry.containers {
            let Some((id, handler)) = &instance.running else { continue };
            let Some(runtime) = node.parts.by_handler(handler) else { continue };
            let log = node.layout.log(&names, name, instance.attempt);
            let (size, files) = (node.config.log_size_bytes_max, node.config.log_files_max);
            if let Err(error) = rotate::rotate(runtime.as_ref(), id, &log, size, files).await {
                tracing::warn!(container = %id, error = chain(&error), "log not rotated");
            }
        }
    }
}
