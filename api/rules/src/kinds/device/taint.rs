//! Taints of devices, and the tolerations of requests.

use api_model::meta;
use serde_json::Value;

use super::pool_name;
use crate::at::At;
use crate::checks::Checks;
use crate::kinds::storage::driver_name;
use crate::{conditions, edit, format};

const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
/// Most conditions of a DeviceTaintRule.
const CONDITIONS_MAX: usize = 8;

/// A taint without a time was added now.
pub(super) fn default(taint: &mut edit::Fields) {
    edit::fill_absent(taint, "timeAdded", meta::time(api_clock::now()));
}

pub(super) fn default_rule(rule: &mut Value) {
    if let Some(taint) = rule.pointer_mut("/spec/taint").and_then(Value::as_object_mut) {
        default(taint);
    }
}

/// A taint that has another effect was added now, unless the update says when.
pub(super) fn prepare_rule_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    let field = |rule: &Value, field: &str| At::root(rule).find("spec.taint").get(field).text().to_owned();
    let has_another = |name: &str| field(new, name) != field(old, name);
    if sub.is_some() || !has_another("effect") || has_another("timeAdded") {
        return;
    }
    if let Some(taint) = new.pointer_mut("/spec/taint").and_then(Value::as_object_mut) {
        taint.insert("timeAdded".to_owned(), meta::time(api_clock::now()).into());
    }
}

/// A DeviceTaintRule.
pub(super) fn validate_rule(rule: &At<'_>, checks: &mut Checks) {
    let selector = rule.find("spec.deviceSelector");
    if selector.get("driver").exists() {
        driver_name(&selector.get("driver"), checks);
    }
    if selector.get("pool").exists() {
        pool_name(&selector.get("pool"), checks);
    }
    if selector.get("device").exists() {
        checks.dns_label(&selector.get("device"));
    }
    validate(&rule.find("spec.taint"), checks);
}

pub(super) fn update_rule(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        return validate_rule(new, checks);
    }
    let conditions = new.find("status.conditions");
    conditions::validate(&conditions, checks);
    if conditions.len() > CONDITIONS_MAX {
        checks.too_many(&conditions, CONDITIONS_MAX);
    }
}

/// A taint.
pub(super) fn validate(taint: &At<'_>, checks: &mut Checks) {
    checks.qualified_name(&taint.get("key"));
    checks.format(&taint.get("value"), format::label_value(taint.get("value").text()));
    checks.one_of(&taint.get("effect"), &EFFECTS);
}

/// A toleration.
pub(super) fn toleration(toleration: &At<'_>, checks: &mut Checks) {
    let (key, operator, value) = (toleration.get("key"), toleration.get("operator"), toleration.get("value"));
    if !key.text().is_empty() {
        checks.qualified_name(&key);
    }
    match operator.text() {
        "Exists" if !value.text().is_empty() => checks.invalid(&value, "must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => checks.format(&value, format::label_value(value.text())),
        _ => checks.one_of(&operator, &["Equal", "Exists"]),
    }
    if !toleration.get("effect").text().is_empty() {
        checks.one_of(&toleration.get("effect"), &EFFECTS);
    }
}
