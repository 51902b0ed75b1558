//! Discovery documents: the older ones (`/api`, `/apis`, `/apis/GROUP`, `/apis/GROUP/VERSION`) and the aggregated one, which
//! newer clients request first. Groups, versions and resources have the order of the given kinds, which clients use as
//! preference.

use std::sync::Arc;

use api_model::kind::{self, Kind, Subresource};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Upstream's length of the hash of a storage version, in bytes.
const STORAGE_HASH_LEN: usize = 8;

/// `/api`: `APIVersions` with the address for clients of any origin.
pub fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: `APIGroupList` with every group but core.
pub fn api_group_list(kinds: &[Arc<Kind>]) -> Value {
    let groups: Vec<Value> = groups(kinds).iter().filter(|group| !group.is_empty()).filter_map(|group| group_of(group, kinds)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`: `APIGroup`; `None` for a group that is not served.
pub fn api_group(group: &str, kinds: &[Arc<Kind>]) -> Option<Value> {
    let mut found = group_of(group, kinds)?;
    if let Some(fields) = found.as_object_mut() {
        fields.insert("kind".into(), "APIGroup".into());
        fields.insert("apiVersion".into(), "v1".into());
    }
    Some(found)
}

fn group_of(group: &str, kinds: &[Arc<Kind>]) -> Option<Value> {
    let versions: Vec<Value> =
        versions(group, kinds).iter().map(|version| json!({"groupVersion": group_version(group, version), "version": version})).collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": group, "versions": versions, "preferredVersion": preferred}))
}

/// `/api/v1` and `/apis/GROUP/VERSION`: `APIResourceList`; `None` for a version that is not served.
pub fn api_resource_list(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<Value> {
    let kinds: Vec<&Arc<Kind>> = kinds.iter().filter(|kind| kind.group == group && kind.version == version).collect();
    if kinds.is_empty() {
        return None;
    }
    let resources: Vec<Value> = kinds.iter().flat_map(|kind| resources(kind)).collect();
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version(group, version), "resources": resources});
    if !group.is_empty() {
        insert(&mut list, "apiVersion", "v1");
    }
    Some(list)
}

/// The rows of a kind: its main resource and the subresources.
fn resources(kind: &Kind) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        insert(&mut main, "shortNames", kind.short_names.clone());
    }
    if !kind.categories.is_empty() {
        insert(&mut main, "categories", kind.categories.clone());
    }
    if let Some(hash) = storage_version_hash(kind) {
        insert(&mut main, "storageVersionHash", hash);
    }
    let mut rows = vec![main];
    rows.extend(kind.subresources.iter().map(|sub| subresource(kind, sub)));
    rows
}

/// Upstream's `StorageVersionHash`. A change tells clients to write the objects again in the new version. `None` if
/// objects of the kind are not stored.
fn storage_version_hash(kind: &Kind) -> Option<String> {
    if !kind.allows("watch") {
        return None;
    }
    let (group, version) = match &kind.custom {
        Some(custom) => (kind.group.as_str(), custom.storage_version.as_deref()?),
        // Events of `events.k8s.io` are stored as Events of the core group.
        None if kind.group == "events.k8s.io" => ("", "v1"),
        // The first version in the table is the preferred one, in which objects are stored.
        None => (kind.group.as_str(), kind::find(&kind.group, &kind.plural)?.version.as_str()),
    };
    let hash = Sha256::digest(format!("{group}/{version}/{}", kind.kind));
    hash.get(..STORAGE_HASH_LEN).map(|start| STANDARD.encode(start))
}

fn subresource(kind: &Kind, sub: &Subresource) -> Value {
    let [group, version, body] = body_kind(kind, sub);
    let mut row = json!({
        "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced, "kind": body, "verbs": sub.verbs,
    });
    if (&group, &version) != (&kind.group, &kind.version) {
        insert(&mut row, "group", group);
        insert(&mut row, "version", version);
    }
    row
}

/// Group, version and kind of a subresource's bodies: its own if it has one, `…ProxyOptions` for a proxy, else those of
/// the kind.
pub(crate) fn body_kind(kind: &Kind, sub: &Subresource) -> [String; 3] {
    match &sub.kind {
        Some((group, version, kind)) => [group.clone(), version.clone(), kind.clone()],
        None if sub.name == "proxy" => [kind.group.clone(), kind.version.clone(), format!("{}ProxyOptions", kind.kind)],
        None => [kind.group.clone(), kind.version.clone(), kind.kind.clone()],
    }
}

/// The aggregated document of `/api` (`core`) or `/apis`, as `apidiscovery.k8s.io` `v2` or `v2beta1`.
pub fn aggregated(kinds: &[Arc<Kind>], core: bool, beta: bool) -> Value {
    let items: Vec<Value> =
        groups(kinds).iter().filter(|group| group.is_empty() == core).map(|group| group_discovery(group, kinds)).collect();
    let version = if beta { "v2beta1" } else { "v2" };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {}, "items": items})
}

fn group_discovery(group: &str, kinds: &[Arc<Kind>]) -> Value {
    let versions: Vec<Value> = versions(group, kinds)
        .iter()
        .map(|version| {
            let of_version = kinds.iter().filter(|kind| kind.group == group && kind.version == *version);
            let resources: Vec<Value> = of_version.map(|kind| resource_discovery(kind)).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn resource_discovery(kind: &Kind) -> Value {
    let mut row = json!({
        "resource": kind.plural,
        "responseKind": response_kind(kind, [kind.group.clone(), kind.version.clone(), kind.kind.clone()]),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        insert(&mut row, "shortNames", kind.short_names.clone());
    }
    if !kind.categories.is_empty() {
        insert(&mut row, "categories", kind.categories.clone());
    }
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|sub| json!({"subresource": sub.name, "responseKind": response_kind(kind, body_kind(kind, sub)), "verbs": sub.verbs}))
        .collect();
    if !subresources.is_empty() {
        insert(&mut row, "subresources", subresources);
    }
    row
}

/// As upstream, group and version are empty if they equal those of the list.
fn response_kind(kind: &Kind, [group, version, body]: [String; 3]) -> Value {
    if group == kind.group && version == kind.version {
        json!({"group": "", "version": "", "kind": body})
    } else {
        json!({"group": group, "version": version, "kind": body})
    }
}

/// The groups in order of first appearance.
pub(crate) fn groups(kinds: &[Arc<Kind>]) -> Vec<&str> {
    unique(kinds.iter().map(|kind| kind.group.as_str()))
}

/// The versions of a group in order of first appearance.
pub(crate) fn versions<'a>(group: &str, kinds: &'a [Arc<Kind>]) -> Vec<&'a str> {
    unique(kinds.iter().filter(|kind| kind.group == group).map(|kind| kind.version.as_str()))
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// `v1` or `apps/v1`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn insert(row: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(fields) = row.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests;
