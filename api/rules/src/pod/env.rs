//! Environment variables and their sources.

use super::{Context, resources, volume};
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// The fields that `fieldRef` of an environment variable may name.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The fields that `fieldRef` of a volume may name.
const VOLUME_FIELDS: [&str; 5] = ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Checks `env`.
pub fn validate(variables: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    for variable in variables.items() {
        let name = variable.get("name");
        if name.text().is_empty() {
            checks.required(&name, "");
        } else {
            checks.format(&name, format::env_name(name.text()));
        }
        let from = variable.get("valueFrom");
        if from.exists() {
            value_from(&variable, &from, context, checks);
        }
    }
}

fn value_from(variable: &At<'_>, from: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let mut sources = 0;
    if from.get("fieldRef").exists() {
        sources += 1;
        field_ref(&from.get("fieldRef"), false, checks);
    }
    if from.get("resourceFieldRef").exists() {
        sources += 1;
        resources::validate_field_ref(&from.get("resourceFieldRef"), false, checks);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if from.get(name).exists() {
            sources += 1;
            key_ref(&from.get(name), checks);
        }
    }
    if from.get("fileKeyRef").exists() {
        sources += 1;
        file_key_ref(&from.get("fileKeyRef"), context, checks);
    }
    let detail = match sources {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        _ if !variable.get("value").text().is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    checks.invalid_value(&from.path, "", detail);
}

fn key_ref(reference: &At<'_>, checks: &mut Checks) {
    checks.dns_subdomain(&reference.get("name"));
    let key = reference.get("key");
    if key.text().is_empty() {
        checks.required(&key, "");
    } else {
        checks.format(&key, format::config_key(key.text()));
    }
}

/// A variable from a file in an `emptyDir`.
fn file_key_ref(reference: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let (key, name, path) = (reference.get("key"), reference.get("volumeName"), reference.get("path"));
    if key.text().is_empty() {
        checks.required(&key, "");
    } else {
        checks.format(&key, format::env_name(key.text()));
    }
    if name.text().is_empty() {
        checks.required(&name, "");
    } else {
        match context.volumes.get(name.text()) {
            None => checks.not_found(&name),
            Some(volume) if !volume.has("emptyDir") => checks.invalid(&name, "referenced volume must be of type emptyDir"),
            Some(_) => {}
        }
    }
    if path.text().is_empty() {
        checks.required(&path, "");
    } else {
        volume::not_reserved_path(&path.path, path.text(), checks);
    }
}

/// Checks a `fieldRef`; volumes and variables may name different fields.
pub fn field_ref(reference: &At<'_>, in_volume: bool, checks: &mut Checks) {
    let (version, field) = (reference.get("apiVersion"), reference.get("fieldPath"));
    if version.text().is_empty() {
        return checks.required(&version, "");
    }
    if field.text().is_empty() {
        return checks.required(&field, "");
    }
    if let Some((path, key)) = field.text().strip_suffix("']").and_then(|text| text.split_once("['")) {
        match path {
            "metadata.annotations" => {
                for message in format::qualified_name(&key.to_lowercase()) {
                    checks.invalid_value(&reference.path, key.to_lowercase(), message);
                }
            }
            "metadata.labels" => {
                for message in format::qualified_name(key) {
                    checks.invalid_value(&reference.path, key, message);
                }
            }
            _ => checks.invalid(&field, format!("error converting fieldPath: field label does not support subscript: {path}")),
        }
        return;
    }
    let is_known = ENV_FIELDS.contains(&field.text()) || VOLUME_FIELDS.contains(&field.text()) || field.text() == "spec.restartPolicy";
    let supported: &[&str] = if in_volume { &VOLUME_FIELDS } else { &ENV_FIELDS };
    if !is_known {
        checks.invalid(&field, format!("error converting fieldPath: field label not supported: {}", field.text()));
    } else if !supported.contains(&field.text()) {
        checks.not_supported(&field, supported);
    }
}

/// Checks `envFrom`.
pub fn validate_from(list: &At<'_>, checks: &mut Checks) {
    for from in list.items() {
        let prefix = from.get("prefix");
        if !prefix.text().is_empty() {
            checks.format(&prefix, format::env_name(prefix.text()));
        }
        let mut sources = 0;
        for name in ["configMapRef", "secretRef"] {
            let source = from.get(name);
            if !source.exists() {
                continue;
            }
            sources += 1;
            let name = source.get("name");
            if name.text().is_empty() {
                checks.required(&name, "");
            } else {
                checks.dns_subdomain(&name);
            }
        }
        match sources {
            0 => checks.invalid_value(&list.path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => checks.invalid_value(&list.path, "", "may not have more than one field specified at a time"),
        }
    }
}
