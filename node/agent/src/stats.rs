//! The present use of a Pod's containers, from their runtimes.

use runtimes_contract::Stats;

use crate::node::{Entry, Node};

/// What each running container of a Pod uses, by name.
pub(crate) async fn container_stats(node: &Node, entry: &Entry) -> Vec<(String, Stats)> {
    let mut all = Vec::new();
    for (name, instance) in &entry.containers {
        let Some((id, handler)) = &instance.running else { continue };
        let Some(runtime) = node.parts.by_handler(handler) else { continue };
        match runtime.stats(id).await {
            Ok(stats) => all.push((name.clone(), stats)),
            Err(error) => tracing::debug!(container = %id, %error, "no stats"),
        }
    }
    all
}
