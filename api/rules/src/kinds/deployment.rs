//! Deployment.

use serde_json::Value;

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill, fill_absent, make, text};
use crate::pod::{self, defaults};

/// The rules of Deployments.
pub const RULES: Rules = Rules { prepare_update, warnings: workload::warnings, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    fill_absent(spec, "replicas", 1);
    if let Some(strategy) = make(spec, "strategy") {
        fill(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = make(strategy, "rollingUpdate")
        {
            fill_absent(rolling, "maxUnavailable", "25%");
            fill_absent(rolling, "maxSurge", "25%");
        }
    }
    fill_absent(spec, "revisionHistoryLimit", 10);
    fill_absent(spec, "progressDeadlineSeconds", 600);
    defaults::template(spec);
}

/// A write of the status does not change labels.
fn prepare_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    if sub == Some("status") {
        let labels = old.pointer("/metadata/labels").cloned();
        match labels {
            Some(labels) => api_model::meta::set(new, "labels", labels),
            None => api_model::meta::unset(new, "labels"),
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    checks.not_negative(&spec.get("replicas"));
    workload::selector(&spec.get("selector"), "deployment", checks);
    let template = spec.get("template");
    workload::selector_matches(&spec.get("selector"), &template, checks);
    pod::validate_template(&template, checks);
    workload::always_restarts(&template, "ReplicaSet", checks);
    strategy(&spec.get("strategy"), checks);
    checks.not_negative(&spec.get("minReadySeconds"));
    checks.not_negative(&spec.get("revisionHistoryLimit"));
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.exists() {
        checks.not_negative(&deadline);
        if deadline.int() <= spec.get("minReadySeconds").int() {
            checks.invalid(&deadline, "must be greater than minReadySeconds");
        }
    }
}

fn strategy(strategy: &At<'_>, checks: &mut Checks) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" if rolling.exists() => {
            checks.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" if !rolling.exists() => checks.required(&rolling, "this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            workload::int_or_percent(&unavailable, checks);
            workload::int_or_percent(&surge, checks);
            if workload::is_nothing(&unavailable) && workload::is_nothing(&surge) {
                checks.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
            }
            workload::at_most_all(&unavailable, checks);
        }
        _ => checks.not_supported(&strategy.get("type"), &["Recreate", "RollingUpdate"]),
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        let all = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
        ];
        workload::status_counts(&new.get("status"), &all, &["updatedReplicas", "readyReplicas", "availableReplicas"], checks);
        return workload::collision_count(new, old, checks);
    }
    validate_create(new, checks);
    checks.immutable(&new.find("spec.selector"), &old.find("spec.selector"));
}
