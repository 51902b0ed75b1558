//! Ends all Pods of the node, one group after the other, and waits for each group as long as it has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::times::ShutdownTimes;
use crate::layout::PodName;
use crate::node::{Entry, Node};
use crate::termination::{NODE_SHUTDOWN_MESSAGE, Termination, TerminationCause};

/// How long the machine waits for the API to learn how the Pods ended.
const REPORTED_WITHIN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// Returns when the node may go.
pub(super) async fn end_pods(node: &Arc<Node>) {
    let mut times = ShutdownTimes { start: Some(api_clock::now()), end: None };
    times.write(node).await;
    // An agent that starts while the machine shuts down has to find its Pods first.
    let total = node.config.shutdown_grace_periods.total();
    if timeout(total, until(|| node.directory.is_complete())).await.is_err() {
        tracing::warn!("the node shuts down before the API server listed its Pods");
    }
    let mut ended = BTreeSet::new();
    for (lowest_priority, period) in node.config.shutdown_grace_periods.groups() {
        let group = group(node, lowest_priority, &ended);
        if group.is_empty() {
            continue;
        }
        tracing::info!(pods = group.len(), lowest_priority, ?period, "ending Pods because the node shuts down");
        let until = api_clock::now().checked_add(period).unwrap_or(Timestamp::MAX);
        ended.extend(group.iter().cloned());
        let end = async {
            for uid in &group {
                let cause = TerminationCause::NodeShutdown { until };
                node.terminate(Termination { uid: uid.clone(), message: NODE_SHUTDOWN_MESSAGE.to_owned(), cause }).await;
            }
            until_none(node, &group, |entry| !entry.is_freed()).await;
        };
        if timeout(period, end).await.is_err() {
            tracing::warn!(lowest_priority, ?period, "not all Pods ended in time");
        }
    }
    if timeout(REPORTED_WITHIN, until_none(node, &ended, |entry| entry.is_freed() && !entry.is_reported)).await.is_err() {
        tracing::warn!("the API server does not have the status of all Pods");
    }
    times.end = Some(api_clock::now());
    times.write(node).await;
}

/// The UIDs of the Pods that run and are in this group or in an earlier one, but for those that were ended with an earlier one.
fn group(node: &Node, lowest_priority: i32, ended: &BTreeSet<String>) -> BTreeSet<String> {
    let periods = &node.config.shutdown_grace_periods;
    let is_due = |entry: &Entry| {
        let priority = entry.pod.spec.as_ref().and_then(|spec| spec.priority);
        entry.is_active() && periods.group_of(priority).is_some_and(|group| group <= lowest_priority)
    };
    let uids = node.directory.all().into_iter().filter(is_due).map(|entry| PodName::of(&entry.pod).uid);
    uids.filter(|uid| !ended.contains(uid)).collect()
}

/// Waits until no Pod of a group is as described.
async fn until_none(node: &Node, group: &BTreeSet<String>, is: impl Fn(&Entry) -> bool) {
    until(|| !node.directory.any(|entry| is(entry) && group.contains(&PodName::of(&entry.pod).uid))).await;
}

async fn until(is: impl Fn() -> bool) {
    while !is() {
        tokio::time::sleep(POLL).await;
    }
}
