//! The checks of admission policies, under upstream's names.

use std::time::Duration;

use api_admission::policy::{Checked, error_type};
use api_metrics::prometheus::{self, HistogramVec, IntCounterVec};
use api_metrics::{Families, counters, histograms};

/// Upper bounds of the latency buckets, in seconds: upstream's.
const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// The checks by policy, binding and result. There are as many series as bindings were in force.
pub(crate) struct Policies {
    validating: Checks,
    mutating: Checks,
}

/// The checks of one kind of policies.
struct Checks {
    total: IntCounterVec,
    seconds: HistogramVec,
}

impl Policies {
    pub(super) fn new() -> prometheus::Result<Self> {
        let labels = ["policy", "policy_binding", "error_type", "enforcement_action"];
        let validating = Checks {
            total: counters(
                "apiserver_validating_admission_policy_check_total",
                "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
                &labels,
            )?,
            seconds: histograms(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
                &labels,
                &BUCKETS,
            )?,
        };
        let labels = ["policy", "policy_binding", "error_type"];
        let mutating = Checks {
            total: counters(
                "apiserver_mutating_admission_policy_check_total",
                "Mutation admission policy check total, labeled by policy and further identified by binding.",
                &labels,
            )?,
            seconds: histograms(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
                &labels,
                &BUCKETS,
            )?,
        };
        Ok(Self { validating, mutating })
    }

    /// Counts the check of a validating policy.
    pub(crate) fn validated(&self, checked: &Checked) {
        let Checked { policy, binding, error_type, enforcement_action, took } = checked;
        self.validating.observe(&[policy, binding, error_type, enforcement_action], *took);
    }

    /// Counts the change of a mutating policy, or the failure of the change.
    pub(crate) fn mutated(&self, policy: &str, binding: &str, failure: Option<&str>, took: Duration) {
        self.mutating.observe(&[policy, binding, error_type(failure)], took);
    }

    pub(super) fn collect(&self, families: &mut Families) {
        for checks in [&self.validating, &self.mutating] {
            families.collect(&checks.total);
            families.collect(&checks.seconds);
        }
    }
}

impl Checks {
    fn observe(&self, labels: &[&str], took: Duration) {
        self.total.with_label_values(labels).inc();
        self.seconds.with_label_values(labels).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_by_their_result() {
        let policies = Policies::new().unwrap();
        let checked = |took: u64| Checked {
            policy: "p".to_owned(),
            binding: "b".to_owned(),
            error_type: "invalid_error",
            enforcement_action: "deny".to_owned(),
            took: Duration::from_millis(took),
        };
        policies.validated(&checked(5));
        policies.validated(&checked(50));
        policies.mutated("m", "b", None, Duration::from_secs(2));
        let mut families = Families::default();
        policies.collect(&mut families);
        let text = families.text();
        let labels = "enforcement_action=\"deny\",error_type=\"invalid_error\",policy=\"p\",policy_binding=\"b\"";
        let name = "apiserver_validating_admission_policy_check";
        for line in [
            format!("{name}_total{{{labels}}} 2"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"0.0000005\"}} 0"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"0.01\"}} 1"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"1\"}} 2"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("{name}_duration_seconds_count{{{labels}}} 2"),
            "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"m\",policy_binding=\"b\"} 1".to_owned(),
            "apiserver_mutating_admission_policy_check_duration_seconds_sum{error_type=\"no_error\",policy=\"m\",policy_binding=\"b\"} 2"
                .to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
    }
}
