//! FlowSchema: which requests it selects, and their priority level.

use serde_json::Value;

use super::{Rules, mandatory};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{fill, spec};
use crate::format;

mod rule;

/// The rules of FlowSchemas.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

/// The default precedence, and the highest one.
const PRECEDENCE: i64 = 1_000;
const PRECEDENCE_MAX: i64 = 10_000;

fn default(object: &mut Value) {
    let Some(spec) = spec(object) else { return };
    fill(spec, "matchingPrecedence", PRECEDENCE);
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let (name, spec) = (object.find("metadata.name").text(), object.get("spec"));
    precedence(name, &spec.get("matchingPrecedence"), checks);
    let method = spec.get("distinguisherMethod");
    if method.exists() && !["ByNamespace", "ByUser"].contains(&method.get("type").text()) {
        let path = method.path.child("type");
        checks.push(api_model::field::FieldError::not_supported(&path, method.value_or_null(), &["ByNamespace", "ByUser"]));
    }
    let level = spec.get("priorityLevelConfiguration").get("name");
    if level.text().is_empty() {
        checks.required(&level, "must reference a priority level");
    } else {
        checks.format(&level, format::dns_subdomain(level.text()));
    }
    for rule in spec.get("rules").items() {
        rule::validate(&rule, checks);
    }
    mandatory::validate("FlowSchema", object, checks);
    validate_conditions(object, checks);
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
}

fn precedence(name: &str, at: &At<'_>, checks: &mut Checks) {
    match at.int() {
        ..=0 => checks.invalid(at, "must be a positive value"),
        1 if name != "exempt" => checks.invalid(at, "only the schema named 'exempt' may have matchingPrecedence 1"),
        value if value > PRECEDENCE_MAX => checks.invalid(at, format!("must not be greater than {PRECEDENCE_MAX}")),
        _ => {}
    }
}

/// The types of conditions must be unique.
pub(super) fn validate_conditions(object: &At<'_>, checks: &mut Checks) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in object.find("status.conditions").items() {
        let kind = condition.get("type");
        if seen.contains(&kind.text()) {
            checks.duplicate(&kind);
        }
        if kind.text().is_empty() {
            checks.required(&kind, "must not be empty");
        }
        seen.push(kind.text());
    }
}
