//! Calls of webhooks, under upstream's names.

use std::time::Duration;

use api_metrics::{Counters, Families, Histograms};

/// Upper bounds of the latency buckets, in seconds: upstream's.
const BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Larger rejection codes count as this code, as upstream does: a webhook must not be able to make the number of series grow.
const CODE_MAX: u64 = 600;

/// A call of a webhook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookCall<'a> {
    pub(crate) name: &'a str,
    /// `admit` or `validating`.
    pub(crate) kind: &'static str,
    pub(crate) operation: &'static str,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    /// The webhook rejected the request with this code.
    Rejected(u64),
    /// The call failed, and therefore the request.
    Failed,
    /// The call failed, and the request went on.
    FailedOpen,
}

/// The calls of all webhooks.
pub(crate) struct Webhooks {
    seconds: Histograms<4>,
    rejections: Counters<5>,
    failed_open: Counters<2>,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            seconds: Histograms::new(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Admission webhook latency in seconds, identified by name and broken out for each operation and type.",
                ["name", "type", "operation", "rejected"],
                &BUCKETS,
            ),
            rejections: Counters::new(
                "apiserver_admission_webhook_rejection_count",
                "Admission webhook rejection count, identified by name, operation, type and error type.",
                ["name", "type", "operation", "error_type", "rejection_code"],
            ),
            failed_open: Counters::new(
                "apiserver_admission_webhook_fail_open_count",
                "Admission webhook fail open count, identified by name and type.",
                ["name", "type"],
            ),
        }
    }
}

impl Webhooks {
    /// Counts one call.
    pub(crate) fn observe(&self, call: WebhookCall<'_>, outcome: Outcome, took: Duration) {
        let WebhookCall { name, kind, operation } = call;
        let rejected = if matches!(outcome, Outcome::Rejected(_) | Outcome::Failed) { "true" } else { "false" };
        self.seconds.observe([name, kind, operation, rejected], took.as_secs_f64());
        let reject = |error: &str, code: u64| {
            let code = code.min(CODE_MAX).to_string();
            self.rejections.count([name, kind, operation, error, &code]);
        };
        match outcome {
            Outcome::Allowed => {}
            Outcome::Rejected(code) => reject("no_error", code),
            Outcome::Failed => reject("calling_webhook_error", 0),
            Outcome::FailedOpen => self.failed_open.count([name, kind]),
        }
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        self.seconds.add_to(families);
        self.rejections.add_to(families);
        self.failed_open.add_to(families);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_have_a_bounded_number_of_series() {
        let webhooks = Webhooks::default();
        let call = WebhookCall { name: "w", kind: "admit", operation: "CREATE" };
        for code in [403, 601, 70_000] {
            webhooks.observe(call, Outcome::Rejected(code), Duration::from_millis(1));
        }
        webhooks.observe(call, Outcome::FailedOpen, Duration::from_secs(10));
        let mut families = Families::default();
        webhooks.add_to(&mut families);
        let text = families.text();
        let labels = "name=\"w\",operation=\"CREATE\"";
        for line in [
            format!(
                "apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",{labels},rejection_code=\"403\",type=\"admit\"}} 1"
            ),
            format!(
                "apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",{labels},rejection_code=\"600\",type=\"admit\"}} 2"
            ),
            format!("apiserver_admission_webhook_admission_duration_seconds_count{{{labels},rejected=\"true\",type=\"admit\"}} 3"),
            "apiserver_admission_webhook_fail_open_count{name=\"w\",type=\"admit\"} 1".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
