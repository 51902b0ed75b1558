//! Zero values. Go clients leave out zero values of plain fields, so `hostNetwork: false` and an absent `hostNetwork`
//! are the same. For pointer fields they differ: an absent `runAsUser` means the user of the image, and `runAsUser: 0`
//! means root.

use serde_json::Value;

use crate::quantity;

/// Names of numbers and truth values that are pointers in Go in all built-in kinds, sorted.
pub const POINTERS: &[&str] = &[
    "activeDeadlineSeconds",
    "allocateLoadBalancerNodePorts",
    "allowPrivilegeEscalation",
    "allowVolumeExpansion",
    "attachRequired",
    "automountServiceAccountToken",
    "averageUtilization",
    "backoffLimit",
    "backoffLimitPerIndex",
    "blockOwnerDeletion",
    "borrowingLimitPercent",
    "collisionCount",
    "completions",
    "defaultMode",
    "enableServiceLinks",
    "endPort",
    "expirationSeconds",
    "failedJobsHistoryLimit",
    "fsGroup",
    "gid",
    "hostProcess",
    "hostUsers",
    "immutable",
    "leaseDurationSeconds",
    "leaseTransitions",
    "lendablePercent",
    "lun",
    "manualSelector",
    "maxFailedIndexes",
    "minDomains",
    "minReplicas",
    "mode",
    "nominalConcurrencyShares",
    "optional",
    "parallelism",
    "podInfoOnMount",
    "privileged",
    "progressDeadlineSeconds",
    "readOnlyRootFilesystem",
    "ready",
    "requiresRepublish",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxMount",
    "serving",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "stabilizationWindowSeconds",
    "startingDeadlineSeconds",
    "storageCapacity",
    "successfulJobsHistoryLimit",
    "suspend",
    "targetCPUUtilizationPercentage",
    "terminating",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
];

/// Names of fields whose presence has a meaning, even with an empty value, sorted. An empty `namespaceSelector` selects
/// all namespaces; an empty `storageClassName` means no class.
pub const TELLING: &[&str] = &[
    "emptyDir",
    "labelSelector",
    "maxUnavailable",
    "minAvailable",
    "namespaceSelector",
    "objectSelector",
    "podSelector",
    "storageClassName",
    "volumeAttributesClassName",
];

/// Names of fields with one quantity, sorted. Different texts of the same amount are equal.
const AMOUNTS: &[&str] = &["averageValue", "divisor", "sizeLimit"];

/// Names of maps of texts, sorted. In these a key with an empty text is no zero value.
pub const TEXTS: &[&str] = &[
    "annotations",
    "attachmentMetadata",
    "binaryData",
    "data",
    "deprecatedTopology",
    "labels",
    "matchLabels",
    "nodeSelector",
    "options",
    "parameters",
    "selector",
    "stringData",
    "unverifiedUserAnnotations",
    "userAnnotations",
    "volumeAttributes",
];

/// Whether a value is zero: Go's `omitempty` would leave it out, or all its fields are zero.
pub fn is_zero(value: &Value) -> bool {
    is_zero_field("", value)
}

/// [`is_zero`] for a field of the given name.
pub fn is_zero_field(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        _ if TELLING.binary_search(&name).is_ok() => false,
        Value::Bool(flag) => !flag && !is_pointer(name),
        Value::Number(number) => number.as_f64() == Some(0.0) && !is_pointer(name),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.iter().all(|(key, value)| is_zero_member(name, key, value)),
    }
}

/// [`is_zero`] for an entry of a field of the given name.
fn is_zero_member(name: &str, key: &str, value: &Value) -> bool {
    if value.is_string() && TEXTS.binary_search(&name).is_ok() { false } else { is_zero_field(key, value) }
}

fn is_pointer(name: &str) -> bool {
    POINTERS.binary_search(&name).is_ok()
}

/// Upstream's semantic equality of built-in objects: zero and absent values are equal, at every level.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    same_field("", a, b)
}

/// [`same`] for two fields of the given name.
pub fn same_field(name: &str, a: Option<&Value>, b: Option<&Value>) -> bool {
    match (said(a), said(b)) {
        (None, None) => true,
        (Some(one), None) | (None, Some(one)) => is_zero_field(name, one),
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.all(|key| match (said(a.get(key)), said(b.get(key))) {
                (Some(one), None) | (None, Some(one)) => is_zero_member(name, key, one),
                (a, b) => same_field(key, a, b),
            })
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b))),
        (Some(Value::String(a)), Some(Value::String(b))) => a == b || AMOUNTS.binary_search(&name).is_ok() && is_same_amount(a, b),
        (Some(a), Some(b)) => a == b || (is_zero(a) && is_zero(b)),
    }
}

fn is_same_amount(a: &str, b: &str) -> bool {
    matches!((quantity::nano(a), quantity::nano(b)), (Ok(a), Ok(b)) if a == b)
}

fn said(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_nothing_is_no_difference() {
        for (a, b, equal) in [
            (json!({"a": 0, "b": {"c": []}}), json!({}), true),
            (json!({"a": 1}), json!({"a": 1, "b": ""}), true),
            (json!({"a": 1}), json!({"a": 2}), false),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (json!({"a": {"b": "x"}}), json!({}), false),
            (json!({"hostNetwork": false, "securityContext": {}}), json!({}), true),
            (json!({"securityContext": {"runAsUser": 0}}), json!({}), false),
            (json!({"securityContext": {"runAsUser": 0}}), json!({"securityContext": {}}), false),
            (json!({"allowPrivilegeEscalation": false}), json!({"allowPrivilegeEscalation": null}), false),
            (json!({"runAsUser": null}), json!({}), true),
            (json!({"nodeSelector": {"gpu": ""}}), json!({}), false),
            (json!({"nodeSelector": {"gpu": ""}}), json!({"nodeSelector": {"cpu": ""}}), false),
            (json!({"nodeSelector": {}}), json!({}), true),
            (json!({"podSelector": {}}), json!({"namespaceSelector": {}}), false),
            (json!({"storageClassName": ""}), json!({}), false),
            (json!({"emptyDir": {"sizeLimit": "1024Mi"}}), json!({"emptyDir": {"sizeLimit": "1Gi"}}), true),
            (json!({"sizeLimit": "1Mi"}), json!({"sizeLimit": "1Gi"}), false),
            (json!({"value": "1024Mi"}), json!({"value": "1Gi"}), false),
        ] {
            assert_eq!(same(Some(&a), Some(&b)), equal, "{a} {b}");
            assert_eq!(same(Some(&b), Some(&a)), equal, "{b} {a}");
        }
    }

    #[test]
    fn names_are_found() {
        assert!([POINTERS, TEXTS, TELLING, AMOUNTS].iter().all(|names| names.is_sorted()));
    }
}
