//! Upstream's suggested priorities of users: nodes and leader elections before controllers, controllers before
//! workloads, and workloads before everybody else.

use api_model::go::parse_bool;
use api_model::kind::find_by_kind;
use api_model::meta;
use api_model::view::View;
use serde_json::{Value, json};

/// Upstream's annotation: whether the server keeps the spec up to date.
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const KUBE_SYSTEM: &str = "kube-system";

/// The mandatory objects and the suggested ones, levels first.
pub(super) fn objects() -> Vec<Value> {
    let mut objects = api_rules::mandatory_flow_control();
    objects.extend(levels());
    objects.extend(schemas());
    for object in &mut objects {
        api_wire::json::set(object, &["metadata", "annotations", AUTOUPDATE], "true");
    }
    objects
}

/// The suggested objects that are stored and differ from the suggestion, as they should be. Mandatory objects cannot be
/// changed.
pub(super) fn revised(view: &dyn View) -> Vec<Value> {
    let suggested = levels().into_iter().chain(schemas());
    let revised = suggested.filter_map(|mut object| {
        let kind = find_by_kind(API_VERSION, object.get("kind")?.as_str()?)?;
        api_rules::default(kind, &mut object);
        api_rules::drop_empty(kind, &mut object);
        revise(&*view.get(&kind.group_resource(), None, meta::name(&object))?, &object)
    });
    revised.collect()
}

/// A stored object with the suggested spec, if the server owns the spec and it differs. As in upstream, the annotation
/// decides who owns the spec, and gets the decision. Without the annotation, the server owns a spec that was never
/// changed.
fn revise(stored: &Value, suggested: &Value) -> Option<Value> {
    let annotation = meta::annotation(stored, AUTOUPDATE).and_then(parse_bool);
    let is_ours = annotation.unwrap_or_else(|| stored.pointer("/metadata/generation").is_none_or(|generation| generation == 1));
    let mut revised = stored.clone();
    if is_ours {
        api_wire::json::set(&mut revised, &["spec"], suggested.get("spec").cloned().unwrap_or_default());
    }
    if annotation != Some(is_ours) {
        api_wire::json::set(&mut revised, &["metadata", "annotations", AUTOUPDATE], is_ours.to_string());
    }
    (revised != *stored).then_some(revised)
}

fn levels() -> Vec<Value> {
    let level = |name: &str, shares: u32, lendable: u32, queues: u32, hand: u32| {
        json!({
            "apiVersion": API_VERSION, "kind": "PriorityLevelConfiguration", "metadata": {"name": name},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": lendable,
                "limitResponse": {"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}},
            }},
        })
    };
    vec![
        level("system", 30, 33, 64, 6),
        level("node-high", 40, 25, 64, 6),
        level("leader-election", 10, 0, 16, 4),
        level("workload-high", 40, 50, 128, 6),
        level("workload-low", 100, 90, 128, 6),
        level("global-default", 20, 50, 128, 6),
    ]
}

fn schemas() -> Vec<Value> {
    let everybody = [group("system:unauthenticated"), group("system:authenticated")];
    let controllers = user("system:kube-controller-manager");
    let scheduler = user("system:kube-scheduler");
    let system_accounts = account("*");
    let leases = resources(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false);
    let nodes = [resources(&["*"], "", &["nodes", "nodes/status"], true), resources(&["*"], "coordination.k8s.io", &["leases"], false)];
    let elections = [resources(&["get", "create", "update"], "", &["endpoints", "configmaps"], false), leases.clone()];
    let endpoints = [resources(&["get", "create", "update"], "", &["endpoints"], false)];
    let endpoint_controllers = [controllers.clone(), account("endpoint-controller"), account("endpointslicemirroring-controller")];
    let electors = [controllers.clone(), scheduler.clone(), system_accounts.clone()];
    let probes = json!([{"subjects": everybody, "nonResourceRules": [paths("get", &["/healthz", "/readyz", "/livez"])]}]);
    vec![
        schema("probes", "exempt", 2, "", probes),
        schema("system-leader-election", "leader-election", 100, "ByUser", some(&electors, &[leases])),
        schema("endpoint-controller", "workload-high", 150, "ByUser", some(&endpoint_controllers, &endpoints)),
        schema("workload-leader-election", "leader-election", 200, "ByUser", some(&[account("*")], &elections)),
        schema("system-node-high", "node-high", 400, "ByUser", some(&[group("system:nodes")], &nodes)),
        schema("system-nodes", "system", 500, "ByUser", all(&[group("system:nodes")])),
        schema("kube-controller-manager", "workload-high", 800, "ByNamespace", all(&[controllers])),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", all(&[scheduler])),
        schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", all(&[system_accounts])),
        schema("service-accounts", "workload-low", 9_000, "ByUser", all(&[group("system:serviceaccounts")])),
        schema("global-default", "global-default", 9_900, "ByUser", all(&everybody)),
    ]
}

fn schema(name: &str, level: &str, precedence: u32, distinguisher: &str, rules: Value) -> Value {
    let mut schema = json!({
        "apiVersion": API_VERSION, "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules},
    });
    if !distinguisher.is_empty() {
        api_wire::json::set(&mut schema, &["spec", "distinguisherMethod", "type"], distinguisher);
    }
    schema
}

fn all(subjects: &[Value]) -> Value {
    let everything = resources(&["*"], "*", &["*"], true);
    json!([{"subjects": subjects, "resourceRules": [everything], "nonResourceRules": [paths("*", &["*"])]}])
}

fn some(subjects: &[Value], resources: &[Value]) -> Value {
    json!([{"subjects": subjects, "resourceRules": resources}])
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": KUBE_SYSTEM}})
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"], "clusterScope": cluster_scope})
}

fn paths(verb: &str, paths: &[&str]) -> Value {
    json!({"verbs": [verb], "nonResourceURLs": paths})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_so_keeps_a_spec_of_their_own() {
        let level = |annotation: Option<&str>, generation: u32, shares: u32| {
            let mut level = json!({"metadata": {"name": "system", "generation": generation}, "spec": {"shares": shares}});
            if let Some(annotation) = annotation {
                api_wire::json::set(&mut level, &["metadata", "annotations", AUTOUPDATE], annotation);
            }
            level
        };
        let suggested = level(None, 1, 30);
        for (annotation, generation, shares, wanted) in [
            (Some("true"), 1, 30, None),
            (Some("true"), 5, 31, Some((Some("true"), 30))),
            (Some("1"), 5, 31, Some((Some("1"), 30))),
            (Some("false"), 5, 31, None),
            (Some("false"), 1, 31, None),
            (None, 1, 31, Some((Some("true"), 30))),
            (None, 1, 30, Some((Some("true"), 30))),
            (None, 2, 31, Some((Some("false"), 31))),
            (Some("perhaps"), 2, 31, Some((Some("false"), 31))),
        ] {
            let wanted = wanted.map(|(annotation, shares)| level(annotation, generation, shares));
            assert_eq!(revise(&level(annotation, generation, shares), &suggested), wanted, "{annotation:?} {generation} {shares}");
        }
    }
}
