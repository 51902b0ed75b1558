//! Rules for the `metadata` of every kind: names, labels, annotations, finalizers, owners, and immutable fields.

use api_model::field::Path;
use api_model::kind::Kind;
use serde_json::{Map, Value};

use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// Most bytes of the keys and values of all annotations.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// A CronJob's name: its Jobs' names append a dash and ten digits, and must fit a label.
const CRON_JOB_NAME_LEN_MAX: usize = 52;
/// Upstream's finalizers without a domain; all others need one.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Creates the metadata map where there is none.
pub fn default(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if metadata.is_null() {
            *metadata = Value::Object(Map::new());
        }
    }
}

/// The messages about a name of that kind. `prefix` is for `generateName`, which may end in a dash.
pub fn name_problems(kind: &Kind, name: &str, prefix: bool) -> Vec<String> {
    let masked = if prefix { mask_trailing_dash(name) } else { name.to_owned() };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apiregistration.k8s.io" | "rbac.authorization.k8s.io", _)
        | ("certificates.k8s.io", "CertificateSigningRequest")
        | ("" | "events.k8s.io", "Event") => format::path_segment(name),
        // The name depends on the spec, so the rules of the kind check it.
        ("certificates.k8s.io", "ClusterTrustBundle") => Vec::new(),
        ("certificates.k8s.io", "PodCertificateRequest") => format::path_segment(name),
        ("networking.k8s.io", "IPAddress") => format::canonical_ip(name),
        ("", "Namespace") => format::dns_label(&masked),
        ("", "Service") => format::dns_1035_label(&masked),
        ("batch", "CronJob") => {
            let mut wrong = format::dns_subdomain(&masked);
            if name.len() > CRON_JOB_NAME_LEN_MAX {
                wrong.push(format!("must be no more than {CRON_JOB_NAME_LEN_MAX} characters"));
            }
            wrong
        }
        _ => format::dns_subdomain(&masked),
    }
}

/// As upstream, a dash at the end of a prefix is replaced by a letter, because more characters will follow it.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => name.to_owned(),
    }
}

/// Checks the metadata of a new object.
pub fn validate(kind: &Kind, object: &Value, checks: &mut Checks) {
    let metadata = At::root(object).get("metadata");
    let (name, generate) = (metadata.get("name"), metadata.get("generateName"));
    if !generate.text().is_empty() {
        checks.format(&generate, name_problems(kind, generate.text(), true));
    }
    if name.text().is_empty() {
        checks.required(&name, "name or generateName is required");
    } else {
        checks.format(&name, name_problems(kind, name.text(), false));
    }
    let namespace = metadata.get("namespace");
    match (kind.namespaced, namespace.text()) {
        (true, "") => checks.required(&namespace, ""),
        (true, _) => checks.dns_label(&namespace),
        (false, "") => {}
        (false, _) => checks.forbidden(&namespace, "not allowed on this type"),
    }
    checks.not_negative(&metadata.get("generation"));
    common(kind, &metadata, checks);
}

/// Checks the metadata of a changed object.
pub fn validate_update(kind: &Kind, new: &Value, old: &Value, checks: &mut Checks) {
    let (new, old) = (At::root(new).get("metadata"), At::root(old).get("metadata"));
    if old.get("deletionTimestamp").exists() {
        no_new_finalizers(&new.get("finalizers"), &old.get("finalizers"), checks);
    }
    let version = new.get("resourceVersion");
    if version.text().is_empty() && !crate::strategy::allows_unconditional_update(kind) {
        checks.invalid_value(&version.path, "", "must be specified for an update");
    }
    let generation = new.get("generation");
    if generation.int() < old.get("generation").int() {
        checks.invalid(&generation, "must not be decremented");
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        checks.immutable(&new.get(field), &old.get(field));
    }
    common(kind, &new, checks);
}

fn common(kind: &Kind, metadata: &At<'_>, checks: &mut Checks) {
    checks.labels(&metadata.get("labels"));
    annotations(&metadata.get("annotations"), checks);
    owners(&metadata.get("ownerReferences"), checks);
    finalizers(&metadata.get("finalizers"), checks);
    if !crate::strategy::is_custom(kind) {
        metadata.get("finalizers").items().for_each(|finalizer| kube_finalizer(&finalizer, checks));
    }
}

/// Checks the keys and the total size of annotations.
pub fn annotations(at: &At<'_>, checks: &mut Checks) {
    let mut bytes = 0;
    for (key, value) in at.entries() {
        for message in format::qualified_name(&key.to_lowercase()) {
            checks.invalid_value(&at.path, key, message);
        }
        bytes += key.len() + value.text().len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        checks.too_long(at, ANNOTATIONS_BYTES_MAX);
    }
}

fn owners(at: &At<'_>, checks: &mut Checks) {
    let mut controller = String::new();
    for owner in at.items() {
        let field = |name: &str| owner.get(name).text();
        let complain = |checks: &mut Checks, name: &str, detail: &str| {
            checks.invalid_value(&at.path.child(name), field(name), detail);
        };
        if field("apiVersion").rsplit('/').next().unwrap_or_default().is_empty() {
            complain(checks, "apiVersion", "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if field(name).is_empty() {
                complain(checks, name, "must not be empty");
            }
        }
        if field("apiVersion") == "v1" && field("kind") == "Event" {
            checks.invalid_value(&at.path, owner.value_or_null(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.get("controller").flag() {
            let this = format!("{}/{}", field("kind"), field("name"));
            if controller.is_empty() {
                controller = this;
            } else {
                let detail =
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {controller} and {this}");
                checks.invalid(at, detail);
            }
        }
    }
}

fn finalizers(at: &At<'_>, checks: &mut Checks) {
    for finalizer in at.texts() {
        for message in format::qualified_name(finalizer) {
            checks.invalid_value(&at.path, finalizer, message);
        }
    }
    let has = |name: &str| at.texts().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        checks.invalid(at, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// A finalizer without a domain must be one of upstream's own.
pub fn kube_finalizer(at: &At<'_>, checks: &mut Checks) {
    if !at.text().contains('/') && !STANDARD_FINALIZERS.contains(&at.text()) {
        checks.invalid(at, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn no_new_finalizers(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let mut extra: Vec<&str> = new.texts().filter(|finalizer| !old.texts().any(|existing| existing == *finalizer)).collect();
    if !extra.is_empty() {
        extra.sort_unstable();
        let list: Vec<String> = extra.iter().map(|finalizer| format!("{finalizer:?}")).collect();
        let detail =
            format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", list.join(", "));
        checks.forbidden(new, detail);
    }
}

/// Checks labels, annotations and finalizers of a Pod template, which has no name.
pub fn template(metadata: &At<'_>, checks: &mut Checks) {
    checks.labels(&metadata.get("labels"));
    annotations(&metadata.get("annotations"), checks);
    finalizers(&metadata.get("finalizers"), checks);
}

/// A label that must have a value: upstream's `ValidateHasLabel`.
pub fn has_label(metadata: &At<'_>, key: &str, wanted: &str, checks: &mut Checks) {
    let label = metadata.get("labels").key(key);
    let path: &Path = &label.path;
    if !label.exists() {
        checks.required(&label, &format!("must be '{wanted}'"));
    } else if label.text() != wanted {
        checks.invalid_value(path, metadata.get("labels").value_or_null(), format!("must be '{wanted}'"));
    }
}

#[cfg(test)]
mod tests;
