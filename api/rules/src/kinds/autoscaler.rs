//! HorizontalPodAutoscaler, in the form of `autoscaling/v2`, in which it is stored; `autoscaling/v1` is a
//! view of it.

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::{Checks, NOT_NEGATIVE};
use crate::edit::{self, Fields, fill_absent, is_list_empty};
use crate::pod::resources;
use crate::{format, quantity};

/// The rules of HorizontalPodAutoscalers.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

/// The longest stabilization window, over which the autoscaler looks at its recommendations.
const STABILIZATION_SECONDS_MAX: i64 = 3_600;
/// The longest period of a scaling policy.
const PERIOD_SECONDS_MAX: i64 = 1_800;
/// The target utilization when the object names no metric.
const CPU_PERCENT: i64 = 80;
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else { return };
    fill_absent(spec, "minReplicas", 1);
    if is_list_empty(spec, "metrics") {
        let target = json!({"type": "Utilization", "averageUtilization": CPU_PERCENT});
        spec.insert("metrics".to_owned(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
    if let Some(behavior) = edit::inner(spec, "behavior") {
        let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
        if let Some(rules) = scaling(behavior, "scaleUp", up) {
            fill_absent(rules, "stabilizationWindowSeconds", 0);
        }
        scaling(behavior, "scaleDown", json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn scaling<'a>(behavior: &'a mut Fields, direction: &str, policies: Value) -> Option<&'a mut Fields> {
    let rules = edit::make(behavior, direction)?;
    fill_absent(rules, "selectPolicy", "Max");
    fill_absent(rules, "policies", policies);
    Some(rules)
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if least.int() < 0 {
        checks.invalid(&least, NOT_NEGATIVE);
    }
    if most.int() < 1 {
        checks.invalid_value(&most.path, most.int(), "must be greater than 0");
    }
    if least.exists() && most.int() < least.int() {
        checks.invalid_value(&most.path, most.int(), "must be greater than or equal to `minReplicas`");
    }
    reference(&spec.get("scaleTargetRef"), checks);
    let metrics = spec.get("metrics");
    for each in metrics.items() {
        metric(&each, checks);
    }
    let counts_without_pods = |metric: &At<'_>| matches!(metric.get("type").text(), "Object" | "External");
    if least.exists() && least.int() == 0 && !metrics.items().any(|each| counts_without_pods(&each)) {
        checks.forbidden(&metrics, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.get("behavior").get(direction);
        if rules.exists() {
            behavior(&rules, checks);
        }
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        return validate_create(new, checks);
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        checks.not_negative(&new.get("status").get(field));
    }
}

/// Checks kind and name; each must be a path segment.
fn reference(reference: &At<'_>, checks: &mut Checks) {
    for field in ["kind", "name"] {
        segment(&reference.get(field), "", checks);
    }
}

fn segment(at: &At<'_>, missing: &str, checks: &mut Checks) {
    if at.text().is_empty() {
        checks.required(at, missing);
    } else {
        checks.format(at, format::path_segment(at.text()));
    }
}

fn metric(metric: &At<'_>, checks: &mut Checks) {
    let kind = metric.get("type");
    let kinds = SOURCES.map(|(kind, _)| kind);
    if kind.text().is_empty() {
        checks.required(&kind, "must specify a metric source type");
    }
    if !kinds.contains(&kind.text()) {
        checks.not_supported(&kind, &kinds);
    }
    // As upstream, only the first of these fields that is set is checked.
    let present: Vec<&str> =
        ["object", "external", "pods", "resource", "containerResource"].into_iter().filter(|field| metric.get(field).exists()).collect();
    if let Some(field) = present.first() {
        source(field, &metric.get(field), checks);
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| *field);
    match expected {
        Some(field) if !present.contains(&field) => {
            checks.required(&metric.get(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => checks.not_supported(&kind, &kinds),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            checks.forbidden(&metric.get(field), "must populate the given metric source only");
        }
    }
}

fn source(field: &str, source: &At<'_>, checks: &mut Checks) {
    let target = source.get("target");
    let (value, average, utilization) = (target.get("value"), target.get("averageValue"), target.get("averageUtilization"));
    match field {
        "object" => {
            reference(&source.get("describedObject"), checks);
            identifier(&source.get("metric"), checks);
        }
        "external" | "pods" => identifier(&source.get("metric"), checks),
        _ => resource(field, source, checks),
    }
    self::target(&target, checks);
    match field {
        "object" if !value.exists() && !average.exists() => {
            checks.required(&average, "must set either a target value or averageValue");
        }
        "external" if !value.exists() && !average.exists() => {
            checks.required(&average, "must set either a target value for metric or a per-pod target");
        }
        "external" if value.exists() && average.exists() => {
            checks.forbidden(&value, "may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average.exists() => checks.required(&average, "must specify a positive target averageValue"),
        "resource" | "containerResource" if !utilization.exists() && !average.exists() => {
            checks.required(&utilization, "must set either a target raw value or a target utilization");
        }
        "resource" | "containerResource" if utilization.exists() && average.exists() => {
            checks.forbidden(&average, "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn resource(field: &str, source: &At<'_>, checks: &mut Checks) {
    let name = source.get("name");
    if name.text().is_empty() {
        checks.required(&name, "must specify a resource name");
    } else {
        resources::validate_container_name(&name.path, name.text(), checks);
    }
    let container = source.get("container");
    match (field, container.text()) {
        ("containerResource", "") => checks.required(&container, "must specify a container"),
        ("containerResource", _) => checks.dns_label(&container),
        _ => {}
    }
}

fn identifier(metric: &At<'_>, checks: &mut Checks) {
    segment(&metric.get("name"), "must specify a metric name", checks);
}

fn target(target: &At<'_>, checks: &mut Checks) {
    let kind = target.get("type");
    if kind.text().is_empty() {
        checks.required(&kind, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        checks.invalid_value(&kind.path, kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = target.get(field);
        if quantity::parse(amount.text()).is_ok_and(|parsed| parsed.nano() <= 0) {
            checks.invalid(&amount, "must be positive");
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.exists() && utilization.int() < 1 {
        checks.invalid(&utilization, "must be greater than 0");
    }
}

fn behavior(rules: &At<'_>, checks: &mut Checks) {
    let window = rules.get("stabilizationWindowSeconds");
    if window.int() < 0 {
        checks.invalid(&window, "must be greater than or equal to zero");
    }
    if window.int() > STABILIZATION_SECONDS_MAX {
        checks.invalid(&window, format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}"));
    }
    checks.one_of_if_set(&rules.get("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = rules.get("policies");
    if policies.len() == 0 {
        checks.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        if !["Pods", "Percent"].contains(&policy.get("type").text()) {
            checks.not_supported(&policy.get("type"), &["Percent", "Pods"]);
        }
        checks.positive(&policy.get("value"));
        checks.positive(&policy.get("periodSeconds"));
        if policy.get("periodSeconds").int() > PERIOD_SECONDS_MAX {
            checks.invalid(&policy.get("periodSeconds"), format!("must be less than or equal to {PERIOD_SECONDS_MAX}"));
        }
    }
    let tolerance = rules.get("tolerance");
    if quantity::parse(tolerance.text()).is_ok_and(|parsed| parsed.nano() < 0) {
        checks.invalid(&tolerance, NOT_NEGATIVE);
    }
}
