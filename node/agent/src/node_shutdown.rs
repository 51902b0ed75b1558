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
use node_logind::{InhibitorLock, ShutdownWatch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::admit::Rejection;
use crate::error::chain;
use crate::health::Health;
use crate::node::Node;
use crate::termination::NODE_SHUTDOWN_REJECTED;
use end_pods::{REPORTED_WITHIN, end_pods};
use times::ShutdownTimes;

/// The reason of the events on the Node.
const EVENT: &str = "NodeShutdown";
/// The wait before the machine is asked again, after the connection was lost and after repeated failures.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long the connection, the setting and the lock may take together.
const CONNECTED_WITHIN: Duration = Duration::from_secs(30);

/// Runs until cancelled.
pub(crate) async fn run(node: Arc<Node>, health: Arc<Health>, cancel: CancellationToken) {
    ShutdownTimes::read(&node).await.publish(&node);
    cancel.run_until_cancelled(follow(&node, &health)).await;
}

/// Why a new Pod is rejected while the node shuts down.
pub(crate) fn refusal(node: &Node) -> Option<Rejection> {
    let message = "Pod was rejected as the node is shutting down.".to_owned();
    node.is_shutting_down().then(|| Rejection { reason: NODE_SHUTDOWN_REJECTED.to_owned(), message })
}

/// Watches one connection after the other. A lock is kept until there is the next one.
async fn follow(node: &Arc<Node>, health: &Health) {
    let delay = node.config.shutdown_grace_periods.total() + REPORTED_WITHIN;
    let (mut retry, mut lock) = (RETRY, None);
    loop {
        // The bus may be there and not answer.
        let connected = timeout(CONNECTED_WITHIN, node.parts.shutdowns.watch(delay)).await;
        let connected = connected.map_err(|_| "systemd-logind does not answer".to_owned());
        let pause = match connected.and_then(|watch| watch.map_err(|error| chain(&error))) {
            Ok(mut watch) => {
                retry = RETRY;
                lock = watch.lock.take().or(lock);
                let end = observe(node, health, watch, &mut lock).await;
                if end == WatchEnd::Cancelled { Duration::ZERO } else { RETRY }
            }
            Err(error) => {
                tracing::warn!(error, "a shutdown of this machine does not wait for its Pods");
                retry = (retry * 2).min(RETRY_MAX);
                retry
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Why another connection is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchEnd {
    /// A shutdown was cancelled: the next one needs another lock.
    Cancelled,
    /// The connection is lost.
    Disconnected,
}

/// Waits for a shutdown and ends the Pods.
async fn observe(node: &Arc<Node>, health: &Health, watch: ShutdownWatch, lock: &mut Option<InhibitorLock>) -> WatchEnd {
    let ShutdownWatch { has_begun, mut announcements, delay_fault, .. } = watch;
    if !has_begun {
        // The end of a shutdown may have been announced while there was no connection.
        set_shutting_down(node, health, false);
        match &delay_fault {
            Some(fault) => tracing::warn!(error = chain(fault), "this machine shuts down before all Pods have had their grace periods"),
            None => tracing::info!("a shutdown of this machine waits for its Pods"),
        }
        if !is_announced(&mut announcements, true).await {
            return WatchEnd::Disconnected;
        }
    }
    set_shutting_down(node, health, true);
    let start = api_clock::now();
    let shutdown = async { tokio::join!(ShutdownTimes { start: Some(start), end: None }.write(node), end_pods(node)) };
    let is_cancelled = tokio::select! {
        _ = shutdown => false,
        () = cancellation(&mut announcements) => true,
    };
    ShutdownTimes { start: Some(start), end: Some(api_clock::now()) }.write(node).await;
    if !is_cancelled {
        *lock = None;
    }
    if is_cancelled || is_announced(&mut announcements, false).await {
        set_shutting_down(node, health, false);
        return WatchEnd::Cancelled;
    }
    WatchEnd::Disconnected
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
