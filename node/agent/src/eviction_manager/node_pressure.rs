//! The loop of node pressure: observes the signals and publishes the conditions. When a threshold is met, it frees what the node does
//! not need, then evicts one Pod. For a hard threshold it waits until the Pod is gone. A Pod that is evicted for a soft threshold has a
//! grace period: the loop evicts no other Pod for a soft threshold meanwhile, and takes the grace period away when a hard threshold is met.
//!
//! Upstream observes every ten seconds, and the kernel notifies it of memory thresholds. A Pod that writes at the speed
//! of the disk fills in ten seconds what the thresholds keep free. So this loop observes every second while a Pod is
//! active or a condition holds, and every ten seconds on a node at rest.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::measure;
use super::observe::{Observed, observe};
use crate::cleanup::remove_dir;
use crate::error::chain;
use crate::eviction::rank::{Candidate, rank};
use crate::eviction::signal::{Pressure, Resource, Signal};
use crate::eviction::state::{Met, State};
use crate::eviction::usage::{ContainerUsage, PodUsage, Scope};
use crate::eviction::{ThresholdKey, message};
use crate::image_gc::collect_images;
use crate::layout::PodName;
use crate::node::{Entry, Node};
use crate::priority::is_critical;
use crate::stats::container_stats;
use crate::termination::{IMMEDIATE_SECONDS, Termination, TerminationCause};
use crate::worker::plan::GRACE_SECONDS;

/// How often the signals are observed while a Pod is active or a condition holds.
const OBSERVED_EVERY: Duration = Duration::from_secs(1);
/// How often they are observed otherwise; upstream's period.
const OBSERVED_AT_REST_EVERY: Duration = Duration::from_secs(10);
/// How long removing logs and images may hold up an eviction.
const RECLAIMED_WITHIN: Duration = Duration::from_secs(5);
/// How long a round measures one Pod and all Pods, and how many at the same time. A Pod that is not measured by then ranks
/// last.
const MEASURED_WITHIN: Duration = Duration::from_secs(1);
const ALL_MEASURED_WITHIN: Duration = Duration::from_secs(5);
const MEASURED_AT_ONCE: usize = 4;
/// How long an evicted Pod may take until another one is chosen; upstream's `podCleanupTimeout`.
const CLEANED_WITHIN: Duration = Duration::from_secs(30);
const CLEANED_POLL: Duration = Duration::from_millis(100);

/// Runs until cancelled.
pub(crate) async fn run(node: Arc<Node>, cancel: CancellationToken) {
    cancel.run_until_cancelled(watch(&node)).await;
}

async fn watch(node: &Arc<Node>) {
    let (mut state, mut ending, mut in_vain) = (State::default(), None::<Ending>, None::<(ThresholdKey, Instant)>);
    let mut next_at_rest = Instant::now();
    let mut ticks = tokio::time::interval(OBSERVED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let tick = ticks.tick().await;
        if tick < next_at_rest && is_at_rest(node) {
            continue;
        }
        next_at_rest = tick + OBSERVED_AT_REST_EVERY;
        let Some(observed) = look(node).await else { continue };
        let (config, now) = (&node.config, tokio::time::Instant::now());
        let verdict = state.look(&config.eviction_thresholds, &observed.signals, config.eviction_pressure_transition_period, now);
        node.pressure.send_if_modified(|pressure| std::mem::replace(pressure, verdict.pressure) != verdict.pressure);
        // Where nothing helped, not again at once, unless something more urgent is short.
        let waits = |key: ThresholdKey| in_vain.is_some_and(|(vain, until)| key >= vain && Instant::now() < until);
        let Some(met) = verdict.met.filter(|met| !waits(met.key)) else { continue };
        ending = ending.filter(|ending| !is_gone(node, &ending.uid));
        match next(&met, ending.as_ref(), Instant::now()) {
            Next::Wait => {}
            Next::Hurry => {
                if let Some(Ending { uid, message, .. }) = ending.take() {
                    evict(node, &met, uid, message, IMMEDIATE_SECONDS).await;
                }
            }
            Next::Evict => {
                let evicted = relieve(node, &state, &met, observed.dedicated_image_fs).await;
                in_vain = evicted.is_none().then(|| (met.key, Instant::now() + config.eviction_monitoring_period));
                if met.key.is_soft {
                    ending = evicted;
                }
            }
        }
    }
}

/// A Pod that was evicted for a soft threshold and is not gone.
struct Ending {
    uid: String,
    /// `status.message`.
    message: String,
    /// Until when the loop waits for it; `None` when its grace period has no end in sight.
    until: Option<Instant>,
}

/// What a round does about a threshold.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// A Pod is ending.
    Wait,
    /// The Pod that is ending gets no more time.
    Hurry,
    /// Something is freed, or another Pod is evicted.
    Evict,
}

/// The decision. Pure.
fn next(met: &Met, ending: Option<&Ending>, now: Instant) -> Next {
    match ending {
        Some(_) if !met.key.is_soft => Next::Hurry,
        Some(ending) if ending.until.is_none_or(|until| now < until) => Next::Wait,
        Some(_) | None => Next::Evict,
    }
}

/// Whether no Pod can use anything up, and nothing is short.
fn is_at_rest(node: &Node) -> bool {
    *node.pressure.borrow() == Pressure::default() && !node.directory.any(Entry::is_active)
}

async fn look(node: &Node) -> Option<Observed> {
    let (data_dir, images, proc_dir) = (node.config.data_dir.clone(), node.parts.images.dir(), node.config.proc_dir.clone());
    api_tasks::blocking("node-agent/observe", move || observe(&data_dir, images.as_deref(), &proc_dir)).await.ok()
}

/// Acts on a threshold; returns the Pod that was evicted for it.
async fn relieve(node: &Arc<Node>, state: &State, met: &Met, dedicated_image_fs: bool) -> Option<Ending> {
    let (signal, is_soft) = (met.key.signal, met.key.is_soft);
    let resource = signal.resource();
    tracing::warn!(signal = signal.name(), is_soft, threshold = met.quantity, available = met.available, "eviction threshold met");
    node.note_node(true, "EvictionThresholdMet", format!("Attempting to reclaim {resource}"));
    let scope = scope(signal, dedicated_image_fs);
    if matches!(resource, Resource::EphemeralStorage | Resource::Inodes) && is_enough_without_garbage(node, state, scope).await {
        return None;
    }
    let mut candidates = candidates(node, resource).await;
    rank(&mut candidates, resource, scope);
    let Some(first) = candidates.into_iter().find(|candidate| !is_critical(&candidate.pod)) else {
        tracing::warn!(%resource, "no Pod can be evicted");
        return None;
    };
    let (message, uid) = (message::node_was_low(met, &first.pod, &first.usage), PodName::of(&first.pod).uid);
    let grace_seconds_max = if is_soft { node.config.eviction_pod_grace_period_max } else { IMMEDIATE_SECONDS };
    evict(node, met, uid.clone(), message.clone(), grace_seconds_max).await;
    let own = first.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(GRACE_SECONDS);
    let grace = Duration::from_secs(u64::try_from(own.min(grace_seconds_max)).unwrap_or(0));
    let until = Instant::now().checked_add(grace).and_then(|ends| ends.checked_add(CLEANED_WITHIN));
    Some(Ending { uid, message, until })
}

/// Has a Pod evicted. For a hard threshold, waits until it is gone.
async fn evict(node: &Arc<Node>, met: &Met, uid: String, message: String, grace_seconds_max: i64) {
    let cause = TerminationCause::Eviction { signal: met.key.signal.name(), disruption: true, grace_seconds_max };
    node.terminate(Termination { uid: uid.clone(), message, cause }).await;
    if !met.key.is_soft && tokio::time::timeout(CLEANED_WITHIN, until_cleaned(node, &uid)).await.is_err() {
        tracing::warn!(uid, "the evicted Pod is not gone yet");
    }
}

/// Whose bytes count.
fn scope(signal: Signal, dedicated_image_fs: bool) -> Scope {
    match signal {
        _ if !dedicated_image_fs => Scope::All,
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => Scope::ImageFs,
        _ => Scope::NodeFs,
    }
}

/// Removes logs of Pods that have ended and unused images; returns whether no threshold that was met is met any more. Upstream looks at
/// those that were not met, too.
async fn is_enough_without_garbage(node: &Node, state: &State, scope: Scope) -> bool {
    let reclaim = async {
        if scope != Scope::ImageFs {
            remove_logs_of_ended_pods(node).await;
        }
        if scope != Scope::NodeFs {
            collect_images(node, 0, 0).await;
        }
    };
    if tokio::time::timeout(RECLAIMED_WITHIN, reclaim).await.is_err() {
        tracing::warn!("removing logs and unused images takes long");
    }
    look(node).await.is_some_and(|observed| state.is_resolved(&node.config.eviction_thresholds, &observed.signals))
}

/// Their volumes and writable layers were removed when they ended; their logs stay for users, until the disk is short.
async fn remove_logs_of_ended_pods(node: &Node) {
    for entry in node.directory.all().iter().filter(|entry| !entry.is_active()) {
        let PodName { namespace, name, uid } = PodName::of(&entry.pod);
        if let Err(error) = remove_dir(&node.layout.pod_logs(&namespace, &name, &uid)).await {
            tracing::warn!(error = chain(&error), "logs of a Pod that is over not removed");
        }
    }
}

/// The Pods that use the resource, with their use of it.
async fn candidates(node: &Arc<Node>, resource: Resource) -> Vec<Candidate> {
    let may_end = |entry: &Entry| entry.is_active() && !entry.is_static;
    let entries = node.directory.select(may_end, Arc::clone);
    let mut all: Vec<Candidate> = entries.iter().map(|entry| Candidate { pod: entry.pod.clone(), usage: PodUsage::default() }).collect();
    let measured = entries.into_iter().enumerate().map(|(index, entry)| {
        let node = node.clone();
        async move { (index, usage(&node, &entry, resource).await) }
    });
    let mut measured = futures::stream::iter(measured).buffer_unordered(MEASURED_AT_ONCE);
    let measure = async {
        while let Some((index, usage)) = measured.next().await {
            if let Some(candidate) = all.get_mut(index) {
                candidate.usage = usage;
            }
        }
    };
    if tokio::time::timeout(ALL_MEASURED_WITHIN, measure).await.is_err() {
        tracing::warn!(pods = all.len(), "not every Pod was measured in time");
    }
    all
}

async fn usage(node: &Node, entry: &Entry, resource: Resource) -> PodUsage {
    if matches!(resource, Resource::EphemeralStorage | Resource::Inodes) {
        return measure::disk(node, entry, MEASURED_WITHIN).await;
    }
    let containers = container_stats(node, entry).await.into_iter().map(|(name, stats)| ContainerUsage {
        name,
        memory: Some(stats.working_set_bytes),
        processes: stats.pids,
        ..ContainerUsage::default()
    });
    PodUsage { containers: containers.collect(), ..PodUsage::default() }
}

/// Waits until nothing of a Pod runs and its volumes and namespaces are freed.
async fn until_cleaned(node: &Node, uid: &str) {
    while !is_gone(node, uid) {
        tokio::time::sleep(CLEANED_POLL).await;
    }
}

fn is_gone(node: &Node, uid: &str) -> bool {
    node.directory.get(uid).is_none_or(|entry| entry.is_freed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_ending_is_waited_for_hurried_or_given_up() {
        let met = |is_soft| Met { key: ThresholdKey { is_soft, signal: Signal::MemoryAvailable }, quantity: 2, available: 1 };
        let now = Instant::now();
        let ending = Ending { uid: "u".to_owned(), message: "m".to_owned(), until: Some(now + Duration::from_secs(60)) };
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(next(&met(true), None, now), Next::Evict);
        assert_eq!(next(&met(false), None, now), Next::Evict);
        assert_eq!(next(&met(true), Some(&ending), at(59)), Next::Wait);
        assert_eq!(next(&met(true), Some(&ending), at(60)), Next::Evict);
        for seconds in [0, 60] {
            assert_eq!(next(&met(false), Some(&ending), at(seconds)), Next::Hurry);
        }
        let patient = Ending { until: None, ..ending };
        assert_eq!(next(&met(true), Some(&patient), at(1_000_000)), Next::Wait);
    }
}
