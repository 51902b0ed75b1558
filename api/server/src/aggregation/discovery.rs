//! Aggregated servers in discovery: their groups among this server's groups, by priority, and their own list of
//! resources, in the older and in the aggregated form. Pure.

use std::sync::Arc;

use api_model::kind::Kind;
use serde_json::{Value, json};

use super::{Aggregation, Remote, is_fixed};
use crate::definitions::version_order;

/// Upstream's priorities for the groups and versions of custom resources.
pub(super) const CUSTOM_GROUP_PRIORITY: i64 = 1_000;
pub(super) const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// A version of a group in a document, with the values that define its order.
struct Entry {
    version: String,
    priority: i64,
    value: Value,
}

impl Aggregation {
    /// The document of `/apis`, with the groups of aggregated servers.
    pub(crate) fn with_groups(&self, mut list: Value, kinds: &[Arc<Kind>]) -> Value {
        let remotes = self.remotes.all();
        if !remotes.is_empty()
            && let Some(groups) = list.get_mut("groups").and_then(Value::as_array_mut)
        {
            merge(groups, "/name", &remotes, kinds, |group| group_of(group, &remotes, kinds));
        }
        list
    }

    /// The document of `/apis/GROUP`; None for a group that no server serves.
    pub(crate) fn group(&self, local: Option<Value>, group: &str, kinds: &[Arc<Kind>]) -> Option<Value> {
        let remotes = self.remotes.all();
        if !remotes.iter().any(|remote| remote.group == group) {
            return local;
        }
        let mut found = group_of(group, &remotes, kinds);
        if let Some(fields) = found.as_object_mut() {
            fields.insert("kind".to_owned(), "APIGroup".into());
            fields.insert("apiVersion".to_owned(), "v1".into());
        }
        Some(found)
    }

    /// The aggregated document of `/apis`.
    pub(crate) fn with_discovery(&self, mut list: Value, kinds: &[Arc<Kind>]) -> Value {
        let remotes = self.remotes.all();
        if remotes.is_empty() {
            return list;
        }
        let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) else { return list };
        let local = items.clone();
        merge(items, "/metadata/name", &remotes, kinds, |group| {
            let ours = local.iter().find(|item| item.pointer("/metadata/name").and_then(Value::as_str) == Some(group));
            let ours = ours.and_then(|item| item.get("versions")?.as_array()).into_iter().flatten();
            let ours = ours.map(|version| entry_of(version.clone(), CUSTOM_VERSION_PRIORITY));
            let theirs = remotes.iter().filter(|remote| remote.group == group).map(|remote| {
                let documents = self.documents_of(remote);
                let resources = documents.as_ref().map(|documents| resources(&documents.resources)).unwrap_or_default();
                let freshness = if remote.is_available && documents.is_some() { "Current" } else { "Stale" };
                entry_of(json!({"version": remote.version, "resources": resources, "freshness": freshness}), remote.version_priority)
            });
            json!({"metadata": {"name": group}, "versions": ordered(ours.collect(), theirs.collect())})
        });
        list
    }
}

/// Replaces or adds the groups with a version that an aggregated server serves. Built-in groups come first; the others
/// follow by their priority and then by their name.
fn merge(groups: &mut Vec<Value>, name: &str, remotes: &[Arc<Remote>], kinds: &[Arc<Kind>], make: impl Fn(&str) -> Value) {
    let mut names: Vec<&str> = remotes.iter().map(|remote| remote.group.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let name_of = |group: &Value| group.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    groups.retain(|group| !names.contains(&name_of(group).as_str()));
    groups.extend(names.iter().map(|group| make(group)));
    groups.sort_by_cached_key(|group| {
        let name = name_of(group);
        let is_ours = kinds.iter().any(|kind| kind.group == name && kind.custom.is_none());
        let of_others = remotes.iter().filter(|remote| remote.group == name).map(|remote| remote.group_priority).max();
        match (is_ours, of_others) {
            // Built-in groups keep their order.
            (true, _) => (i64::MIN, String::new()),
            (false, Some(priority)) => (-priority, name),
            (false, None) => (-CUSTOM_GROUP_PRIORITY, name),
        }
    });
}

/// A group in the older form.
fn group_of(group: &str, remotes: &[Arc<Remote>], kinds: &[Arc<Kind>]) -> Value {
    let row = |version: &str, priority| entry_of(json!({"groupVersion": format!("{group}/{version}"), "version": version}), priority);
    let ours = kinds.iter().filter(|kind| kind.group == group).map(|kind| row(&kind.version, CUSTOM_VERSION_PRIORITY));
    let theirs = remotes.iter().filter(|remote| remote.group == group).map(|remote| row(&remote.version, remote.version_priority));
    let versions = ordered(ours.collect(), theirs.collect());
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group, "versions": versions, "preferredVersion": preferred})
}

fn entry_of(value: Value, priority: i64) -> Entry {
    Entry { version: value.get("version").and_then(Value::as_str).unwrap_or_default().to_owned(), priority, value }
}

/// Each version once; an aggregated server's entry wins over this server's. The highest priority comes first, then the
/// order of versions.
fn ordered(ours: Vec<Entry>, theirs: Vec<Entry>) -> Vec<Value> {
    let mut entries = theirs;
    for entry in ours {
        if !entries.iter().any(|known| known.version == entry.version) {
            entries.push(entry);
        }
    }
    entries.sort_by(|one, other| other.priority.cmp(&one.priority).then_with(|| version_order(&one.version, &other.version)));
    entries.into_iter().map(|entry| entry.value).collect()
}

/// The rows of an `APIResourceList` in the form of the aggregated document.
fn resources(list: &Value) -> Vec<Value> {
    let rows = || list.get("resources").and_then(Value::as_array).into_iter().flatten();
    let text = |row: &Value, field: &str| row.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let of_row = |row: &Value| {
        let mut resource = json!({
            "responseKind": {"group": text(row, "group"), "version": text(row, "version"), "kind": text(row, "kind")},
            "verbs": row.get("verbs").cloned().unwrap_or_else(|| json!([])),
        });
        for field in ["shortNames", "categories"] {
            if let Some(words) = row.get(field).filter(|words| words.is_array()) {
                api_wire::json::set(&mut resource, &[field], words.clone());
            }
        }
        resource
    };
    let mut found = Vec::new();
    for row in rows().filter(|row| !text(row, "name").contains('/')) {
        let name = text(row, "name");
        let mut resource = of_row(row);
        let is_namespaced = row.get("namespaced") == Some(&Value::Bool(true));
        api_wire::json::set(&mut resource, &["resource"], name.as_str());
        api_wire::json::set(&mut resource, &["scope"], if is_namespaced { "Namespaced" } else { "Cluster" });
        api_wire::json::set(&mut resource, &["singularResource"], text(row, "singularName"));
        let below = |other: &Value| text(other, "name").strip_prefix(&format!("{name}/")).map(str::to_owned);
        let subresources = rows().filter_map(|other| {
            let mut resource = of_row(other);
            api_wire::json::set(&mut resource, &["subresource"], below(other)?);
            Some(resource)
        });
        let subresources: Vec<Value> = subresources.collect();
        if !subresources.is_empty() {
            api_wire::json::set(&mut resource, &["subresources"], subresources);
        }
        found.push(resource);
    }
    found
}

/// Whether a document is an `APIResourceList`, as a version's discovery must be.
pub(super) fn is_resource_list(document: &Value) -> bool {
    document.get("kind").and_then(Value::as_str) == Some("APIResourceList")
}

/// The URL of a version's document in a server's index of OpenAPI v3, if that URL belongs to this version.
pub(super) fn openapi_of(index: &Value, remote: &Remote) -> String {
    let path = format!("apis/{}", remote.group_version());
    let url = index.get("paths").and_then(|paths| paths.get(&path)?.get("serverRelativeURL")?.as_str()).unwrap_or_default();
    let is_ours = url.split('?').next() == Some(format!("/openapi/v3/{path}").as_str()) && !is_fixed(&remote.group, &remote.version);
    if is_ours { url.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(group: &str, version: &str, group_priority: i64, version_priority: i64) -> Arc<Remote> {
        let object = json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {"group": group, "version": version,
            "groupPriorityMinimum": group_priority, "versionPriority": version_priority, "service": {"name": "s", "namespace": "n"}}});
        Arc::new(Remote::of(&object).expect("remote"))
    }

    #[test]
    fn groups_stand_by_their_priority_behind_what_is_built_in() {
        let kinds: Vec<Arc<Kind>> = api_model::kind::builtin().to_vec();
        let remotes = [remote("low.io", "v1", 10, 1), remote("high.io", "v1beta1", 2_000, 1), remote("high.io", "v1", 2_000, 5)];
        let mut groups = vec![json!({"name": "apps"}), json!({"name": "crd.example.com"}), json!({"name": "other.example.com"})];
        merge(&mut groups, "/name", &remotes, &kinds, |group| group_of(group, &remotes, &kinds));
        let names: Vec<&str> = groups.iter().filter_map(|group| group["name"].as_str()).collect();
        assert_eq!(names, ["apps", "high.io", "crd.example.com", "other.example.com", "low.io"]);
        assert_eq!(groups[1]["preferredVersion"], json!({"groupVersion": "high.io/v1", "version": "v1"}));
    }

    #[test]
    fn a_servers_answer_is_served_in_the_newer_form() {
        let list = json!({"kind": "APIResourceList", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
            {"name": "nodes", "singularName": "node", "namespaced": false, "kind": "NodeMetrics", "verbs": ["get", "list"], "shortNames": ["nm"]},
            {"name": "nodes/scale", "singularName": "", "namespaced": false, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
        ]});
        let scale =
            json!({"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]});
        let wanted = json!([{"resource": "nodes", "scope": "Cluster", "singularResource": "node", "verbs": ["get", "list"], "shortNames": ["nm"],
            "responseKind": {"group": "", "version": "", "kind": "NodeMetrics"}, "subresources": [scale]}]);
        assert_eq!(Value::Array(resources(&list)), wanted);
    }
}
