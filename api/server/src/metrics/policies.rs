//! The checks of admission policies, under upstream's names.

use std::time::Duration;

use api_admission::policy::{Checked, error_type};
use api_metrics::{Counters, Families, Histograms};

/// Upper bounds of the latency buckets, in seconds: upstream's.
const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// The checks by policy, binding and result. There are as many series as bindings were in force.
pub(crate) struct Policies {
    validating: Checks<4>,
    mutating: Checks<3>,
}

/// The checks of one kind of policies.
struct Checks<const N: usize> {
    total: Counters<N>,
    seconds: Histograms<N>,
}

impl Default for Policies {
    fn default() -> Self {
        let labels = ["policy", "policy_binding", "error_type", "enforcement_action"];
        let validating = Checks {
            total: Counters::new(
                "apiserver_validating_admission_policy_check_total",
                "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
                labels,
            ),
            seconds: Histograms::new(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
                labels,
                &BUCKETS,
            ),
        };
        let labels = ["policy", "policy_binding", "error_type"];
        let mutating = Checks {
            total: Counters::new(
                "apiserver_mutating_admission_policy_check_total",
                "Mutation admission policy check total, labeled by policy and further identified by binding.",
                labels,
            ),
            seconds: Histograms::new(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
                labels,
                &BUCKETS,
            ),
        };
        Self { validating, mutating }
    }
}

impl Policies {
    /// Counts the check of a validating policy.
    pub(crate) fn validated(&self, checked: &Checked) {
        let Checked { policy, binding, error_type, enforcement_action, took } = checked;
        self.validating.observe([policy, binding, error_type, enforcement_action], *took);
    }

    /// Counts the change of a mutating policy, or the failure of the change.
    pub(crate) fn mutated(&self, policy: &str, binding: &str, failure: Option<&str>, took: Duration) {
        self.mutating.observe([policy, binding, error_type(failure)], took);
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        self.validating.add_to(families);
        self.mutating.add_to(families);
    }
}

impl<const N: usize> Checks<N> {
    fn observe(&self, labels: [&str; N], took: Duration) {
        self.total.count(labels);
        self.seconds.observe(labels, took.as_secs_f64());
    }

    fn add_to(&self, families: &mut Families) {
        self.total.add_to(families);
        self.seconds.add_to(families);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_by_their_result() {
        let policies = Policies::default();
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
        policies.add_to(&mut families);
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
