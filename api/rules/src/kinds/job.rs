//! Job.

mod policies;

use api_model::zero::same;
use serde_json::{Value, json};

use super::{Rules, workload};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, Fields, each, fill, fill_absent, inner, make};
use crate::pod::{self, defaults};
use crate::{format, meta};

/// The rules of Jobs.
pub const RULES: Rules = Rules { prepare_create, warnings: workload::warnings, ..Rules::new(default, validate_create, validate_update) };

/// Labels that the server adds to a Job's Pods: the old name and the current one.
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const COMPLETION_MODES: [&str; 2] = ["Indexed", "NonIndexed"];
/// Most parallel Pods of an indexed Job.
const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const MANAGED_BY_LEN_MAX: usize = 63;
const IMMUTABLE: [&str; 6] = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];

fn default(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let Some(spec) = edit::spec(object) {
        if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
            fill_absent(spec, "completions", 1);
        }
        fill_absent(spec, "parallelism", 1);
        let by_index = spec.contains_key("backoffLimitPerIndex");
        fill_absent(spec, "backoffLimit", if by_index { i64::from(i32::MAX) } else { 6 });
        fill_absent(spec, "completionMode", "NonIndexed");
        fill_absent(spec, "suspend", false);
        fill_absent(spec, "manualSelector", false);
        let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        fill_absent(spec, "podReplacementPolicy", policy);
        failure_policy(spec);
        defaults::template(spec);
    }
    if let (Some(metadata), Some(labels)) = (api_model::meta::metadata_mut(object), labels) {
        fill(metadata, "labels", labels);
    }
}

/// Defaults of a failure policy: the status of a condition pattern.
pub fn failure_policy(spec: &mut Fields) {
    if let Some(policy) = inner(spec, "podFailurePolicy") {
        for rule in each(policy, "rules") {
            for pattern in each(rule, "onPodConditions") {
                fill(pattern, "status", "True");
            }
        }
    }
}

/// The server sets a selector for the Job's uid, unless the user manages the selector. The uid must be set before.
fn prepare_create(object: &mut Value) {
    let (name, uid) = (api_model::meta::name(object).to_owned(), api_model::meta::uid(object).to_owned());
    let Some(spec) = edit::spec(object) else {
        return;
    };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    if let Some(labels) = make(spec, "template").and_then(|t| make(t, "metadata")).and_then(|m| make(m, "labels")) {
        for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
            for key in keys {
                labels.entry(key).or_insert_with(|| json!(value));
            }
        }
    }
    if let Some(wanted) = make(spec, "selector").and_then(|selector| make(selector, "matchLabels")) {
        wanted.entry("batch.kubernetes.io/controller-uid").or_insert_with(|| json!(uid));
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    host_names(object, checks);
    validate(object, checks);
}

/// The host name of a Pod of an indexed Job is the name of the Job with the index.
fn host_names(object: &At<'_>, checks: &mut Checks) {
    let (name, spec) = (object.find("metadata.name"), object.get("spec"));
    let completions = spec.get("completions").int();
    if spec.get("completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let longest = format!("{}-{}", name.text(), completions - 1);
    if !format::is_dns_label(&longest) {
        checks.invalid(&name, format!("will not able to create pod with invalid DNS label: {longest}"));
    }
}

fn validate(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    generated_selector(object, &spec, checks);
    validate_spec(&spec, checks);
    let selector = spec.get("selector");
    if selector.exists() {
        checks.label_selector(&selector);
        workload::selector_matches(&selector, &spec.get("template"), checks);
    } else {
        checks.required(&selector, "");
    }
}

fn generated_selector(object: &At<'_>, spec: &At<'_>, checks: &mut Checks) {
    let selector = spec.get("selector");
    if spec.get("manualSelector").flag() || !selector.exists() {
        return;
    }
    let (uid, name) = (object.find("metadata.uid"), object.find("metadata.name"));
    if uid.text().is_empty() {
        checks.required(&uid, "");
    }
    let metadata = spec.get("template").get("metadata");
    for (keys, wanted) in [(UID_LABELS, &uid), (NAME_LABELS, &name)] {
        for key in keys {
            meta::has_label(&metadata, key, wanted.text(), checks);
        }
    }
    let chosen = UID_LABELS.iter().any(|key| selector.get("matchLabels").key(key).text() == uid.text());
    if !chosen {
        checks.invalid(&selector, "`selector` not auto-generated");
    }
}

/// Checks the spec of a Job or of a CronJob's template.
pub fn validate_spec(spec: &At<'_>, checks: &mut Checks) {
    for field in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        checks.not_negative(&spec.get(field));
    }
    managed_by(&spec.get("managedBy"), checks);
    policies::indexes(spec, checks);
    policies::failure(spec, checks);
    policies::success(spec, checks);
    policies::replacement(spec, checks);
    let template = spec.get("template");
    pod::validate_template(&template, checks);
    let restart = template.get("spec").get("restartPolicy");
    match restart.text() {
        "OnFailure" | "Never" => {}
        // `Always` is the default of a template, so the message says that the user must choose a value.
        "Always" => checks.required(&restart, "valid values: \"OnFailure\", \"Never\""),
        _ => checks.not_supported(&restart, &["OnFailure", "Never"]),
    }
    if spec.get("podFailurePolicy").exists() && restart.text() != "Never" {
        checks.invalid(&restart, "only \"Never\" is supported when podFailurePolicy is specified");
    }
}

fn managed_by(manager: &At<'_>, checks: &mut Checks) {
    if !manager.exists() {
        return;
    }
    match manager.text().split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => checks.format(manager, format::dns_subdomain(domain)),
        _ => checks.invalid(manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if manager.text().len() > MANAGED_BY_LEN_MAX {
        checks.too_long(manager, MANAGED_BY_LEN_MAX);
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        for field in ["active", "succeeded", "failed", "ready", "terminating"] {
            checks.not_negative(&new.get("status").get(field));
        }
        return;
    }
    validate(new, checks);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    completions(&spec, &before, checks);
    for field in IMMUTABLE {
        checks.immutable(&spec.get(field), &before.get(field));
    }
    template(new, old, checks);
}

/// The completions of an indexed Job may change as long as they equal the parallelism.
fn completions(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let elastic = new.get("completionMode").text() == "Indexed" && new.get("completions").int() == new.get("parallelism").int();
    let (now, before) = (new.get("completions"), old.get("completions"));
    if now.number() == before.number() {
        return;
    }
    if !elastic && new.get("completionMode").text() == "Indexed" && now.exists() {
        let detail = "may only be updated in tandem with parallelism when completionMode is Indexed";
        return checks.invalid(&now, format!("{}: {detail}", crate::checks::IMMUTABLE));
    }
    if !elastic {
        checks.immutable(&now, &before);
    }
}

/// The placement of a suspended Job that never started may still change.
fn template(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let (now, before) = (new.find("spec.template"), old.find("spec.template"));
    let mut munged = now.value_or_null();
    if old.find("spec.suspend").flag() && !old.find("status.startTime").exists() {
        for path in ["labels", "annotations"] {
            put(&mut munged, &["metadata", path], before.get("metadata").get(path).value());
        }
        for path in ["nodeSelector", "tolerations", "schedulingGates"] {
            put(&mut munged, &["spec", path], before.get("spec").get(path).value());
        }
        put(&mut munged, &["spec", "affinity", "nodeAffinity"], before.find("spec.affinity.nodeAffinity").value());
    }
    if !same(Some(&munged), before.value()) {
        checks.invalid(&now, crate::checks::IMMUTABLE);
    }
}

fn put(object: &mut Value, path: &[&str], value: Option<&Value>) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let parent = parents.iter().try_fold(object, |at, name| at.get_mut(*name));
    if let Some(fields) = parent.and_then(Value::as_object_mut) {
        match value {
            Some(value) => fields.insert((*last).to_owned(), value.clone()),
            None => fields.remove(*last),
        };
    }
}
