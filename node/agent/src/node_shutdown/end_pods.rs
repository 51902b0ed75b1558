//! Ends all Pods of the node, one group after the other, and waits for each group as long as it has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::layout::PodName;
use crate::node::{Entry, Node};
use crate::termination::{NODE_SHUTDOWN_MESSAGE, Termination, TerminationCause};
use crate::worker::effect::SIGNAL_HEARD;

/// How long the machine waits, after the grace periods, for the API server to have the status of every Pod. A container that gets its
/// stop signal at the end of its time has some time to hear it.
pub(super) const REPORTED_WITHIN: Duration = SIGNAL_HEARD.unsigned_abs().saturating_add(Duration::from_secs(2));
const POLL: Duration = Duration::from_millis(20);

/// Ends the Pods. Nothing of them is left afterwards unless it needs more time than there is.
pub(super) async fn end_pods(node: &Arc<Node>) {
    let mut ordered = BTreeSet::new();
    let mut last = None;
    for (lowest_priority, period) in node.config.shutdown_grace_periods.groups() {
        let until = api_clock::steady().checked_add(period).unwrap_or(Timestamp::MAX);
        if !end_group(node, (lowest_priority, until), period, &mut ordered, Entry::is_freed).await {
            tracing::warn!(lowest_priority, ?period, "not all Pods ended in time");
        }
        last = Some((lowest_priority, until));
    }
    // The last ones are being killed, or their status is on its way.
    let is_reported = |entry: &Entry| entry.is_freed() && entry.is_reported;
    if let Some(group) = last
        && !end_group(node, group, REPORTED_WITHIN, &mut ordered, is_reported).await
    {
        tracing::warn!("the API server does not have the status of all Pods");
    }
}

/// Orders the Pods of a group to end, and those of earlier groups that were not there in time. Waits until all Pods that were ordered to
/// end are `done`; false when the time is over first.
async fn end_group(
    node: &Arc<Node>,
    (lowest_priority, until): (i32, Timestamp),
    period: Duration,
    ordered: &mut BTreeSet<String>,
    done: impl Fn(&Entry) -> bool,
) -> bool {
    let deadline = Instant::now() + period;
    loop {
        // An agent that starts while the machine shuts down finds its Pods only now.
        let is_complete = node.directory.is_complete();
        for uid in group(node, lowest_priority) {
            if ordered.insert(uid.clone()) {
                let cause = TerminationCause::NodeShutdown { until };
                node.terminate(Termination { uid, message: NODE_SHUTDOWN_MESSAGE.to_owned(), cause }).await;
            }
        }
        if is_complete && !node.directory.any(|entry| !done(entry) && ordered.contains(&PodName::of(&entry.pod).uid)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + POLL)).await;
    }
}

/// The UIDs of the Pods that run and are in this group or in an earlier one.
fn group(node: &Node, lowest_priority: i32) -> Vec<String> {
    let periods = &node.config.shutdown_grace_periods;
    let is_due = |entry: &Entry| {
        let priority = entry.pod.spec.as_ref().and_then(|spec| spec.priority);
        entry.is_active() && periods.group_of(priority).is_some_and(|group| group <= lowest_priority)
    };
    node.directory.select(is_due, |entry| PodName::of(&entry.pod).uid)
}
