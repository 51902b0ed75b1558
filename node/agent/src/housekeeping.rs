//! Periodic work: log rotation and image garbage collection.

use std::path::PathBuf;
use std::sync::Arc;

use runtimes_contract::ContainerId;
use tokio_util::sync::CancellationToken;

use crate::error::chain;
use crate::image_gc::ImageGc;
use crate::layout::PodName;
use crate::logs::rotate::{self, RotateError};
use crate::node::{Entry, Node};

/// Runs until cancelled.
pub(crate) async fn run(node: Arc<Node>, cancel: CancellationToken) {
    // Not at once: first the node must know all its Pods again.
    let period = node.config.housekeeping;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut image_gc = ImageGc::default();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        rotate_logs(&node).await;
        let (high, low) = node.config.image_gc_percent;
        image_gc.collect(&node, high, low).await;
    }
}

/// Rotates the logs that have grown to the limit. Thousands of logs are looked at in one call, because each blocking call wakes a thread.
async fn rotate_logs(node: &Arc<Node>) {
    let owned = node.clone();
    let Ok(due) = api_tasks::blocking("node-agent/log-sizes", move || due_logs(&owned)).await else { return };
    for Log { id, handler, path } in due {
        let Some(runtime) = node.parts.by_handler(&handler) else { continue };
        // The log of a container that has ended meanwhile keeps its name.
        let runs = |entry: &Entry| entry.containers.values().any(|instance| instance.running.as_ref().is_some_and(|(one, _)| *one == id));
        if !node.directory.any(runs) {
            continue;
        }
        if let Err(error) = rotate::rotate(runtime.as_ref(), &id, &path, node.config.log_files_max).await {
            warn(&id, &error);
        }
    }
}

/// The log of a running container.
struct Log {
    id: ContainerId,
    handler: String,
    path: PathBuf,
}

/// The logs that have grown to the limit. Blocks.
fn due_logs(node: &Node) -> Vec<Log> {
    let mut due = Vec::new();
    for entry in node.directory.all() {
        let names = PodName::of(&entry.pod);
        for (name, instance) in &entry.containers {
            let Some((id, handler)) = &instance.running else { continue };
            let path = node.layout.log(&names, name, instance.attempt);
            match rotate::is_due(&path, node.config.log_size_bytes_max) {
                Ok(true) => due.push(Log { id: id.clone(), handler: handler.clone(), path }),
                Ok(false) => {}
                Err(error) => warn(id, &error),
            }
        }
    }
    due
}

fn warn(id: &ContainerId, error: &RotateError) {
    tracing::warn!(container = %id, error = chain(error), "log not rotated");
}
