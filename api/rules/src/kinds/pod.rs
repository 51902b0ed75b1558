//! Pod: defaults, phase and quality-of-service class of a new Pod, and the allowed changes.

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, Fields, each, inner, text};
use crate::pod::{self, defaults, qos, update};
use crate::{format, strategy};

/// The rules of Pods.
pub const RULES: Rules = Rules { prepare_create, prepare_update, warnings, ..Rules::new(default, validate_create, validate_update) };

fn default(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        defaults::pod(spec);
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        mirror_ips(status);
    }
}

/// `podIP` equals the first of `podIPs`; a writer may set only one of them.
fn mirror_ips(status: &mut Fields) {
    let first = status.get("podIPs").and_then(|list| list.get(0)).and_then(|ip| ip.get("ip")).and_then(Value::as_str).map(str::to_owned);
    let single = text(status, "podIP").to_owned();
    match first {
        Some(first) if single != first && !single.is_empty() => {
            status.insert("podIPs".to_owned(), json!([{"ip": single}]));
        }
        Some(first) if single.is_empty() => {
            status.insert("podIP".to_owned(), first.into());
        }
        None if !single.is_empty() => {
            status.insert("podIPs".to_owned(), json!([{"ip": single}]));
        }
        _ => {}
    }
}

fn prepare_create(object: &mut Value) {
    select_by_own_labels(object);
    let at = At::root(object);
    let class = qos::class(&at.get("spec"));
    let gated = at.find("spec.schedulingGates").len() > 0;
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if let (true, Some(status)) = (gated, status.as_object_mut()) {
        let condition = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
        status.insert("conditions".to_owned(), condition);
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` of Pod affinity name labels of the Pod itself. When the Pod is created,
/// the values of these labels become requirements of the term's selector.
fn select_by_own_labels(object: &mut Value) {
    let labels = api_model::meta::labels(object).cloned().unwrap_or_default();
    let Some(affinity) = edit::spec(object).and_then(|spec| inner(spec, "affinity")) else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = inner(affinity, kind) else {
            continue;
        };
        for term in each(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            select_by(term, &labels);
        }
        for weighted in each(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = inner(weighted, "podAffinityTerm") {
                select_by(term, &labels);
            }
        }
    }
}

fn select_by(term: &mut Fields, labels: &Fields) {
    let mut expressions = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if let Some(selector) = inner(term, "labelSelector").filter(|_| !expressions.is_empty()) {
        let existing = selector.get("matchExpressions").and_then(Value::as_array).cloned().unwrap_or_default();
        selector.insert("matchExpressions".to_owned(), existing.into_iter().chain(expressions).collect());
    }
}

fn prepare_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    match sub {
        Some("ephemeralcontainers") => update::prepare_ephemeral(new, old),
        Some("resize") => update::prepare_resize(new, old),
        Some("status") => {
            let class = old.pointer("/status/qosClass").cloned();
            if let (Some(status), Some(class)) = (new.as_object_mut().and_then(|fields| edit::make(fields, "status")), class) {
                edit::fill(status, "qosClass", class);
            }
            let owners = old.pointer("/metadata/ownerReferences").cloned();
            if let Some(metadata) = new.as_object_mut().and_then(|fields| inner(fields, "metadata")) {
                match owners {
                    Some(owners) => metadata.insert("ownerReferences".to_owned(), owners),
                    None => metadata.remove("ownerReferences"),
                };
            }
        }
        _ => strategy::keep(new, old, "status"),
    }
}

fn validate_create(pod: &At<'_>, checks: &mut Checks) {
    pod::validate_pod(pod, checks);
    let spec = pod.get("spec");
    if spec.get("ephemeralContainers").len() > 0 {
        checks.forbidden(&spec.get("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.get("nodeName").text().is_empty() && spec.get("schedulingGates").len() > 0 {
        checks.forbidden(&spec.get("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    match sub {
        Some("status") => update::validate_status(new, old, checks),
        Some("ephemeralcontainers") => update::validate_ephemeral(new, old, checks),
        Some("resize") => update::validate_resize(new, old, checks),
        _ => update::validate(new, old, checks),
    }
}

fn warnings(pod: &At<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let name = pod.find("metadata.name");
    let problems = format::dns_label(name.text());
    if !problems.is_empty() {
        let path = &name.path;
        warnings.push(format!(
            "{path}: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            problems.join(" ")
        ));
    }
    warnings.extend(pod::warnings::for_pod(pod));
    warnings
}
