//! The loop of local storage limits: measures each Pod that has one, and evicts Pods that exceed theirs. It runs every ten
//! seconds, as upstream. A Pod whose measurement takes long is measured less often, so that no Pod costs more than a share of
//! the node's time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::measure;
use crate::eviction::limits::{self, Excess};
use crate::layout::PodName;
use crate::node::Node;
use crate::priority::is_critical;
use crate::termination::{IMMEDIATE_SECONDS, Termination, TerminationCause};

/// How long the measurement of one Pod may take.
const MEASURED_WITHIN: Duration = Duration::from_secs(10);
/// A Pod is not measured again for this multiple of the time that its measurement took.
const REST_FACTOR: u32 = 20;

/// Runs until cancelled.
pub(crate) async fn run(node: Arc<Node>, cancel: CancellationToken) {
    let period = node.config.eviction_monitoring_period;
    let mut due = HashMap::new();
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let work = async {
        loop {
            ticks.tick().await;
            look(&node, &mut due).await;
        }
    };
    cancel.run_until_cancelled(work).await;
}

/// One round. `due` has the time from which a Pod is measured again.
async fn look(node: &Arc<Node>, due: &mut HashMap<String, Instant>) {
    let entries: HashMap<String, _> = node.directory.all().into_iter().map(|entry| (PodName::of(&entry.pod).uid, entry)).collect();
    due.retain(|uid, _| entries.contains_key(uid));
    for (uid, entry) in entries {
        let may_end = entry.is_active() && !entry.is_static && !is_critical(&entry.pod);
        let is_limited = may_end && limits::has_any(&entry.pod);
        if !is_limited || due.get(&uid).is_some_and(|due| *due > Instant::now()) {
            continue;
        }
        let began = Instant::now();
        let usage = measure::disk(node, &entry, MEASURED_WITHIN).await;
        if let Some(fault) = &usage.fault {
            tracing::debug!(pod = %PodName::of(&entry.pod), %fault, "local storage not measured whole");
        }
        due.insert(uid.clone(), Instant::now() + began.elapsed() * REST_FACTOR);
        if let Some(Excess { signal, message }) = limits::exceeded(&entry.pod, &usage) {
            let cause = TerminationCause::Eviction { signal, disruption: false, grace_seconds_max: IMMEDIATE_SECONDS };
            node.terminate(Termination { uid, message, cause }).await;
        }
    }
}
