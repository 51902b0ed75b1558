//! PodDisruptionBudget.

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::{conditions, format};

/// The rules of PodDisruptionBudgets.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if least.exists() && most.exists() {
        checks.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
    }
    for amount in [&least, &most] {
        if amount.exists() {
            workload::int_or_percent(amount, checks);
            workload::at_most_all(amount, checks);
        }
    }
    checks.label_selector(&spec.get("selector"));
    checks.one_of_if_set(&spec.get("unhealthyPodEvictionPolicy"), &["AlwaysAllow", "IfHealthyBudget"]);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        return validate_create(new, checks);
    }
    let status = new.get("status");
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        checks.not_negative(&status.get(field));
    }
    conditions::validate(&status.get("conditions"), checks);
    for (name, at) in status.get("disruptedPods").entries() {
        for message in format::dns_subdomain(name) {
            checks.invalid_value(&at.path, name, message);
        }
    }
}
