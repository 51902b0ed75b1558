//! `autoscaling/v1` HorizontalPodAutoscalers are views of those of `autoscaling/v2`, which can have more than one
//! metric. Fields that the older version does not have are in annotations, with the older version's names. So a client
//! of the older version that writes back what it read loses nothing.

use api_rules::FieldValidation;
use serde_json::{Map, Value, json};

use super::Conversion;

pub(super) const CONVERSION: Conversion = Conversion { to_stored, from_stored, stored_field };

type Fields = Map<String, Value>;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// For each source of a metric: a field's name in the older version, and its path in the newer one.
type Spelling = &'static [(&'static str, &'static [(&'static str, &'static str)])];

const WANTED: Spelling = &[
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("targetValue", "target.value"),
            ("averageValue", "target.averageValue"),
        ],
    ),
    ("pods", &[("metricName", "metric.name"), ("selector", "metric.selector"), ("targetAverageValue", "target.averageValue")]),
    (
        "resource",
        &[("name", "name"), ("targetAverageUtilization", "target.averageUtilization"), ("targetAverageValue", "target.averageValue")],
    ),
    (
        "containerResource",
        &[
            ("name", "name"),
            ("container", "container"),
            ("targetAverageUtilization", "target.averageUtilization"),
            ("targetAverageValue", "target.averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("targetValue", "target.value"),
            ("targetAverageValue", "target.averageValue"),
        ],
    ),
];

const FOUND: Spelling = &[
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("currentValue", "current.value"),
            ("averageValue", "current.averageValue"),
        ],
    ),
    ("pods", &[("metricName", "metric.name"), ("selector", "metric.selector"), ("currentAverageValue", "current.averageValue")]),
    (
        "resource",
        &[("name", "name"), ("currentAverageUtilization", "current.averageUtilization"), ("currentAverageValue", "current.averageValue")],
    ),
    (
        "containerResource",
        &[
            ("name", "name"),
            ("container", "container"),
            ("currentAverageUtilization", "current.averageUtilization"),
            ("currentAverageValue", "current.averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("currentValue", "current.value"),
            ("currentAverageValue", "current.averageValue"),
        ],
    ),
];

fn to_stored(autoscaler: &mut Value) {
    let metrics = unpack(autoscaler, METRICS, "spec", "metrics", |list| respelled(list, WANTED, newer));
    let behavior = unpack(autoscaler, BEHAVIOR, "spec", "behavior", Some);
    let current = unpack(autoscaler, CURRENT_METRICS, "status", "currentMetrics", |list| respelled(list, FOUND, newer));
    let conditions = unpack(autoscaler, CONDITIONS, "status", "conditions", Some);
    let Some(object) = autoscaler.as_object_mut() else { return };
    object.insert("apiVersion".to_owned(), "autoscaling/v2".into());
    if let Some(spec) = inner(object, "spec", metrics.is_some() || behavior.is_some()) {
        let percent = spec.remove("targetCPUUtilizationPercentage");
        let target = |percent| json!({"type": "Utilization", "averageUtilization": percent});
        let cpu = percent.map(|percent| json!({"type": "Resource", "resource": {"name": "cpu", "target": target(percent)}}));
        let others = metrics.as_ref().and_then(Value::as_array).into_iter().flatten().cloned();
        let all: Vec<Value> = cpu.into_iter().chain(others).collect();
        if !all.is_empty() {
            spec.insert("metrics".to_owned(), all.into());
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = inner(object, "status", current.is_some() || conditions.is_some()) {
        let percent = status.remove("currentCPUUtilizationPercentage");
        let cpu = |percent| json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}]);
        // The annotation has more data than the percentage.
        if let Some(metrics) = current.or_else(|| percent.map(cpu)) {
            status.insert("currentMetrics".to_owned(), metrics);
        }
        if let Some(conditions) = conditions {
            status.insert("conditions".to_owned(), conditions);
        }
    }
}

fn from_stored(autoscaler: &mut Value) {
    let mut notes: Vec<(&str, Value)> = Vec::new();
    let Some(object) = autoscaler.as_object_mut() else { return };
    object.insert("apiVersion".to_owned(), "autoscaling/v1".into());
    if let Some(spec) = inner(object, "spec", false) {
        let metrics = spec.remove("metrics");
        let metrics = metrics.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if let Some(percent) = metrics.iter().find(|metric| is_cpu(metric)).and_then(|metric| utilization(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent.clone());
        }
        let others: Vec<Value> =
            metrics.iter().filter(|metric| !is_cpu(metric) || utilization(metric, "target").is_none()).cloned().collect();
        if !others.is_empty() {
            notes.extend(respelled(others.into(), WANTED, older).map(|list| (METRICS, list)));
        }
        notes.extend(spec.remove("behavior").map(|behavior| (BEHAVIOR, behavior)));
    }
    if let Some(status) = inner(object, "status", false) {
        let current = status.remove("currentMetrics").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        let cpu = current.as_ref().and_then(Value::as_array).and_then(|list| list.iter().rfind(|metric| is_cpu(metric)));
        if let Some(percent) = cpu.and_then(|metric| utilization(metric, "current")) {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent.clone());
        }
        notes.extend(current.and_then(|list| respelled(list, FOUND, older)).map(|list| (CURRENT_METRICS, list)));
        let conditions = status.remove("conditions").filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
        notes.extend(conditions.map(|conditions| (CONDITIONS, conditions)));
        for count in ["currentReplicas", "desiredReplicas"] {
            status.entry(count).or_insert_with(|| 0.into());
        }
    }
    annotate(object, notes);
}

fn annotate(object: &mut Fields, notes: Vec<(&str, Value)>) {
    if notes.is_empty() {
        return;
    }
    let annotations = inner(object, "metadata", true).and_then(|metadata| inner(metadata, "annotations", true));
    if let Some(annotations) = annotations {
        annotations.extend(notes.into_iter().map(|(name, value)| (name.to_owned(), value.to_string().into())));
    }
}

/// An object in a field. If it does not exist and `make` is set, it is created.
fn inner<'a>(object: &'a mut Fields, name: &str, make: bool) -> Option<&'a mut Fields> {
    if make && !object.get(name).is_some_and(Value::is_object) {
        object.insert(name.to_owned(), json!({}));
    }
    object.get_mut(name).and_then(Value::as_object_mut)
}

/// Removes an annotation and writes its content into the stored field that it represents. Every user may write the
/// annotation, so content that does not fit the field is dropped, as in upstream.
fn unpack(
    autoscaler: &mut Value,
    annotation: &str,
    part: &str,
    field: &str,
    convert: impl FnOnce(Value) -> Option<Value>,
) -> Option<Value> {
    let annotations = autoscaler.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(annotation)?;
    if annotations.is_empty() {
        autoscaler.get_mut("metadata")?.as_object_mut()?.remove("annotations");
    }
    let value = convert(serde_json::from_str(text.as_str()?).ok()?)?;
    let kind = api_model::kind::find_by_kind("autoscaling/v2", "HorizontalPodAutoscaler")?;
    let mut probe = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", part: {field: value}});
    api_rules::check_fields(kind, &mut probe, &[], FieldValidation::Ignore).ok()?;
    probe.get_mut(part)?.as_object_mut()?.remove(field)
}

fn is_cpu(metric: &Value) -> bool {
    metric.get("type").and_then(Value::as_str) == Some("Resource")
        && metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu")
}

fn utilization<'a>(metric: &'a Value, side: &str) -> Option<&'a Value> {
    metric.get("resource")?.get(side)?.get("averageUtilization").filter(|percent| !percent.is_null())
}

/// A list of metrics with the names of the other version.
fn respelled(list: Value, spelling: Spelling, respell: fn(&Value, &[(&str, &str)]) -> Value) -> Option<Value> {
    let Value::Array(list) = list else { return None };
    let metrics = list.into_iter().map(|mut metric| {
        for (source, fields) in spelling {
            if let Some(value) = metric.get_mut(source).filter(|value| value.is_object()) {
                *value = respell(value, fields);
            }
        }
        metric
    });
    Some(metrics.collect())
}

fn older(source: &Value, fields: &[(&str, &str)]) -> Value {
    let at = |path: &str| path.split('.').try_fold(source, |value, name| value.get(name));
    fields.iter().filter_map(|(old, path)| at(path).map(|value| ((*old).to_owned(), value.clone()))).collect::<Fields>().into()
}

fn newer(source: &Value, fields: &[(&str, &str)]) -> Value {
    let mut out = Fields::new();
    for (old, path) in fields {
        let Some(value) = source.get(old).filter(|value| !value.is_null()) else { continue };
        match path.split_once('.') {
            // The older version writes a zero for an absent value.
            Some(("target" | "current", "value")) if value.as_str() == Some("0") => {}
            Some((outer, field)) => {
                if let Some(outer) = inner(&mut out, outer, true) {
                    outer.insert(field.to_owned(), value.clone());
                }
            }
            None => {
                out.insert((*path).to_owned(), value.clone());
            }
        }
    }
    if let Some(target) = inner(&mut out, "target", false) {
        let kinds = [("averageUtilization", "Utilization"), ("averageValue", "AverageValue"), ("value", "Value")];
        if let Some((_, kind)) = kinds.iter().find(|(field, _)| target.contains_key(*field)) {
            target.insert("type".to_owned(), (*kind).into());
        }
    }
    out.into()
}

fn stored_field(path: &str) -> Option<&'static str> {
    ["metadata.name", "metadata.namespace"].into_iter().find(|field| *field == path)
}

#[cfg(test)]
mod tests;
