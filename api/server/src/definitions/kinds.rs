//! The kinds of a definition, as the registry serves them.

use std::cmp::Ordering;

use api_model::kind::{Custom, CustomColumn, Kind, ScalePaths, subresource};
use serde_json::Value;

use crate::condition;

/// Verbs of a custom resource, in upstream's order.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// `apiVersion` of the version in which objects are stored.
pub(super) fn storage_api_version(definition: &Value) -> Option<String> {
    let version = versions(definition).find(|version| version.get("storage") == Some(&Value::Bool(true)))?;
    Some(format!("{}/{}", text(definition.get("spec")?, "group"), text(version, "name")))
}

/// A kind for every version, if the definition is established. Versions that are not served have no verbs.
pub(super) fn of(definition: &Value) -> Vec<Kind> {
    let (Some(spec), Some(names)) = (definition.get("spec"), definition.pointer("/status/acceptedNames")) else { return Vec::new() };
    if !condition::is_true(definition, "Established") {
        return Vec::new();
    }
    versions(definition).map(|version| kind(spec, names, version)).collect()
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

fn kind(spec: &Value, names: &Value, version: &Value) -> Kind {
    let is_served = version.get("served") == Some(&Value::Bool(true));
    let sub = version.get("subresources");
    let has = |name: &str| sub.and_then(|sub| sub.get(name)).is_some_and(Value::is_object);
    Kind {
        group: text(spec, "group").to_owned(),
        version: text(version, "name").to_owned(),
        kind: text(names, "kind").to_owned(),
        plural: text(names, "plural").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: texts(names, "shortNames"),
        categories: texts(names, "categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: if is_served { VERBS.iter().map(|&verb| verb.to_owned()).collect() } else { Vec::new() },
        subresources: ["status", "scale"].into_iter().filter(|name| has(name)).map(subresource).collect(),
        custom: Some(custom(spec, names, version).into()),
    }
}

fn custom(spec: &Value, names: &Value, version: &Value) -> Custom {
    let scale = version.pointer("/subresources/scale").filter(|scale| scale.is_object()).map(|scale| ScalePaths {
        spec_replicas: dotted(text(scale, "specReplicasPath")),
        status_replicas: dotted(text(scale, "statusReplicasPath")),
        label_selector: dotted(text(scale, "labelSelectorPath")),
    });
    let usual_warning = || format!("{}/{} {} is deprecated", text(spec, "group"), text(version, "name"), text(names, "kind"));
    let is_stored = |version: &&Value| ["served", "storage"].iter().all(|flag| version.get(flag) == Some(&Value::Bool(true)));
    let warning = || version.get("deprecationWarning").and_then(Value::as_str).map_or_else(usual_warning, str::to_owned);
    Custom {
        list_kind: text(names, "listKind").to_owned(),
        storage_version: list(spec, "versions").iter().find(is_stored).map(|version| text(version, "name").to_owned()),
        schema: version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default(),
        columns: list(version, "additionalPrinterColumns").iter().map(column).collect(),
        selectable_fields: list(version, "selectableFields").iter().map(|field| dotted(text(field, "jsonPath"))).collect(),
        scale,
        deprecation_warning: (version.get("deprecated") == Some(&Value::Bool(true))).then(warning),
        ..Custom::default()
    }
}

fn column(column: &Value) -> CustomColumn {
    let path = text(column, "jsonPath");
    let description = match text(column, "description") {
        "" => format!("Custom resource definition column (in JSONPath format): {path}"),
        description => description.to_owned(),
    };
    CustomColumn {
        name: text(column, "name").to_owned(),
        kind: text(column, "type").to_owned(),
        format: text(column, "format").to_owned(),
        description,
        priority: column.get("priority").and_then(Value::as_i64).and_then(|priority| i32::try_from(priority).ok()).unwrap_or_default(),
        json_path: path.to_owned(),
    }
}

fn dotted(path: &str) -> String {
    path.strip_prefix('.').unwrap_or(path).to_owned()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    list(value, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The order in discovery: groups by name, versions of a group by upstream's priority, resources of a version by name.
pub(super) fn discovery_order(one: &Kind, other: &Kind) -> Ordering {
    let versions = || version_order(&one.version, &other.version);
    one.group.cmp(&other.group).then_with(versions).then_with(|| one.plural.cmp(&other.plural))
}

/// Stable before beta before alpha, later before earlier. Names of another form come last, in alphabetical order.
pub(crate) fn version_order(one: &str, other: &str) -> Ordering {
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

/// Stability, major and minor number of `v2beta1`.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let letters = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(letters);
    let major = major.parse().ok()?;
    let numbered = |word: &str| rest.strip_prefix(word).and_then(|minor| minor.parse().ok());
    match (numbered("beta"), numbered("alpha")) {
        _ if rest.is_empty() => Some((3, major, 0)),
        (Some(minor), _) => Some((2, major, minor)),
        (_, Some(minor)) => Some((1, major, minor)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_in_upstreams_order() {
        let mut versions = ["foo10", "v1alpha1", "v3beta1", "v10", "v2", "v12alpha1", "v1", "v10beta3", "foo1", "v11alpha2"];
        versions.sort_by(|one, other| version_order(one, other));
        assert_eq!(versions, ["v10", "v2", "v1", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"]);
    }
}
