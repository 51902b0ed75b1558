//! Probes: when one is due ([`Rounds`]), what one attempt returns ([`once`]), and when attempts add up to a
//! verdict ([`Tally`], pure). [`crate::action`] performs them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Probe;

use crate::action::{ActionError, Target, exec, grpc, http, tcp};
use crate::container::probes::ProbeKind;

/// Upstream's defaults.
const PERIOD_SECONDS: i32 = 10;
const TIMEOUT_SECONDS: i32 = 1;
const SUCCESS_THRESHOLD: i32 = 1;
const FAILURE_THRESHOLD: i32 = 3;

/// One attempt, no longer than the probe's timeout. The error is the text of the event.
pub(crate) async fn once(target: &Target<'_>, probe: &Probe) -> Result<(), ActionError> {
    let timeout = seconds(probe.timeout_seconds, TIMEOUT_SECONDS);
    let look = async {
        if let Some(http) = &probe.http_get {
            http::probe(target, http).await
        } else if let Some(tcp) = &probe.tcp_socket {
            tcp::probe(target, tcp).await
        } else if let Some(exec) = &probe.exec {
            exec::probe(target, exec).await
        } else if let Some(grpc) = &probe.grpc {
            grpc::probe(target, grpc).await
        } else {
            Err(ActionError::NoHandler)
        }
    };
    let late = || ActionError::Timeout { seconds: timeout.as_secs() };
    tokio::time::timeout(timeout, look).await.unwrap_or_else(|_| Err(late()))
}

/// Counts equal results in a row.
#[derive(Debug)]
pub(crate) struct Tally {
    success_threshold: i32,
    failure_threshold: i32,
    row: (bool, i32),
    verdict: Option<bool>,
}

impl Tally {
    /// `ready` is the first result of a readiness probe: only a change is reported.
    pub(crate) fn new(probe: &Probe, kind: ProbeKind, ready: bool) -> Self {
        let threshold = |declared: Option<i32>, default: i32| declared.filter(|count| *count > 0).unwrap_or(default);
        Self {
            success_threshold: threshold(probe.success_threshold, SUCCESS_THRESHOLD),
            failure_threshold: threshold(probe.failure_threshold, FAILURE_THRESHOLD),
            row: (false, 0),
            verdict: (kind == ProbeKind::Readiness).then_some(ready),
        }
    }

    /// Counts a result; returns a verdict when it changes.
    pub(crate) fn count(&mut self, success: bool) -> Option<bool> {
        self.row = if self.row.0 == success { (success, self.row.1.saturating_add(1)) } else { (success, 1) };
        let threshold = if success { self.success_threshold } else { self.failure_threshold };
        if self.row.1 < threshold || self.verdict == Some(success) {
            return None;
        }
        self.verdict = Some(success);
        Some(success)
    }
}

/// When attempts are due: as upstream each period, however long an attempt takes. Attempts that would be due during another
/// attempt are left out.
pub(crate) struct Rounds(tokio::time::Interval);

impl Rounds {
    /// The first attempt is `initialDelaySeconds` after the start, then there is one each period.
    pub(crate) fn new(probe: &Probe, started_at: Timestamp) -> Self {
        let delay = seconds(probe.initial_delay_seconds, 0);
        let age = api_clock::between(started_at, api_clock::now());
        let period = seconds(probe.period_seconds, PERIOD_SECONDS).max(Duration::from_secs(1));
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + delay.saturating_sub(age), period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        Self(ticks)
    }

    /// Resolves when the next look is due.
    pub(crate) async fn next(&mut self) {
        self.0.tick().await;
    }
}

fn seconds(declared: Option<i32>, default: i32) -> Duration {
    Duration::from_secs(u64::try_from(declared.filter(|count| *count > 0).unwrap_or(default)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn looks_add_up_to_verdicts() {
        let probe: Probe = serde_json::from_value(json!({"successThreshold": 2, "failureThreshold": 3})).expect("a probe");
        let run = |kind: ProbeKind, looks: &str| {
            let mut tally = Tally::new(&probe, kind, false);
            looks.chars().map(|look| tally.count(look == '+').map_or('.', |verdict| if verdict { 'Y' } else { 'N' })).collect::<String>()
        };
        assert_eq!(run(ProbeKind::Readiness, "-+-++--+---++"), "....Y.....N.Y");
        assert_eq!(run(ProbeKind::Liveness, "++---"), ".Y..N");
        assert_eq!(run(ProbeKind::Liveness, "------"), "..N...");
        assert_eq!(run(ProbeKind::Startup, "--++"), "...Y");
    }
}
