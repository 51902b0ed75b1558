//! Shared checks of Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController and Job: the selector,
//! the template, and the counts of the status.

use api_model::selector::Selector;
use serde_json::Value;

use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// A selector must be set, valid and not empty. `owner` is upstream's name of the kind in messages.
pub fn selector(selector: &At<'_>, owner: &str, checks: &mut Checks) {
    if !selector.exists() {
        return checks.required(selector, "");
    }
    checks.label_selector(selector);
    if selector.get("matchLabels").len() + selector.get("matchExpressions").len() == 0 {
        checks.invalid(selector, format!("empty selector is invalid for {owner}"));
    }
}

/// The template's labels must match the selector.
pub fn selector_matches(selector: &At<'_>, template: &At<'_>, checks: &mut Checks) {
    let Ok(parsed) = Selector::from_label_selector(selector.value()) else {
        return checks.invalid(selector, "invalid label selector");
    };
    matches(&parsed, template, checks);
}

/// As `selector_matches`, for a parsed selector.
pub fn matches(selector: &Selector, template: &At<'_>, checks: &mut Checks) {
    let labels = template.get("metadata").get("labels");
    if !selector.is_everything() && !selector.matches_by(&|key| labels.get(key).value().and_then(Value::as_str)) {
        checks.invalid(&labels, "`selector` does not match template `labels`");
    }
}

/// The Pods of the template must always restart and must have no deadline.
pub fn always_restarts(template: &At<'_>, owner: &str, checks: &mut Checks) {
    let spec = template.get("spec");
    if spec.get("restartPolicy").text() != "Always" {
        checks.not_supported(&spec.get("restartPolicy"), &["Always"]);
    }
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.exists() {
        checks.forbidden(&deadline, format!("activeDeadlineSeconds in {owner} is not Supported"));
    }
}

/// A number that is not negative, or a percentage.
pub fn int_or_percent(at: &At<'_>, checks: &mut Checks) {
    if at.value().is_some_and(Value::is_string) {
        checks.format(at, format::percent(at.text()));
    } else {
        checks.not_negative(at);
    }
}

/// A percentage must not exceed 100.
pub fn at_most_all(at: &At<'_>, checks: &mut Checks) {
    if percent(at).is_some_and(|percent| percent > 100) {
        checks.invalid(at, "must not be greater than 100%");
    }
}

fn percent(at: &At<'_>) -> Option<i64> {
    let digits = at.text().strip_suffix('%')?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Whether a number or percentage is zero.
pub fn is_nothing(at: &At<'_>) -> bool {
    percent(at).unwrap_or_else(|| at.int()) == 0
}

/// Counts of a status: no count is negative, and no count in `bounded` is greater than `replicas`.
pub fn status_counts(status: &At<'_>, all: &[&str], bounded: &[&str], checks: &mut Checks) {
    for field in all {
        checks.not_negative(&status.get(field));
    }
    let replicas = status.get("replicas").int();
    for field in bounded {
        if status.get(field).int() > replicas {
            checks.invalid(&status.get(field), "cannot be greater than status.replicas");
        }
    }
    let available = status.get("availableReplicas");
    if all.contains(&"readyReplicas") && available.int() > status.get("readyReplicas").int() {
        checks.invalid(&available, "cannot be greater than readyReplicas");
    }
}

/// A collision count must not decrease.
pub fn collision_count(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let (now, before) = (new.find("status.collisionCount"), old.find("status.collisionCount"));
    if now.int() < before.int() {
        checks.invalid_value(&now.path, now.int(), "cannot be decremented");
    }
}

/// Warnings about the template.
pub fn warnings(object: &At<'_>) -> Vec<String> {
    crate::pod::warnings::for_pod(&object.find("spec.template"))
}
