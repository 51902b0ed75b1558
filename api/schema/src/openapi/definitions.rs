//! The schemas of a document: the schemas of the types, completed with facts, list kinds and
//! `x-kubernetes-group-version-kind`. They have upstream's names and the syntax of version 3.

mod custom;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_model::kind::{self, Kind};
use serde_json::{Map, Value, json};

use crate::builtin::{DEFINITIONS, reference};
use crate::facts::{self, Fact, SELF};
use crate::strategy::{ListType, MapType};
use crate::types::{self, Types};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
/// Types of [`META`] that every document has besides its kinds: bodies of requests and responses.
const SHARED: [&str; 7] = ["Status", "APIResourceList", "DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "WatchEvent"];
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// The name of a kind's definition: the name of the type if there is one. Otherwise it is the reversed domain of the
/// group with version and kind, as upstream's names of custom resources.
pub(super) fn definition_name(group: &str, version: &str, kind: &str) -> String {
    if let Some(name) = types::kinds().get(format!("{group}/{version}/{kind}").as_str()) {
        return (*name).to_owned();
    }
    let labels: Vec<&str> = group.rsplit('.').filter(|label| !label.is_empty()).chain([version, kind]).collect();
    labels.join(".")
}

/// The name of the definition of the list kind.
pub(super) fn list_name(item: &str) -> String {
    format!("{item}List")
}

/// The author of a definition's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// The schema belongs to a built-in type.
    Us,
    /// The schema comes from a CustomResourceDefinition.
    User,
}

/// Visits every definition that the operations on these kinds name, and every definition that these refer to. Only the
/// definitions of one kind are in memory at a time.
pub(super) fn each(types: &Types, kinds: &[Arc<Kind>], visit: &mut dyn FnMut(&str, Value, Author)) {
    let bodies = bodies(kinds);
    let names = names(kinds, &bodies);
    let mut visit = |name: &str, mut schema: Value, author: Author| {
        if let (Some(gvks), Some(fields)) = (names.get(name), schema.as_object_mut()) {
            let gvks: Vec<Value> = gvks.iter().map(|(g, v, k)| json!({"group": g, "version": v, "kind": k})).collect();
            fields.insert("x-kubernetes-group-version-kind".to_owned(), gvks.into());
        }
        visit(name, schema, author);
    };
    let shared = SHARED.iter().map(|name| format!("{META}.{name}"));
    let bodies = bodies.iter().map(|(group, version, kind)| definition_name(group, version, kind));
    let mut visited = BTreeSet::new();
    let mut type_meta = json!({});
    for root in shared.chain(bodies) {
        let mut pending = vec![root];
        while let Some(name) = pending.pop() {
            if visited.contains(&name) {
                continue;
            }
            let Some(mut schema) = types.schema(&name).and_then(|json| serde_json::from_str(json).ok()) else { continue };
            references(&schema, &mut pending);
            complete(&name, &mut schema);
            if name == STATUS {
                type_meta = schema.get("properties").cloned().unwrap_or_default();
            }
            visit(&name, schema, Author::Us);
            visited.insert(name);
        }
    }
    for kind in kinds {
        let name = definition_name(&kind.group, &kind.version, &kind.kind);
        match &kind.custom {
            Some(custom) if !custom.schema.is_null() => visit(&name, custom::definition(&custom.schema, &type_meta), Author::User),
            Some(_) => visit(&name, free_form(), Author::Us),
            None if crate::of_kind(kind).is_none() => visit(&name, free_form(), Author::Us),
            None => {}
        }
        if kind.allows("list") {
            visit(&list_name(&name), list_of(kind, &name, &type_meta), Author::Us);
        }
    }
}

/// Adds the names of the definitions that a schema refers to.
fn references(schema: &Value, names: &mut Vec<String>) {
    names.extend(reference(schema).map(str::to_owned));
    let properties = schema.get("properties").and_then(Value::as_object);
    let children = ["items", "additionalProperties"].into_iter().filter_map(|name| schema.get(name));
    properties.into_iter().flat_map(Map::values).chain(children).for_each(|child| references(child, names));
}

/// Group, version and kind of one definition.
type Gvk<'a> = (Cow<'a, str>, Cow<'a, str>, Cow<'a, str>);

/// The group, version and kind of the kinds and of the bodies of their subresources.
fn bodies(kinds: &[Arc<Kind>]) -> BTreeSet<Gvk<'_>> {
    let own = kinds.iter().map(|kind| (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str()));
    let subs = kinds
        .iter()
        .flat_map(|kind| &kind.subresources)
        .filter_map(|sub| sub.kind.as_ref())
        .map(|(g, v, k)| (g.as_str(), v.as_str(), k.as_str()));
    own.chain(subs).map(|(g, v, k)| (g.into(), v.into(), k.into())).collect()
}

/// The groups, versions and kinds of each definition, for `x-kubernetes-group-version-kind`.
fn names<'a>(kinds: &'a [Arc<Kind>], bodies: &BTreeSet<Gvk<'a>>) -> BTreeMap<String, Vec<Gvk<'a>>> {
    let mut names: BTreeMap<String, Vec<Gvk<'a>>> = BTreeMap::new();
    for (group, version, kind) in bodies {
        names.entry(definition_name(group, version, kind)).or_default().push((group.clone(), version.clone(), kind.clone()));
    }
    for kind in kinds {
        let name = list_name(&definition_name(&kind.group, &kind.version, &kind.kind));
        names.entry(name).or_default().push((kind.group.as_str().into(), kind.version.as_str().into(), kind.list_kind().into()));
    }
    // Options and events belong to every built-in group and version. Custom groups are left out, as upstream does, so
    // that a document depends only on its own kinds.
    let versions: BTreeSet<(&str, &str)> = kind::builtin().iter().map(|kind| (kind.group.as_str(), kind.version.as_str())).collect();
    for shared in ["DeleteOptions", "WatchEvent"] {
        let all = versions.iter().map(|(group, version)| ((*group).into(), (*version).into(), shared.into()));
        names.insert(format!("{META}.{shared}"), all.collect());
    }
    for own in ["Status", "APIResourceList"] {
        names.insert(format!("{META}.{own}"), vec![("".into(), "v1".into(), own.into())]);
    }
    names
}

/// The schema of a kind without a type: any object with metadata.
fn free_form() -> Value {
    json!({
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": format!("{DEFINITIONS}{META}.ObjectMeta")}]},
        },
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// The schema of the list kind. The descriptions of `apiVersion` and `kind` are those of other types.
fn list_of(kind: &Kind, item: &str, type_meta: &Value) -> Value {
    json!({
        "description": format!("{} is a list of {}.", kind.list_kind(), kind.plural),
        "type": "object",
        "properties": {
            "apiVersion": type_meta.get("apiVersion"),
            "kind": type_meta.get("kind"),
            "items": {"type": "array", "description": format!("The {}.", kind.plural), "items": {"$ref": format!("{DEFINITIONS}{item}")}},
            "metadata": {"description": "Standard list metadata.", "allOf": [{"$ref": format!("{DEFINITIONS}{META}.ListMeta")}]},
        },
        "required": ["items"],
    })
}

/// Adds the facts to the schema of a type, and removes what upstream's schema does not have.
fn complete(name: &str, schema: &mut Value) {
    if let Some(body) = special(name, schema) {
        *schema = body;
        return;
    }
    let Some(fields) = schema.as_object_mut() else { return };
    insert_facts(fields, facts::of_field(name, SELF));
    if let Some(required) = fields.remove("required") {
        let always = required.as_array().into_iter().flatten().filter_map(Value::as_str);
        let required = facts::required(name, always);
        if !required.is_empty() {
            fields.insert("required".to_owned(), required.into());
        }
    }
    for (field, property) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        let Some(property) = property.as_object_mut() else { continue };
        insert_facts(property, facts::of_field(name, field));
        let element = if property.contains_key("items") { "items" } else { "additionalProperties" };
        if let Some(element) = property.get_mut(element).and_then(Value::as_object_mut) {
            insert_facts(element, facts::of_field(name, &format!("{field}[]")));
        }
    }
}

/// Definitions of scalars with two forms, which the types mark instead of listing the forms.
fn special(name: &str, schema: &Value) -> Option<Value> {
    let forms = match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON" => json!({}),
        _ => return None,
    };
    let mut body = forms;
    if let (Some(fields), Some(description)) = (body.as_object_mut(), schema.get("description")) {
        fields.insert("description".to_owned(), description.clone());
    }
    Some(body)
}

fn insert_facts(fields: &mut Map<String, Value>, fact: &Fact) {
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    if let Some(list_type) = fact.list_type {
        let name = match list_type {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        put("x-kubernetes-list-type", name.into());
    }
    if !fact.list_map_keys.is_empty() {
        put("x-kubernetes-list-map-keys", fact.list_map_keys.into());
    }
    if let Some(map_type) = fact.map_type {
        put("x-kubernetes-map-type", if map_type == MapType::Atomic { "atomic" } else { "granular" }.into());
    }
    if let Some(key) = fact.merge_key {
        put("x-kubernetes-patch-merge-key", key.into());
    }
    if let Some(strategy) = fact.strategy {
        let words = match (strategy.merge, strategy.retain_keys) {
            (true, true) => "merge,retainKeys",
            (true, false) => "merge",
            (false, true) => "retainKeys",
            (false, false) => "replace",
        };
        put("x-kubernetes-patch-strategy", words.into());
    }
    if let Some(default) = fact.default.and_then(|json| serde_json::from_str(json).ok()) {
        put("default", default);
    }
    if !fact.enumeration.is_empty() {
        put("enum", fact.enumeration.into());
    }
}
