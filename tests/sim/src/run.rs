//! One run: the cluster starts, users and faults do their work, the faults end, and the cluster must become quiet.

use std::sync::Arc;
use std::time::Duration;

use crate::chaos::Chaos;
use crate::checks;
use crate::control::Cluster;
use crate::entropy;
use crate::history::History;
use crate::ledger::Ledger;
use crate::settled;
use crate::workload::Workload;

/// How long the cluster may take to become as its objects want it. The longest back-off of a Job's Pods is ten minutes.
const SETTLE_MAX: Duration = Duration::from_secs(1800);
/// How long nothing may be written then.
const QUIET: Duration = Duration::from_secs(90);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How a run ended.
pub struct Outcome {
    /// The broken promises; none in a good run.
    pub violations: Vec<String>,
    /// The hash of everything that happened.
    pub trace: u64,
    /// The number of writes.
    pub revision: u64,
    /// The simulated time.
    pub time: Duration,
    /// The last lines of the trace.
    pub lines: Vec<String>,
}

/// Runs the seed of this process; `trace` prints every step.
pub async fn run(trace: bool) -> Outcome {
    entropy::install();
    let history = Arc::new(History::new(checks::all(), trace));
    let running = simulate(Arc::clone(&history));
    tokio::select! {
        biased;
        () = history.violated.notified() => {}
        () = running => {}
    }
    let (trace, revision) = history.trace();
    Outcome { violations: history.violations(), trace, revision, time: entropy::elapsed(), lines: history.lines() }
}

async fn simulate(history: Arc<History>) {
    let cluster = Cluster::start(Arc::clone(&history)).await;
    let ledger = Ledger::new(Arc::clone(&history));
    let mut workload = Workload::new(&cluster);
    workload.prepare().await;
    let mut chaos = Chaos::start(&cluster, &ledger);
    if chaos.is_calm() {
        workload.compete().await;
        workload.roll_out().await;
    }
    tokio::select! {
        biased;
        () = workload.run() => {}
        () = chaos.run() => {}
    }
    chaos.end(&ledger).await;
    workload.settle().await;
    settle(&history, &ledger).await;
}

async fn settle(history: &History, ledger: &Ledger) {
    let end = entropy::elapsed() + SETTLE_MAX;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let missing = history.read(|view| settled::missing(view, ledger));
        let quiet = entropy::elapsed().saturating_sub(history.changed_at());
        if missing.is_empty() && quiet >= QUIET {
            return;
        }
        if entropy::elapsed() >= end {
            let why = if missing.is_empty() { "is not quiet".to_owned() } else { missing.join("\n  ") };
            return history.violate(format!("after {} s without faults:\n  {why}", SETTLE_MAX.as_secs()));
        }
    }
}
