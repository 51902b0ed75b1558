//! The roles and bindings of a new cluster: upstream's bootstrap policy (`rbac-defaults`) with default feature gates.
//! The policy also has the roles of kinds and controllers that Skiff does not have, for add-ons that provide them. The
//! server creates missing objects when it starts.

mod controllers;
mod roles;

use std::sync::LazyLock;

use api_model::meta;
use serde_json::{Value, json};

use crate::role::{GROUP, effective};
use crate::rule::Rule;

pub use roles::{JOINING, METRICS_READER, METRICS_SCRAPER};

/// Allows the server to add missing rules or subjects to the object; with `false` the server does not change it.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

const READ: &[&str] = &["get", "list", "watch"];
const LIST_WATCH: &[&str] = &["list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const READ_WRITE: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];
const GET: &[&str] = &["get"];
const UPDATE: &[&str] = &["update"];
const ALL: &[&str] = &["*"];

/// One rule of a table.
#[derive(Clone, Copy)]
enum Grant {
    /// Verbs, groups, resources.
    On(&'static [&'static str], &'static [&'static str], &'static [&'static str]),
    /// Verbs, groups, resources, names.
    Named(&'static [&'static str], &'static [&'static str], &'static [&'static str], &'static [&'static str]),
    /// Verbs, paths.
    Paths(&'static [&'static str], &'static [&'static str]),
}

/// Every controller may write Events.
const EVENTS: Grant = Grant::On(&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]);

impl Grant {
    fn rule(self) -> Rule {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
        match self {
            Self::On(verbs, groups, resources) => {
                Rule { verbs: own(verbs), groups: own(groups), resources: own(resources), ..Rule::default() }
            }
            Self::Named(verbs, groups, resources, names) => {
                Rule { verbs: own(verbs), groups: own(groups), resources: own(resources), names: own(names), ..Rule::default() }
            }
            Self::Paths(verbs, paths) => Rule { verbs: own(verbs), paths: own(paths), ..Rule::default() },
        }
    }
}

/// A role of a table.
struct Role {
    name: &'static str,
    /// The roles whose selector selects this one: `admin`, `edit`, `view`.
    part_of: &'static [&'static str],
    grants: &'static [Grant],
}

/// The subject of a binding.
#[derive(Clone, Copy)]
enum To {
    User(&'static str),
    Group(&'static str),
    /// A ServiceAccount in kube-system.
    Account(&'static str),
}

/// Whether a user is the ServiceAccount of a built-in controller.
pub fn is_controller(user: &str) -> bool {
    let account = user.strip_prefix("system:serviceaccount:kube-system:");
    let named = |account: &str| controllers::ROLES.iter().chain(controllers::PATCHES).any(|(name, _)| *name == account);
    account.is_some_and(named)
}

/// Every bootstrap ClusterRole, ClusterRoleBinding, Role and RoleBinding, roles first.
pub fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = roles::CLUSTER.iter().map(cluster_role).collect();
    objects.extend(controllers::ROLES.iter().map(|(name, grants)| cluster_role_named(&format!("system:controller:{name}"), &[], grants)));
    objects.extend(controllers::PATCHES.iter().map(|(name, grants)| cluster_role_named(&format!("skiff:controller:{name}"), &[], grants)));
    objects.extend(roles::AGGREGATING.iter().map(|(name, part_of)| aggregating(name, part_of)));
    write_aggregated(&mut objects);
    objects.extend(roles::CLUSTER_BINDINGS.iter().map(|(name, role, to)| cluster_binding(name, role, to)));
    objects.extend(controllers::ROLES.iter().map(|(name, _)| {
        let role = format!("system:controller:{name}");
        cluster_binding(&role, &role, &[To::Account(name)])
    }));
    objects.extend(controllers::PATCHES.iter().map(|(name, _)| {
        let role = format!("skiff:controller:{name}");
        cluster_binding(&role, &role, &[To::Account(name)])
    }));
    for (namespace, name, grants) in roles::NAMESPACED {
        objects.push(object("Role", name, namespace, json!({ "rules": rules(grants) })));
    }
    for (namespace, name, role, to) in roles::NAMESPACED_BINDINGS {
        let body = json!({ "roleRef": role_ref("Role", role), "subjects": subjects(to) });
        objects.push(object("RoleBinding", name, namespace, body));
    }
    objects
}

/// The rules of the role `system:node`, which hold for every node.
pub fn node_rules() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| roles::NODE.iter().map(|grant| grant.rule()).collect());
    &RULES
}

fn cluster_role(role: &Role) -> Value {
    cluster_role_named(role.name, role.part_of, role.grants)
}

fn cluster_role_named(name: &str, part_of: &[&str], grants: &[Grant]) -> Value {
    let mut role = object("ClusterRole", name, "", json!({ "rules": rules(grants) }));
    let labels = role.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.extend(part_of.iter().map(|whole| (format!("rbac.authorization.k8s.io/aggregate-to-{whole}"), "true".into())));
    }
    role
}

fn aggregating(name: &str, part_of: &[&str]) -> Value {
    let mut role = cluster_role_named(name, part_of, &[]);
    let label = format!("rbac.authorization.k8s.io/aggregate-to-{name}");
    put(&mut role, "aggregationRule", json!({ "clusterRoleSelectors": [{ "matchLabels": { label: "true" } }] }));
    role
}

/// Fills in the rules of aggregating roles, for clients that read them. Authorization evaluates the aggregation itself.
fn write_aggregated(objects: &mut [Value]) {
    let all: Vec<_> = objects.iter().cloned().map(std::sync::Arc::new).collect();
    for role in objects.iter_mut().filter(|o| o.get("aggregationRule").is_some()) {
        let rules = effective(role, &all).iter().map(Rule::to_value).collect();
        put(role, "rules", rules);
    }
}

fn cluster_binding(name: &str, role: &str, to: &[To]) -> Value {
    let mut body = json!({ "roleRef": role_ref("ClusterRole", role) });
    if !to.is_empty() {
        put(&mut body, "subjects", subjects(to));
    }
    object("ClusterRoleBinding", name, "", body)
}

fn put(object: &mut Value, field: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(field.to_owned(), value);
    }
}

fn rules(grants: &[Grant]) -> Value {
    grants.iter().map(|grant| grant.rule().to_value()).collect()
}

fn role_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": GROUP, "kind": kind, "name": name })
}

fn subjects(to: &[To]) -> Value {
    to.iter()
        .map(|to| match to {
            To::User(name) => json!({ "apiGroup": GROUP, "kind": "User", "name": name }),
            To::Group(name) => json!({ "apiGroup": GROUP, "kind": "Group", "name": name }),
            To::Account(name) => json!({ "kind": "ServiceAccount", "name": name, "namespace": "kube-system" }),
        })
        .collect()
}

fn object(kind: &str, name: &str, namespace: &str, body: Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
            "annotations": { AUTOUPDATE: "true" },
        },
    });
    if !namespace.is_empty() {
        meta::set(&mut object, "namespace", namespace);
    }
    if let (Some(object), Value::Object(body)) = (object.as_object_mut(), body) {
        object.extend(body);
    }
    object
}

#[cfg(test)]
mod tests;
