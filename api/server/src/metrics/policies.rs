//! What admission policies had to say, under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use api_admission::policy::{Checked, error_type};
use parking_lot::Mutex;

use super::header;
use super::histogram::Histogram;

/// Upper bounds of the latency buckets, in seconds: upstream's.
const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// Counts by policy and binding, and by what came of a check; there are as many as bindings were in force.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    validating: Checks,
    mutating: Checks,
}

/// The histograms of one kind of policies by their labels.
#[derive(Debug, Default)]
struct Checks(Mutex<BTreeMap<String, Histogram<{ BUCKETS.len() }>>>);

impl Policies {
    /// Counts what a validating policy found.
    pub(crate) fn validated(&self, checked: &Checked) {
        let Checked { policy, binding, error_type, enforcement_action, took } = checked;
        let labels = format!("{},enforcement_action=\"{enforcement_action}\"", labels(policy, binding, error_type));
        self.validating.observe(labels, *took);
    }

    /// Counts a change that a mutating policy made, or why it could not make it.
    pub(crate) fn mutated(&self, policy: &str, binding: &str, failure: Option<&str>, took: Duration) {
        self.mutating.observe(labels(policy, binding, error_type(failure)), took);
    }

    /// Appends the text for Prometheus.
    pub(super) fn render(&self, out: &mut String) {
        self.validating.render(
            out,
            "apiserver_validating_admission_policy",
            "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
            "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
        );
        self.mutating.render(
            out,
            "apiserver_mutating_admission_policy",
            "Mutation admission policy check total, labeled by policy and further identified by binding.",
            "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
        );
    }
}

impl Checks {
    fn observe(&self, labels: String, took: Duration) {
        self.0.lock().entry(labels).or_default().observe(&BUCKETS, took.as_secs_f64());
    }

    fn render(&self, out: &mut String, prefix: &str, count_help: &str, time_help: &str) {
        let all = self.0.lock();
        let name = format!("{prefix}_check_total");
        header(out, &name, "counter", count_help);
        for (labels, checks) in all.iter() {
            let _ = writeln!(out, "{name}{{{labels}}} {}", checks.count);
        }
        let name = format!("{prefix}_check_duration_seconds");
        header(out, &name, "histogram", time_help);
        all.iter().for_each(|(labels, checks)| checks.render(out, &name, labels, &BUCKETS));
    }
}

fn labels(policy: &str, binding: &str, error_type: &str) -> String {
    format!("policy=\"{policy}\",policy_binding=\"{binding}\",error_type=\"{error_type}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_told_by_what_came_of_them() {
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
        let mut text = String::new();
        policies.render(&mut text);
        let labels = "policy=\"p\",policy_binding=\"b\",error_type=\"invalid_error\",enforcement_action=\"deny\"";
        let name = "apiserver_validating_admission_policy_check";
        for line in [
            format!("{name}_total{{{labels}}} 2"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"0.0000005\"}} 0"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"0.01\"}} 1"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"1\"}} 2"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("{name}_duration_seconds_count{{{labels}}} 2"),
            "apiserver_mutating_admission_policy_check_total{policy=\"m\",policy_binding=\"b\",error_type=\"no_error\"} 1".to_owned(),
            "apiserver_mutating_admission_policy_check_duration_seconds_sum{policy=\"m\",policy_binding=\"b\",error_type=\"no_error\"} 2"
                .to_owned(),
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in {text}");
        }
    }
}
