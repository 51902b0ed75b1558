//! Metadata of typed objects: owners, labels, times, and the JSON merge patches that writes are made of.

use std::collections::BTreeMap;

use api_model::selector::Selector;
use api_model::zero;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time};
use serde_json::{Map, Value};

/// A time as objects carry it.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as Moment;

/// The owner that manages the object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// UID of the managing owner; empty without one.
pub fn controller_uid(meta: &ObjectMeta) -> &str {
    controller_of(meta).map_or("", |owner| owner.uid.as_str())
}

/// UID; empty before the object is stored.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// Name; empty before the object is named.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Namespace; empty for cluster-scoped objects.
pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// Whether a deletion was requested.
pub fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// One annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// One label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether the object has that finalizer.
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

/// The reference that makes `owner` the controller of the objects that it creates.
pub fn controller_reference<K: kube::Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name(owner.meta()).to_owned(),
        uid: uid(owner.meta()).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A typed selector; one that cannot be parsed matches nothing.
pub fn selector(selector: &LabelSelector) -> Selector {
    Selector::typed(Some(selector))
}

/// A selector for exactly these labels (a Service's).
pub fn selector_of(labels: &BTreeMap<String, String>) -> Selector {
    Selector::from_map(&labels.iter().map(|(k, v)| (k.clone(), Value::from(v.clone()))).collect())
}

/// Whether labels match.
pub fn matches(selector: &Selector, labels: Option<&BTreeMap<String, String>>) -> bool {
    selector.matches_by(&|key| labels.and_then(|l| l.get(key)).map(String::as_str))
}

/// The selector as Go prints it, for upstream's messages.
pub fn selector_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let requirement = |one: &LabelSelectorRequirement| {
        let values = one.values.clone().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    };
    let expressions: String = selector.match_expressions.iter().flatten().map(requirement).collect();
    let labels: String = labels.collect();
    format!("&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}")
}

/// A time's instant.
pub fn instant(time: Option<&Time>) -> Option<jiff::Timestamp> {
    time.map(|t| t.0)
}

/// `at` in whole seconds, as `metav1.Time` is stored, so that what is written equals what is read.
pub fn whole_seconds(at: jiff::Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The smallest JSON merge patch that turns `old` into `new`; an empty object when they are equal.
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(key.clone(), merge_patch(before, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Merges a JSON merge patch into another; values of the second one win.
pub fn overlay(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                overlay(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A list for a merge patch: an empty list removes the field, as upstream's encoding omits it.
pub fn list_or_null<T: serde::Serialize>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { serde_json::to_value(list).unwrap_or_default() }
}

/// Whether two values are equal when empty values count as absent (upstream's semantic equality).
pub fn semantically_equal<T: PartialEq + serde::Serialize>(a: &T, b: &T) -> bool {
    let plain = |value: &T| serde_json::to_value(value).unwrap_or_default();
    a == b || zero::same(Some(&plain(a)), Some(&plain(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_says_only_what_differs() {
        let cases = [
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), json!({"b": 3})),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"b": null})),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1}}), json!({"a": {"y": null}})),
            (json!({"a": [1, 2]}), json!({"a": [2]}), json!({"a": [2]})),
            (json!(null), json!({"a": 1}), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1}), json!({})),
        ];
        for (old, new, patch) in cases {
            assert_eq!(merge_patch(&old, &new), patch, "{old} to {new}");
        }
    }

    #[test]
    fn what_says_nothing_is_no_difference() {
        assert!(semantically_equal(&json!({"a": {}, "b": [], "c": {"d": []}}), &json!({})));
        assert!(semantically_equal(&json!({"hostNetwork": false, "env": [{"name": "A", "value": ""}]}), &json!({"env": [{"name": "A"}]})));
        assert!(!semantically_equal(&json!({"runAsUser": 0}), &json!({})));
    }
}
