//! ValidatingAdmissionPolicy: expressions that must be true for a request.

use api_cel::admission::Wanted;
use serde_json::Value;

use super::expressions::{Expressions, conditions_are_old};
use super::{constraints, default_spec};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::spec;
use crate::kinds::Rules;

/// The rules of the kind.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

const AUDIT_ANNOTATIONS_MAX: usize = 20;
/// Less than the limit of an annotation, because an expression that joins texts can yield a longer text than itself.
const VALUE_EXPRESSION_BYTES_MAX: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const NEITHER: &str = "validations or auditAnnotations must contain at least one item";

fn default(object: &mut Value) {
    if let Some(spec) = spec(object) {
        default_spec(spec);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate(object, None, checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    match sub {
        Some("status") => status(&new.get("status"), checks),
        _ => validate(new, Some(old), checks),
    }
}

fn validate(object: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    let spec = object.get("spec");
    constraints(&spec, checks);
    let mut expressions = Expressions::new(&spec, false);
    if !old.is_some_and(|old| conditions_are_old(&spec, &old.get("spec"))) {
        expressions.conditions(&spec.get("matchConditions"), checks);
    }
    expressions.declare(&spec.get("variables"), checks);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.len() == 0 && annotations.len() == 0 {
        checks.required(&validations, NEITHER);
        return checks.required(&annotations, NEITHER);
    }
    for item in validations.items() {
        validation(&item, &expressions, checks);
    }
    if annotations.len() > AUDIT_ANNOTATIONS_MAX {
        checks.invalid(&annotations, format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations"));
    }
    let (name, mut keys) = (object.find("metadata.name"), Vec::new());
    for item in annotations.items() {
        annotation(&item, name.text(), &expressions, checks);
        let key = item.get("key");
        if keys.contains(&key.text()) {
            checks.duplicate(&key);
        } else {
            keys.push(key.text());
        }
    }
}

fn validation(at: &At<'_>, expressions: &Expressions, checks: &mut Checks) {
    let (expression, message) = (at.get("expression"), at.get("message"));
    if expression.text().trim().is_empty() {
        checks.required(&expression, "expression is not specified");
    } else {
        expressions.check(&expression, expression.text(), Wanted::Bool, checks);
    }
    let made = at.get("messageExpression");
    if !made.text().trim().is_empty() {
        expressions.check_message(&made, checks);
    } else if !made.text().is_empty() {
        checks.invalid(&made, "must be non-empty if specified");
    }
    if message.text().trim().contains(['\n', '\r']) {
        checks.invalid(&message, "message must not contain line breaks");
    } else if !message.text().is_empty() && message.text().trim().is_empty() {
        checks.invalid(&message, "message must be non-empty if specified");
    }
    checks.one_of_if_set(&at.get("reason"), &REASONS);
}

fn annotation(at: &At<'_>, policy: &str, expressions: &Expressions, checks: &mut Checks) {
    let (key, value) = (at.get("key"), at.get("valueExpression"));
    if policy.is_empty() {
        checks.invalid(&key, "requires metadata.name be non-empty");
    } else {
        let full = format!("{policy}/{}", key.text());
        for complaint in crate::format::qualified_name(&full) {
            checks.invalid_value(&key.path, full.as_str(), complaint);
        }
    }
    match value.text().trim() {
        "" => checks.required(&value, "valueExpression is not specified"),
        text if text.len() > VALUE_EXPRESSION_BYTES_MAX => {
            checks.required(&value, &format!("must not exceed {VALUE_EXPRESSION_BYTES_MAX} bytes in length"));
        }
        text => expressions.check(&value, text, Wanted::TextOrNull, checks),
    }
}

fn status(status: &At<'_>, checks: &mut Checks) {
    // Upstream's paths do not contain the name of the list.
    for warning in status.find("typeChecking.expressionWarnings").items() {
        for field in ["warning", "fieldRef"] {
            if warning.get(field).text().trim().is_empty() {
                checks.required(&warning.get(field), "");
            }
        }
    }
}
