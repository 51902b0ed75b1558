//! DaemonSet.

use api_model::zero::same;
use serde_json::Value;

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill, fill_absent, make, text};
use crate::pod::{self, defaults};

/// The rules of DaemonSets.
pub const RULES: Rules =
    Rules { prepare_create, prepare_update, warnings: workload::warnings, ..Rules::new(default, validate_create, validate_update) };

/// Counts changes of the template. Upstream's internal type has a field for it, which `apps/v1` shows as this
/// annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    if let Some(strategy) = make(spec, "updateStrategy") {
        fill(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = make(strategy, "rollingUpdate")
        {
            fill_absent(rolling, "maxUnavailable", 1);
            fill_absent(rolling, "maxSurge", 0);
        }
    }
    fill_absent(spec, "revisionHistoryLimit", 10);
    defaults::template(spec);
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = api_model::meta::metadata_mut(object).and_then(|metadata| make(metadata, "annotations")) {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

fn prepare_create(object: &mut Value) {
    set_template_generation(object, 1);
}

fn prepare_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    let before = At::root(old).find("metadata.annotations").get(TEMPLATE_GENERATION).text().parse().unwrap_or(1);
    let changed = sub != Some("status") && !same(new.pointer("/spec/template"), old.pointer("/spec/template"));
    set_template_generation(new, before + i64::from(changed));
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let template = spec.get("template");
    workload::selector(&spec.get("selector"), "daemonset", checks);
    workload::selector_matches(&spec.get("selector"), &template, checks);
    pod::validate_template(&template, checks);
    workload::always_restarts(&template, "DaemonSet", checks);
    checks.not_negative(&spec.get("minReadySeconds"));
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.exists() => checks.required(&rolling, ""),
        "RollingUpdate" => self::rolling(&rolling, checks),
        _ => checks.not_supported(&strategy.get("type"), &["RollingUpdate", "OnDelete"]),
    }
    checks.not_negative(&spec.get("revisionHistoryLimit"));
}

fn rolling(rolling: &At<'_>, checks: &mut Checks) {
    let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
    for amount in [&unavailable, &surge] {
        workload::int_or_percent(amount, checks);
        workload::at_most_all(amount, checks);
    }
    match (workload::is_nothing(&unavailable), workload::is_nothing(&surge)) {
        (false, false) => checks.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
        (true, true) => checks.required(&unavailable, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        let status = new.get("status");
        for field in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
        ] {
            checks.not_negative(&status.get(field));
        }
        return workload::collision_count(new, old, checks);
    }
    validate_create(new, checks);
    checks.immutable(&new.find("spec.selector"), &old.find("spec.selector"));
}
