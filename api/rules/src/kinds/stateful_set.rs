//! StatefulSet.

use api_model::zero::same;
use serde_json::{Map, Value, json};

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, each, fill, fill_absent, inner, make, text};
use crate::pod::defaults;
use crate::{meta, pod};

/// The rules of StatefulSets.
pub const RULES: Rules = Rules { warnings: workload::warnings, ..Rules::new(default, validate_create, validate_update) };

/// Fields of the spec that may change.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    fill(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = make(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            fill(strategy, "type", "RollingUpdate");
            make(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = inner(strategy, "rollingUpdate")
        {
            fill_absent(rolling, "partition", 0);
        }
    }
    if let Some(policy) = make(spec, "persistentVolumeClaimRetentionPolicy") {
        fill(policy, "whenDeleted", "Retain");
        fill(policy, "whenScaled", "Retain");
    }
    fill_absent(spec, "replicas", 1);
    fill_absent(spec, "revisionHistoryLimit", 10);
    for claim in each(spec, "volumeClaimTemplates") {
        fill(claim, "apiVersion", "v1");
        fill(claim, "kind", "PersistentVolumeClaim");
        make(claim, "metadata");
        if let Some(spec) = make(claim, "spec") {
            fill_absent(spec, "volumeMode", "Filesystem");
        }
        fill_absent(claim, "status", json!({"phase": "Pending"}));
    }
    defaults::template(spec);
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let policy = spec.get("podManagementPolicy");
    match policy.text() {
        "" => checks.required(&policy, ""),
        "OrderedReady" | "Parallel" => {}
        _ => checks.invalid(&policy, "must be 'OrderedReady' or 'Parallel'"),
    }
    strategy(&spec.get("updateStrategy"), checks);
    retention(&spec.get("persistentVolumeClaimRetentionPolicy"), checks);
    checks.not_negative(&spec.get("replicas"));
    checks.not_negative(&spec.get("minReadySeconds"));
    checks.not_negative(&spec.get("revisionHistoryLimit"));
    checks.not_negative(&spec.find("ordinals.start"));
    workload::selector(&spec.get("selector"), "statefulset", checks);
    let template = spec.get("template");
    workload::selector_matches(&spec.get("selector"), &template, checks);
    // The Pod spec refers to volumes of claims that do not exist yet, so upstream checks the spec when a Pod is
    // created.
    checks.labels(&At::new(template.find("metadata.labels").value(), template.path.child("labels")));
    let annotations = At::new(template.find("metadata.annotations").value(), template.path.child("annotations"));
    meta::annotations(&annotations, checks);
    pod::validate_annotations(&annotations, &template.get("spec"), checks);
    workload::always_restarts(&template, "StatefulSet", checks);
}

fn strategy(strategy: &At<'_>, checks: &mut Checks) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "" => checks.required(strategy, ""),
        "OnDelete" if rolling.exists() => checks.invalid(&rolling, "only allowed for updateStrategy 'RollingUpdate'"),
        "OnDelete" => {}
        "RollingUpdate" => {
            checks.not_negative(&rolling.get("partition"));
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.exists() {
                workload::int_or_percent(&unavailable, checks);
                if workload::is_nothing(&unavailable) {
                    checks.invalid(&unavailable, "cannot be 0");
                }
                workload::at_most_all(&unavailable, checks);
            }
        }
        _ => checks.invalid(strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

fn retention(policy: &At<'_>, checks: &mut Checks) {
    for field in ["whenDeleted", "whenScaled"] {
        if policy.exists() && !["Retain", "Delete"].contains(&policy.get(field).text()) {
            checks.not_supported(&policy.get(field), &["Retain", "Delete"]);
        }
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        let all = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "observedGeneration"];
        let bounded = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        workload::status_counts(&new.get("status"), &all, &bounded, checks);
        return workload::collision_count(new, old, checks);
    }
    validate_create(new, checks);
    let fixed = |object: &At<'_>| -> Value {
        let fields: Map<String, Value> = object.get("spec").value().and_then(Value::as_object).cloned().unwrap_or_default();
        Value::Object(fields.into_iter().filter(|(name, _)| !CHANGEABLE.contains(&name.as_str())).collect())
    };
    if !same(Some(&fixed(new)), Some(&fixed(old))) {
        checks.forbidden(&new.get("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden");
    }
}
