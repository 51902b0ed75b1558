//! Graceful node shutdown: when the machine announces that it shuts down, the node takes no further Pod, reports that it is not
//! ready, and ends its Pods, those of a low priority first. An inhibitor lock makes the machine wait meanwhile.
//!
//! [`crate::shutdown_grace_periods`] decides which Pods end together and how long they have; [`end_pods`] has them ended;
//! [`times`] is the file with the time of the last shutdown, for the metrics of the next start.

mod end_pods;
mod times;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use node_logind::ShutdownWatch;
use tokio_util::sync::CancellationToken;

use crate::admit::Rejection;
use crate::error::chain;
use crate::health::Health;
use crate::node::Node;
use end_pods::end_pods;
use times::ShutdownTimes;

/// Of the events on the Node, and of Pods that it rejects.
const EVENT: &str = "NodeShutdown";
/// The wait before the machine is asked again, after the connection was lost and after repeated failures.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Runs until cancelled.
pub(crate) async fn run(node: Arc<Node>, health: Arc<Health>, cancel: CancellationToken) {
    ShutdownTimes::read(&node).await.publish(&node);
    cancel.run_until_cancelled(follow(&node, &health)).await;
}

/// Why a new Pod is turned away, if it is.
pub(crate) fn refusal(node: &Node) -> Option<Rejection> {
    let message = "Pod was rejected as the node is shutting down.".to_owned();
    node.is_shutting_down().then(|| Rejection { reason: EVENT.to_owned(), message })
}

/// Attends to one connection after the other.
async fn follow(node: &Arc<Node>, health: &Health) {
    let delay = node.config.shutdown_grace_periods.total();
    let mut retry = RETRY;
    loop {
        match node.parts.shutdowns.watch(delay).await {
            Ok(watch) => {
                retry = RETRY;
                if let Some(fault) = &watch.delay_fault {
                    tracing::warn!(error = chain(fault), "this machine shuts down before all Pods have had their grace periods");
                }
                attend(node, health, watch).await;
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "a shutdown of this machine does not wait for its Pods");
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
        tokio::time::sleep(retry).await;
    }
}

/// Returns when another connection is needed: for the next lock, or because this one is lost.
async fn attend(node: &Arc<Node>, health: &Health, watch: ShutdownWatch) {
    let ShutdownWatch { has_begun, mut announcements, lock, .. } = watch;
    if !has_begun {
        // Its end may have been announced while there was no connection.
        set_shutting_down(node, health, false);
        tracing::info!("a shutdown of this machine waits for its Pods");
        if !is_announced(&mut announcements, true).await {
            return;
        }
    }
    set_shutting_down(node, health, true);
    let is_cancelled = tokio::select! {
        () = end_pods(node) => false,
        () = cancellation(&mut announcements) => true,
    };
    drop(lock);
    if is_cancelled || is_announced(&mut announcements, false).await {
        set_shutting_down(node, health, false);
    }
}

/// Waits for an announcement; false when the connection is lost.
async fn is_announced(announcements: &mut BoxStream<'static, bool>, begins: bool) -> bool {
    while let Some(announced) = announcements.next().await {
        if announced == begins {
            return true;
        }
    }
    false
}

/// Waits until the shutdown is cancelled. A lost connection does not cancel it.
async fn cancellation(announcements: &mut BoxStream<'static, bool>) {
    if !is_announced(announcements, false).await {
        std::future::pending::<()>().await;
    }
}

fn set_shutting_down(node: &Node, health: &Health, is: bool) {
    if node.shutting_down.swap(is, Ordering::AcqRel) == is {
        return;
    }
    let what = if is { "Shutdown manager detected shutdown event" } else { "Shutdown manager detected shutdown cancellation" };
    tracing::info!("{what}");
    health.set("node-shutdown", is.then(|| "node is shutting down".to_owned()));
    node.note_node(false, EVENT, what);
}
