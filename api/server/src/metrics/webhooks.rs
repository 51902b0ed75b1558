//! How webhooks fare, under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use parking_lot::Mutex;

use super::header;

const PREFIX: &str = "apiserver_admission_webhook";

/// Whom, and about what, somebody was asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WebhookCall {
    pub(crate) name: String,
    /// `admit` or `validating`.
    pub(crate) kind: &'static str,
    pub(crate) operation: &'static str,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    /// The webhook refused with this code.
    Refused(u64),
    /// It could not be asked, and the request was refused for that.
    Failed,
    /// It could not be asked, and the request went on.
    PassedOver,
}

/// Counts by webhook; there are as many as configurations name.
#[derive(Debug, Default)]
pub(crate) struct Webhooks(Mutex<BTreeMap<WebhookCall, Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// Count and seconds of turns after which the request went on, and of those after which it did not.
    turns: [(u64, f64); 2],
    refusals: BTreeMap<u64, u64>,
    failures: u64,
    passed_over: u64,
}

impl Webhooks {
    /// Counts one turn.
    pub(crate) fn observe(&self, turn: WebhookCall, outcome: Outcome, took: Duration) {
        let mut all = self.0.lock();
        let counts = all.entry(turn).or_default();
        let is_rejected = matches!(outcome, Outcome::Refused(_) | Outcome::Failed);
        let [went_on, refused] = &mut counts.turns;
        let (count, seconds) = if is_rejected { refused } else { went_on };
        *count += 1;
        *seconds += took.as_secs_f64();
        match outcome {
            Outcome::Allowed => {}
            Outcome::Refused(code) => *counts.refusals.entry(code).or_default() += 1,
            Outcome::Failed => counts.failures += 1,
            Outcome::PassedOver => counts.passed_over += 1,
        }
    }

    /// Appends the text for Prometheus.
    pub(super) fn render(&self, out: &mut String) {
        let all = self.0.lock();
        let name = format!("{PREFIX}_admission_duration_seconds");
        header(
            out,
            &name,
            "summary",
            "Admission webhook latency in seconds, identified by name and broken out for each operation and type.",
        );
        for (turn, counts) in all.iter() {
            for ((count, seconds), rejected) in counts.turns.iter().zip(["false", "true"]).filter(|((count, _), _)| *count > 0) {
                let labels = format!("{},rejected=\"{rejected}\"", labels(turn));
                let _ = writeln!(out, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}");
            }
        }
        let name = format!("{PREFIX}_rejection_count");
        header(out, &name, "counter", "Admission webhook rejection count, identified by name, operation, type and error type.");
        for (turn, counts) in all.iter() {
            let mut line = |code: u64, error: &str, count: u64| {
                let _ = writeln!(out, "{name}{{{},error_type=\"{error}\",rejection_code=\"{code}\"}} {count}", labels(turn));
            };
            counts.refusals.iter().for_each(|(code, count)| line(*code, "no_error", *count));
            if counts.failures > 0 {
                line(0, "calling_webhook_error", counts.failures);
            }
        }
        let name = format!("{PREFIX}_fail_open_count");
        header(out, &name, "counter", "Admission webhook fail open count, identified by name and type.");
        for (turn, counts) in all.iter().filter(|(_, counts)| counts.passed_over > 0) {
            let _ = writeln!(out, "{name}{{{}}} {}", labels(turn), counts.passed_over);
        }
    }
}

fn labels(turn: &WebhookCall) -> String {
    format!("name=\"{}\",operation=\"{}\",type=\"{}\"", turn.name, turn.operation, turn.kind)
}
