//! The annotation in which `kubectl apply` without `--server-side` stores the applied configuration. When kubectl changes to
//! server-side apply, its earlier fields cause no conflict with itself. While the annotation exists, server-side apply
//! updates it.

use api_model::meta;
use serde_json::Value;

use super::compare;
use super::extract::claimed;
use super::set::FieldSet;
use super::typing::Typing;

/// kubectl's default manager; other managers do not use the annotation.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most bytes of all annotations; an annotation that would exceed the limit is dropped.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The fields of the last client-side apply that have not changed since.
pub(super) fn unchanged_since(typing: Typing<'_>, live: &Value, api_version: &str) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(meta::annotation(live, ANNOTATION)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let since = compare::whole(typing, &last, live);
    Some(claimed(typing, &last).difference(&since.changed).difference(&since.removed))
}

/// Updates the annotation, if it exists, to the applied configuration.
pub(super) fn follow(object: &mut Value, config: &Value) {
    if meta::annotation(object, ANNOTATION).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations(object) else { return };
    // kubectl writes it as one line with a newline.
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn annotations(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
