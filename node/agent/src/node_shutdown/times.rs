//! When the last shutdown of the node began and ended: a file, because the metrics with these times are read after the machine
//! has started again.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use runtimes_host::files::{PRIVATE, write_atomic};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::node::Node;

const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// Upstream's file of the same name has the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShutdownTimes {
    #[serde(rename = "startTime")]
    pub(super) start: Option<Timestamp>,
    #[serde(rename = "endTime")]
    pub(super) end: Option<Timestamp>,
}

impl ShutdownTimes {
    /// The times of the last shutdown.
    pub(super) async fn read(node: &Node) -> Self {
        let path = node.layout.graceful_shutdown_state();
        let read = api_tasks::blocking("node-agent/shutdown-times", move || parse(&path)).await;
        read.ok().flatten().unwrap_or_default()
    }

    /// Sets the metrics.
    pub(super) fn publish(self, node: &Node) {
        node.kubelet_metrics.shutdowns.set(self.start, self.end);
    }

    /// Sets the metrics and writes the file. A disk that hangs does not hold up the shutdown.
    pub(super) async fn write(self, node: &Node) {
        self.publish(node);
        let path = node.layout.graceful_shutdown_state();
        let write = move || write_atomic(&path, &serde_json::to_vec(&self)?, PRIVATE);
        match timeout(WRITTEN_WITHIN, api_tasks::blocking("node-agent/shutdown-times", write)).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the time of the shutdown was not written"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the time of the shutdown is not written yet"),
        }
    }
}

/// `None` when there was no shutdown, or when the file cannot be read.
fn parse(path: &Path) -> Option<ShutdownTimes> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), %error, "the time of the last shutdown was not read");
            }
            return None;
        }
    };
    serde_json::from_slice(&text).map_err(|error| tracing::warn!(path = %path.display(), %error, "no time of a shutdown")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_upstreams() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("graceful_node_shutdown_state");
        assert_eq!(parse(&path), None);
        std::fs::write(&path, r#"{"startTime":"2026-01-02T03:04:05.123456789Z","endTime":"0001-01-01T00:00:00Z"}"#).expect("written");
        let start = Timestamp::from_second(1_767_323_045).expect("in range");
        assert_eq!(parse(&path).and_then(|times| times.start).map(|at| at.as_second()), Some(start.as_second()));
        let times = ShutdownTimes { start: Some(start), end: None };
        std::fs::write(&path, serde_json::to_vec(&times).expect("JSON")).expect("written");
        assert_eq!(parse(&path), Some(times));
        std::fs::write(&path, "{").expect("written");
        assert_eq!(parse(&path), None);
    }
}
