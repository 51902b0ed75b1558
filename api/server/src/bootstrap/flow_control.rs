//! Upstream's suggestion of who is more important than whom: nodes and leader elections before
//! controllers, these before workloads, and those before everybody else.

use serde_json::{Value, json};

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const KUBE_SYSTEM: &str = "kube-system";

/// The mandatory objects and the suggested ones, levels first.
pub(super) fn objects() -> Vec<Value> {
    let mut objects = api_rules::mandatory_flow_control();
    objects.extend(levels());
    objects.extend(schemas());
    for object in &mut objects {
        crate::json::set(object, &["metadata", "annotations", "apf.kubernetes.io/autoupdate-spec"], "true");
    }
    objects
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
        crate::json::set(&mut schema, &["spec", "distinguisherMethod", "type"], distinguisher);
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
