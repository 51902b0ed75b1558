//! The message of a container that has ended.

use k8s_openapi::api::core::v1::Pod;

use crate::container;
use crate::layout::PodName;
use crate::logs;
use crate::node::Node;

/// The bytes of a termination message, and of the end of the log that is used instead.
const MESSAGE_LEN_MAX: usize = 4_096;
const FALLBACK_LEN_MAX: usize = 2_048;
const FALLBACK_LINES_MAX: usize = 80;

/// Where an instance's termination message is. A Pod's changes do not change it.
pub(crate) struct TerminationMessage {
    pod: PodName,
    container: String,
    attempt: u32,
    falls_back_to_logs: bool,
}

impl TerminationMessage {
    /// That of a Pod's container.
    pub(crate) fn of(pod: &Pod, container: &str, attempt: u32) -> Self {
        let found = container::find_any(pod, container);
        let policy = found.as_ref().and_then(|(_, container)| container.termination_message_policy.as_deref());
        let falls_back_to_logs = policy == Some("FallbackToLogsOnError");
        Self { pod: PodName::of(pod), container: container.to_owned(), attempt, falls_back_to_logs }
    }

    /// The message, or the end of the log where the container's policy says so.
    pub(crate) async fn read(&self, node: &Node, exit_code: i32) -> String {
        let path = node.layout.termination_log(&self.pod.uid, &self.container, self.attempt);
        let text = api_tasks::blocking("node-agent/termination-message", move || logs::head(&path, MESSAGE_LEN_MAX))
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        if !text.is_empty() || exit_code == 0 || !self.falls_back_to_logs {
            return text;
        }
        let log = node.layout.log(&self.pod, &self.container, self.attempt);
        let tail =
            api_tasks::blocking("node-agent/termination-message", move || logs::tail_text(&log, FALLBACK_LINES_MAX, FALLBACK_LEN_MAX))
                .await;
        tail.ok().flatten().unwrap_or_default()
    }
}
