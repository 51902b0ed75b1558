//! APIService: a group version and the server that serves it, either this server or a server behind a Service.

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{fill_absent, inner};
use crate::format;

/// The rules of APIServices.
pub const RULES: Rules = Rules { prepare_create, ..Rules::new(default, validate_create, validate_update) };

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;
const PORTS: std::ops::RangeInclusive<i64> = 1..=65_535;

fn default(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    if let Some(service) = inner(fields, "spec").and_then(|spec| inner(spec, "service")) {
        fill_absent(service, "port", 443);
    }
}

/// A local APIService is available as soon as it exists.
fn prepare_create(object: &mut Value) {
    let is_local = object.pointer("/spec/service").is_none_or(Value::is_null);
    let now = object.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default();
    let status = match is_local {
        true => json!({"conditions": [{"type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": now}]}),
        false => json!({}),
    };
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let (group, version) = (spec.get("group"), spec.get("version"));
    let wanted = format!("{}.{}", version.text(), group.text());
    let name = object.find("metadata.name");
    if name.text() != wanted {
        checks.invalid(&name, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    match group.text() {
        "" if version.text() != "v1" => checks.required(&group, "only v1 may have an empty group and it better be legacy kube"),
        "" => {}
        text => format::dns_subdomain(text).into_iter().for_each(|wrong| checks.invalid(&group, wrong)),
    }
    for wrong in format::dns_1035_label(version.text()) {
        checks.invalid_value(&version.path, version.text(), wrong);
    }
    for (field, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = spec.get(field);
        if priority.int() <= 0 || priority.int() > max {
            checks.invalid_value(&priority.path, priority.int(), format!("must be positive and less than {max}"));
        }
    }
    match spec.get("service") {
        service if service.exists() => remote(&spec, &service, checks),
        _ => local(&spec, checks),
    }
}

fn local(spec: &At<'_>, checks: &mut Checks) {
    let (bundle, insecure) = (spec.get("caBundle"), spec.get("insecureSkipTLSVerify"));
    if !bundle.text().is_empty() {
        checks.invalid_value(&bundle.path, "", "local APIServices may not have a caBundle");
    }
    if insecure.flag() {
        checks.invalid(&insecure, "local APIServices may not have insecureSkipTLSVerify");
    }
}

fn remote(spec: &At<'_>, service: &At<'_>, checks: &mut Checks) {
    for field in ["namespace", "name"] {
        if service.get(field).text().is_empty() {
            checks.required(&service.get(field), "");
        }
    }
    let port = service.get("port");
    if !PORTS.contains(&port.int()) {
        checks.invalid_value(&port.path, port.int(), "port is not valid: must be between 1 and 65535, inclusive");
    }
    let insecure = spec.get("insecureSkipTLSVerify");
    if insecure.flag() && !spec.get("caBundle").text().is_empty() {
        checks.invalid(&insecure, "may not be true if caBundle is present");
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub.is_none() {
        validate_create(new, checks);
    }
}
