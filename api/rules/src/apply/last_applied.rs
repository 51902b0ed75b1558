//! The annotation in which `kubectl apply` without `--server-side` keeps what it applied. When kubectl
//! goes over to server-side apply, what it applied before is no conflict with itself; and as long as
//! the annotation is there, it follows what is applied.

use api_model::meta;
use serde_json::Value;

use super::compare;
use super::extract::claimed;
use super::set::FieldSet;
use super::typing::Typing;

/// kubectl's default manager; those who choose another have nothing to do with the annotation.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Keys and values of all annotations together; an annotation that would exceed it is dropped.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The fields that were applied on the client's side and are still as they were.
pub(super) fn unchanged_since(typing: Typing<'_>, live: &Value, api_version: &str) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(meta::annotation(live, ANNOTATION)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let since = compare::whole(typing, &last, live);
    Some(claimed(typing, &last).difference(&since.changed).difference(&since.removed))
}

/// Brings the annotation, where there is one, up to what is applied now.
pub(super) fn follow(object: &mut Value, config: &Value) {
    if meta::annotation(object, ANNOTATION).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations(object) else { return };
    // kubectl writes it as one line, with its end.
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn annotations(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
