//! The objects that a quota counts: all of the namespace, or the Pods in its scopes.

use api_model::kind::GroupResource;
use serde_json::Value;

use crate::json;
use crate::pods;

/// The scopes of a quota. Scopes select Pods only: a quota with scopes counts nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scopes {
    /// `spec.scopes`.
    plain: Vec<String>,
    /// `spec.scopeSelector.matchExpressions`.
    selected: Vec<Value>,
}

impl Scopes {
    /// Reads the scopes of a quota.
    pub fn from_quota(quota: &Value) -> Self {
        let list = |at| quota.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let plain = list("/spec/scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self { plain, selected: list("/spec/scopeSelector/matchExpressions").to_vec() }
    }

    /// Whether objects of a resource can be in the scopes.
    pub fn may_match(&self, resource: &GroupResource) -> bool {
        (self.plain.is_empty() && self.selected.is_empty()) || *resource == pods::resource()
    }

    /// Whether an object of a resource is in the scopes.
    pub fn matches(&self, resource: &GroupResource, object: &Value) -> bool {
        let spec = pods::spec(object);
        self.may_match(resource)
            && self.plain.iter().all(|scope| pod_in(scope, spec))
            && self.selected.iter().all(|expression| pod_matches(expression, spec))
    }
}

fn pod_matches(expression: &Value, spec: &Value) -> bool {
    let scope = json::text(expression, "scopeName");
    if scope != "PriorityClass" {
        return pod_in(scope, spec);
    }
    let class = json::text(spec, "priorityClassName");
    let listed = json::list(expression, "values").iter().any(|v| v.as_str() == Some(class));
    match json::text(expression, "operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        _ => false,
    }
}

fn pod_in(scope: &str, spec: &Value) -> bool {
    match scope {
        "Terminating" => json::has(spec, "activeDeadlineSeconds"),
        "NotTerminating" => !json::has(spec, "activeDeadlineSeconds"),
        "BestEffort" => best_effort(spec),
        "NotBestEffort" => !best_effort(spec),
        "PriorityClass" => !json::text(spec, "priorityClassName").is_empty(),
        "CrossNamespacePodAffinity" => crosses_namespaces(spec),
        _ => false,
    }
}

/// Whether the Pod has neither requests nor limits of CPU and memory.
fn best_effort(spec: &Value) -> bool {
    ["requests", "limits"].into_iter().all(|which| {
        let containers = ["containers", "initContainers"].into_iter().flat_map(|field| json::list(spec, field));
        let mut all = containers.map(|container| pods::of_container(container, which));
        let whole = crate::amount::list(spec.pointer(&format!("/resources/{which}")));
        let none = |amounts: &crate::amount::Amounts| ["cpu", "memory"].iter().all(|name| amounts.get(*name).is_none_or(|a| *a == 0));
        none(&whole) && all.all(|amounts| none(&amounts))
    })
}

fn crosses_namespaces(spec: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].into_iter().filter_map(|kind| spec.get("affinity")?.get(kind)).any(|affinity| {
        let required = json::list(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred =
            json::list(affinity, "preferredDuringSchedulingIgnoredDuringExecution").iter().filter_map(|p| p.get("podAffinityTerm"));
        required.chain(preferred).any(|term| !json::list(term, "namespaces").is_empty() || json::has(term, "namespaceSelector"))
    })
}
