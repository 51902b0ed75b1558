//! The HorizontalPodAutoscaler of a ScaledObject: upstream's name, labels, bounds and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_model::message::Message;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec,
    MetricSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::{Map, Value, json};

use super::annotations::{EXCLUDED_LABELS, Pauses};
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::ScaledObjectSpec;
use crate::keda::status::TargetKind;
use crate::keda::triggers::Trigger;
use crate::keda::{MANAGER, SCALED_OBJECT_NAME, VERSION};
use crate::meta;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The name of the autoscaler.
pub fn name(object: &str, spec: &ScaledObjectSpec) -> String {
    let chosen = spec.autoscaler().map(|config| config.name.clone()).filter(|name| !name.is_empty());
    chosen.unwrap_or_else(|| format!("keda-hpa-{object}"))
}

/// The metrics of the triggers, in upstream's order, and the names for the status: of external metrics, of resources.
pub fn metrics(object: &str, triggers: &[Arc<Trigger>]) -> Result<(Vec<MetricSpec>, [Vec<String>; 2]), Message> {
    let mut metrics: Vec<MetricSpec> = triggers.iter().map(|trigger| trigger.metric.clone()).collect();
    let (mut externals, mut resources) = (Vec::new(), Vec::new());
    for metric in &mut metrics {
        if let Some(external) = &mut metric.external {
            let labels = BTreeMap::from([(SCALED_OBJECT_NAME.to_owned(), object.to_owned())]);
            external.metric.selector = Some(LabelSelector { match_labels: Some(labels), match_expressions: None });
            externals.push(external.metric.name.clone());
        }
        resources.extend(metric.resource.iter().map(|resource| resource.name.clone()));
    }
    if let Some(name) = externals.iter().enumerate().find_map(|(at, name)| externals.iter().skip(at + 1).find(|other| *other == name)) {
        return Err(format!("metricName {name} defined multiple times in ScaledObject {object}").into());
    }
    metrics.sort_by(|a, b| a.type_.cmp(&b.type_));
    Ok((metrics, [externals, resources]))
}

/// The autoscaler that a ScaledObject wants.
pub fn wanted(object: &ScaledObject, spec: &ScaledObjectSpec, kind: &TargetKind, metrics: Vec<MetricSpec>) -> HorizontalPodAutoscaler {
    let own = &object.metadata;
    let name = name(meta::name(own), spec);
    let pauses = Pauses::of(own);
    let mut behavior = spec.autoscaler().and_then(|config| config.behavior.clone());
    let stop = |rules: &mut Option<HPAScalingRules>| rules.get_or_insert_default().select_policy = Some("Disabled".to_owned());
    if pauses.scale_in {
        stop(&mut behavior.get_or_insert_with(HorizontalPodAutoscalerBehavior::default).scale_down);
    }
    if pauses.scale_out {
        stop(&mut behavior.get_or_insert_with(HorizontalPodAutoscalerBehavior::default).scale_up);
    }
    let mut labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), name.clone()),
        ("app.kubernetes.io/version".to_owned(), VERSION.to_owned()),
        ("app.kubernetes.io/part-of".to_owned(), meta::name(own).to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), MANAGER.to_owned()),
    ]);
    let excluded: BTreeSet<&str> = meta::annotation(own, EXCLUDED_LABELS).unwrap_or_default().split(',').collect();
    let inherited = own.labels.iter().flatten().filter(|(key, _)| !excluded.contains(key.as_str()));
    labels.extend(inherited.map(|(key, value)| (key.clone(), value.clone())));
    HorizontalPodAutoscaler {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: own.namespace.clone(),
            labels: Some(labels),
            annotations: inherited_annotations(own),
            owner_references: Some(vec![meta::controller_reference(object)]),
            ..ObjectMeta::default()
        },
        spec: HorizontalPodAutoscalerSpec {
            min_replicas: Some(spec.autoscaler_min()),
            max_replicas: spec.max(),
            metrics: Some(metrics),
            behavior,
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some(kind.api_version()),
                kind: kind.kind.clone(),
                name: spec.scale_target_ref.name.clone(),
            },
        },
        status: None,
    }
}

/// All annotations but that of `kubectl apply`, which is about another object.
fn inherited_annotations(own: &ObjectMeta) -> Option<BTreeMap<String, String>> {
    let mut annotations = own.annotations.clone()?;
    annotations.remove(LAST_APPLIED);
    (!annotations.is_empty()).then_some(annotations)
}

/// The merge patch that gives an autoscaler the wanted spec. Labels and annotations of others stay. A field that is not wanted any
/// more is removed, and gets the server's default.
pub fn patch(wanted: &HorizontalPodAutoscaler) -> Value {
    let mut spec = json!(wanted.spec);
    if let Value::Object(fields) = &mut spec {
        fields.insert("behavior".to_owned(), wanted.spec.behavior.as_ref().map_or(Value::Null, whole_behavior));
    }
    let ObjectMeta { labels, annotations, owner_references, .. } = &wanted.metadata;
    json!({"metadata": {"labels": labels, "annotations": annotations, "ownerReferences": owner_references}, "spec": spec})
}

fn whole_behavior(behavior: &HorizontalPodAutoscalerBehavior) -> Value {
    json!({"scaleUp": whole_rules(behavior.scale_up.as_ref()), "scaleDown": whole_rules(behavior.scale_down.as_ref())})
}

fn whole_rules(rules: Option<&HPAScalingRules>) -> Value {
    let Some(rules) = rules else { return Value::Null };
    let rules = json!(rules);
    let fields = ["selectPolicy", "stabilizationWindowSeconds", "tolerance", "policies"];
    let whole: Map<String, Value> = fields.iter().map(|&field| (field.to_owned(), rules.get(field).cloned().unwrap_or_default())).collect();
    Value::Object(whole)
}

/// Whether an autoscaler has everything that a patch gives it, so that the patch would change nothing.
pub fn has(autoscaler: &HorizontalPodAutoscaler, patch: &Value) -> bool {
    let stored = json!(autoscaler);
    ["metadata", "spec"].iter().all(|part| covers(stored.get(*part).unwrap_or(&Value::Null), patch.get(*part).unwrap_or(&Value::Null)))
}

/// Whether a value has all fields of another; a null is a field that may be absent or have the server's default.
fn covers(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (_, Value::Null) => true,
        (Value::Object(stored), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| covers(stored.get(key).unwrap_or(&Value::Null), value))
        }
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len() && stored.iter().zip(wanted).all(|(stored, wanted)| covers(stored, wanted))
        }
        (stored, wanted) => stored == wanted,
    }
}
