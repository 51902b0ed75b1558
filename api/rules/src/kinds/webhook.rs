//! MutatingWebhookConfiguration and ValidatingWebhookConfiguration: the second is the first without
//! `reinvocationPolicy`, which its schema prunes.

use serde_json::{Value, json};

use super::Rules;
use super::policy::expressions::{Expressions, conditions_are_old};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{each, fill_absent, inner};
use crate::format;

pub mod client_config;
pub mod rule;

/// The rules of both kinds.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

/// Versions of AdmissionReview; a webhook must support one of them.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const REVIEW_VERSIONS_WORDS: &str = "v1, v1beta1";
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
/// The allowed timeouts, in seconds.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<i64> = 1..=30;

fn default(object: &mut Value) {
    let is_mutating = object.get("kind").and_then(Value::as_str) == Some("MutatingWebhookConfiguration");
    let Some(fields) = object.as_object_mut() else { return };
    for webhook in each(fields, "webhooks") {
        fill_absent(webhook, "failurePolicy", "Fail");
        fill_absent(webhook, "matchPolicy", "Equivalent");
        fill_absent(webhook, "namespaceSelector", json!({}));
        fill_absent(webhook, "objectSelector", json!({}));
        fill_absent(webhook, "timeoutSeconds", 10);
        if is_mutating {
            fill_absent(webhook, "reinvocationPolicy", "Never");
        }
        for rule in each(webhook, "rules") {
            fill_absent(rule, "scope", "*");
        }
        if let Some(service) = inner(webhook, "clientConfig").and_then(|config| inner(config, "service")) {
            fill_absent(service, "port", 443);
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate_all(object, None, checks);
}

/// Match conditions that an update does not change are not compiled again.
fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_all(new, Some(old), checks);
}

fn validate_all(object: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    let mut names: Vec<&str> = Vec::new();
    for (index, webhook) in object.get("webhooks").items().enumerate() {
        validate(&webhook, old.map(|old| old.get("webhooks").index(index)).as_ref(), checks);
        let name = webhook.get("name");
        if names.contains(&name.text()) {
            checks.duplicate(&name);
        } else if !name.text().is_empty() {
            names.push(name.text());
        }
    }
}

fn validate(webhook: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    name(&webhook.get("name"), checks);
    for rule in webhook.get("rules").items() {
        rule::validate(&rule, checks);
    }
    checks.one_of_if_set(&webhook.get("failurePolicy"), &["Fail", "Ignore"]);
    checks.one_of_if_set(&webhook.get("matchPolicy"), &["Equivalent", "Exact"]);
    let side_effects = webhook.get("sideEffects");
    if side_effects.exists() {
        checks.one_of_if_set(&side_effects, &SIDE_EFFECTS);
    } else {
        checks.required(&side_effects, "must specify one of None, NoneOnDryRun");
    }
    let timeout = webhook.get("timeoutSeconds");
    if timeout.number().is_some_and(|seconds| !TIMEOUT_SECONDS.contains(&seconds)) {
        checks.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
    }
    checks.label_selector(&webhook.get("namespaceSelector"));
    checks.label_selector(&webhook.get("objectSelector"));
    checks.one_of_if_set(&webhook.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
    client_config::validate(&webhook.get("clientConfig"), checks);
    if !old.is_some_and(|old| conditions_are_old(webhook, old)) {
        Expressions::new(webhook, false).conditions(&webhook.get("matchConditions"), checks);
    }
    review_versions(&webhook.get("admissionReviewVersions"), checks);
}

/// The name of a webhook must be a domain name with at least three labels.
fn name(at: &At<'_>, checks: &mut Checks) {
    if at.text().is_empty() {
        return checks.required(at, "");
    }
    let before = checks.count();
    checks.dns_subdomain(at);
    if checks.count() == before && at.text().split('.').count() < 3 {
        checks.invalid(at, "should be a domain with at least three segments separated by dots");
    }
}

fn review_versions(versions: &At<'_>, checks: &mut Checks) {
    if versions.len() == 0 {
        return checks.required(versions, &format!("must specify one of {REVIEW_VERSIONS_WORDS}"));
    }
    let mut seen: Vec<&str> = Vec::new();
    for version in versions.items() {
        if seen.contains(&version.text()) {
            checks.invalid(&version, "duplicate version");
            continue;
        }
        seen.push(version.text());
        checks.format(&version, format::dns_1035_label(version.text()));
    }
    if !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        checks.invalid(versions, format!("must include at least one of {REVIEW_VERSIONS_WORDS}"));
    }
}
