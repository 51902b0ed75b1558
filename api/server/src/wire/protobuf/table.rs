//! Which field of which message has which number and type: `table.txt`, made by the example
//! `protobuf_table` from the k8s-pb crate, read when the first protobuf body comes.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use api_schema::Schema;

const TABLE: &str = include_str!("table.txt");
/// Messages that the crate has only in older versions of their group yet; their numbers are the same.
const NEWER: &str = include_str!("newer.txt");

/// One field of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) tag: u64,
    /// The name in camel case: mostly, but not always, what JSON calls it (`hostIp` for `hostIP`).
    pub(super) camel: String,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Bytes,
    Integer,
    Truth,
    Double,
    Message(&'static str),
}

struct Line {
    text: &'static str,
    fields: OnceLock<Vec<Field>>,
}

static MESSAGES: LazyLock<HashMap<&'static str, Line>> = LazyLock::new(|| {
    let split = |line: &'static str| line.split_once(' ').unwrap_or((line, ""));
    TABLE.lines().chain(NEWER.lines()).map(split).map(|(id, text)| (id, Line { text, fields: OnceLock::new() })).collect()
});

/// The fields of a message.
pub(super) fn message(id: &str) -> Option<&'static [Field]> {
    let line = MESSAGES.get(id)?;
    Some(line.fields.get_or_init(|| line.text.split_whitespace().filter_map(field).collect()))
}

/// The message of a kind.
pub(super) fn root(group: &str, version: &str, kind: &str) -> Option<String> {
    // Options are of every group.
    if kind == "DeleteOptions" {
        return Some("apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned());
    }
    let module = match group {
        "" => "core",
        "apiextensions.k8s.io" => return known(format!("apiextensions_apiserver.pkg.apis.apiextensions.{version}.{kind}")),
        "apiregistration.k8s.io" => return known(format!("kube_aggregator.pkg.apis.apiregistration.{version}.{kind}")),
        group => group.split('.').next().unwrap_or_default(),
    };
    known(format!("api.{module}.{version}.{kind}"))
}

fn known(id: String) -> Option<String> {
    MESSAGES.contains_key(id.as_str()).then_some(id)
}

/// `tag:name:type`
fn field(text: &'static str) -> Option<Field> {
    let mut parts = text.splitn(3, ':');
    let (tag, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let (shape, kind) = match (kind.strip_prefix('*'), kind.strip_prefix('%')) {
        (Some(kind), _) => (Shape::List, kind),
        (_, Some(kind)) => (Shape::Map, kind),
        _ => (Shape::One, kind),
    };
    let kind = match kind {
        "s" => Kind::Text,
        "b" => Kind::Bytes,
        "i" => Kind::Integer,
        "t" => Kind::Truth,
        "d" => Kind::Double,
        id => Kind::Message(id),
    };
    Some(Field { tag, camel: camel(name), shape, kind })
}

fn camel(snake: &str) -> String {
    let mut out = String::with_capacity(snake.len());
    let mut upper = false;
    for c in snake.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}

impl Field {
    /// The JSON field that this is: the one of the same letters and digits.
    pub(super) fn property<'a>(&self, schema: &'a Schema) -> Option<(&'a str, &'a Schema)> {
        if let Some(property) = schema.property(&self.camel) {
            return schema.properties().find(|(name, _)| *name == self.camel).map(|(name, _)| (name, property));
        }
        schema.properties().find(|(name, _)| letters(name).eq(letters(&self.camel)))
    }
}

/// What of a name both sides spell alike: `x-kubernetes-list-type` is `xKubernetesListType`, `$ref` is `ref`.
fn letters(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase())
}

/// Scalar fields that are pointers in upstream's types: a zero in them is not the same as nothing.
const POINTERS: &[&str] = &[
    "activeDeadlineSeconds",
    "allocateLoadBalancerNodePorts",
    "allowPrivilegeEscalation",
    "allowVolumeExpansion",
    "attachRequired",
    "automountServiceAccountToken",
    "backoffLimit",
    "backoffLimitPerIndex",
    "blockOwnerDeletion",
    "completions",
    "controller",
    "defaultMode",
    "deletionGracePeriodSeconds",
    "enableServiceLinks",
    "expirationSeconds",
    "failedJobsHistoryLimit",
    "fsGroup",
    "gracePeriodSeconds",
    "hostProcess",
    "hostUsers",
    "immutable",
    "leaseDurationSeconds",
    "leaseTransitions",
    "manualSelector",
    "maxFailedIndexes",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minReplicas",
    "minimum",
    "mode",
    "optional",
    "orphanDependents",
    "parallelism",
    "partition",
    "podInfoOnMount",
    "priority",
    "privileged",
    "progressDeadlineSeconds",
    "readOnlyRootFilesystem",
    "ready",
    "replicas",
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
    "started",
    "startingDeadlineSeconds",
    "storageCapacity",
    "storageClassName",
    "successfulJobsHistoryLimit",
    "suspend",
    "terminating",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
    // No pointer, but never left out of JSON either: a PriorityClass may have the value 0.
    "value",
    "volumeAttributesClassName",
];

/// Whether a zero in the field of that JSON name is to be kept.
pub(super) fn is_pointer(name: &str) -> bool {
    POINTERS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_model::kind::builtin;

    #[test]
    fn every_served_kind_has_a_message_and_every_message_its_parts() {
        for kind in builtin() {
            assert!(root(&kind.group, &kind.version, &kind.kind).is_some(), "{kind:?}");
        }
        for id in MESSAGES.keys() {
            for field in message(id).expect("known") {
                if let Kind::Message(inner) = field.kind {
                    assert!(message(inner).is_some(), "{id} {field:?}");
                }
            }
        }
    }

    #[test]
    fn pointers_are_in_order() {
        assert!(POINTERS.is_sorted());
    }

    /// A scalar that JSON does not know would silently be lost.
    #[test]
    fn every_scalar_of_a_served_kind_is_a_field_in_json() {
        let mut lost = Vec::new();
        for kind in builtin() {
            let id = root(&kind.group, &kind.version, &kind.kind).expect("known");
            let schema = api_schema::of(kind).expect("a schema");
            walk(&id, schema, &mut Vec::new(), &mut lost);
        }
        lost.sort();
        lost.dedup();
        insta::assert_snapshot!(lost.join("\n"));
    }

    fn walk(id: &str, schema: &Schema, above: &mut Vec<String>, lost: &mut Vec<String>) {
        if above.iter().any(|seen| seen == id) || schema.properties().len() == 0 {
            return;
        }
        above.push(id.to_owned());
        for field in message(id).expect("known") {
            match (field.property(schema), &field.kind) {
                (Some((_, schema)), Kind::Message(inner)) => {
                    let inside = schema.items().or(schema.additional()).unwrap_or(schema);
                    walk(inner, inside, above, lost);
                }
                (None, Kind::Message(inner)) if field.shape == Shape::One => walk(inner, schema, above, lost),
                (None, _) => lost.push(format!("{id} {}", field.camel)),
                (Some(_), _) => {}
            }
        }
        above.pop();
    }
}
