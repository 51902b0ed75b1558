use serde_json::json;

use super::*;
use crate::testing::{Ask, Objects, verdict};

fn quota(name: &str, hard: Value, extra: Value) -> Value {
    let mut spec = json!({ "hard": hard });
    spec.as_object_mut().expect("map").extend(extra.as_object().expect("map").clone());
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": name, "namespace": "ns" }, "spec": spec })
}

fn pod(name: &str, resources: Value) -> Value {
    let containers = json!([{ "name": "c", "resources": resources }]);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "ns" }, "spec": { "containers": containers } })
}

fn cpu(amount: &str) -> Value {
    json!({ "requests": { "cpu": amount }, "limits": { "cpu": amount } })
}

fn service(name: &str, kind: &str) -> Value {
    let spec = json!({ "type": kind, "ports": [{ "port": 80 }, { "port": 81 }] });
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "ns" }, "spec": spec })
}

fn ask(request: Ask<'_>, stored: Vec<Value>) -> String {
    verdict(request.checked(&Objects::new(stored), |request, view| check(request, view, &Counted(view))))
}

#[test]
fn objects_are_counted() {
    let two = quota("q", json!({ "pods": "2" }), json!({}));
    let mut done = pod("done", json!({}));
    done["status"] = json!({ "phase": "Succeeded" });
    let mut elsewhere = pod("x", json!({}));
    elsewhere["metadata"]["namespace"] = "other".into();
    let create = || Ask::create(pod("new", json!({})));
    assert_eq!(ask(create(), vec![two.clone(), pod("a", json!({})), done.clone(), elsewhere]), "ok");
    let full = vec![two, pod("a", json!({})), pod("b", json!({}))];
    assert_eq!(ask(create(), full), "pods \"new\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2");

    let counted = quota("q", json!({ "count/pods": "1" }), json!({}));
    assert!(ask(create(), vec![counted, done]).contains("count/pods=1"), "count/ counts the finished too");
    let deployment = |name: &str| json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "ns" } });
    let one = quota("q", json!({ "count/deployments.apps": "1" }), json!({}));
    assert_eq!(
        ask(Ask::create(deployment("b")), vec![one, deployment("a")]),
        "deployments.apps \"b\" is forbidden: exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1"
    );
}

#[test]
fn amounts_are_added() {
    let hard = quota("q", json!({ "requests.cpu": "2", "limits.cpu": "4", "pods": "9" }), json!({}));
    let stored = vec![hard, pod("a", cpu("1500m"))];
    assert_eq!(ask(Ask::create(pod("b", cpu("500m"))), stored.clone()), "ok");
    assert_eq!(
        ask(Ask::create(pod("b", cpu("600m"))), stored),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=1500m, limited: requests.cpu=2"
    );
}

#[test]
fn no_amount_is_too_much_to_count() {
    let hard = quota("q", json!({ "requests.cpu": "2" }), json!({}));
    for amount in ["1e35", "1e100", "9223372036854775807"] {
        let mut two = pod("b", cpu(amount));
        let containers = two["spec"]["containers"].as_array_mut().expect("list");
        containers.push(containers[0].clone());
        assert_eq!(
            ask(Ask::create(two), vec![hard.clone()]),
            "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=18446744073709551614, used: requests.cpu=0, limited: requests.cpu=2"
        );
        let said = ask(Ask::create(pod("b", cpu("1"))), vec![hard.clone(), pod("a", cpu(amount))]);
        assert!(said.contains("used: requests.cpu=9223372036854775807,"), "{said}");
    }
}

#[test]
fn several_quotas_are_reported_in_order() {
    let hard = quota("q", json!({ "memory": "1Gi", "cpu": "1" }), json!({}));
    let big = pod("b", json!({ "requests": { "cpu": "2", "memory": "2Gi" } }));
    assert_eq!(
        ask(Ask::create(big), vec![hard]),
        "pods \"b\" is forbidden: exceeded quota: q, requested: cpu=2,memory=2Gi, used: cpu=0,memory=0, limited: cpu=1,memory=1Gi"
    );
}

#[test]
fn containers_must_say_what_is_counted() {
    let hard = quota("q", json!({ "limits.memory": "1Gi", "requests.cpu": "1" }), json!({}));
    assert_eq!(
        ask(Ask::create(pod("p", json!({}))), vec![hard.clone()]),
        "pods \"p\" is forbidden: failed quota: q: must specify limits.memory for: c; requests.cpu for: c"
    );
    let said = pod("p", json!({ "requests": { "cpu": "1" }, "limits": { "memory": "1Gi" } }));
    assert_eq!(ask(Ask::create(said), vec![hard]), "ok");
}

#[test]
fn scopes_choose_pods() {
    let none = json!({});
    let scoped = |scope: &str| quota("q", json!({ "pods": "0" }), json!({ "scopes": [scope] }));
    let mut brief = pod("p", json!({}));
    brief["spec"]["activeDeadlineSeconds"] = 5.into();
    let plain = pod("p", json!({}));
    let asking = pod("p", cpu("1"));
    for (pod, scope, counted) in [
        (&brief, "Terminating", true),
        (&plain, "Terminating", false),
        (&brief, "NotTerminating", false),
        (&plain, "NotTerminating", true),
        (&plain, "BestEffort", true),
        (&asking, "BestEffort", false),
        (&asking, "NotBestEffort", true),
        (&plain, "CrossNamespacePodAffinity", false),
    ] {
        assert_eq!(ask(Ask::create(pod.clone()), vec![scoped(scope)]) != "ok", counted, "{scope} {none}");
    }
    let mut high = pod("p", json!({}));
    high["spec"]["priorityClassName"] = "high".into();
    let selecting = |operator: &str| {
        let expression = json!({ "scopeName": "PriorityClass", "operator": operator, "values": ["high"] });
        quota("q", json!({ "pods": "0" }), json!({ "scopeSelector": { "matchExpressions": [expression] } }))
    };
    for (pod, operator, counted) in
        [(&high, "In", true), (&plain, "In", false), (&high, "NotIn", false), (&high, "Exists", true), (&plain, "DoesNotExist", true)]
    {
        assert_eq!(ask(Ask::create(pod.clone()), vec![selecting(operator)]) != "ok", counted, "{operator}");
    }
}

#[test]
fn changes_count_by_what_they_add() {
    let hard = quota("q", json!({ "services": "1", "services.nodeports": "2" }), json!({}));
    let old = service("s", "ClusterIP");
    let stored = vec![hard.clone(), old.clone()];
    assert_eq!(ask(Ask::update(&old, service("s", "NodePort")), stored), "ok", "the service itself is not counted again");
    let other = service("other", "NodePort");
    assert_eq!(
        ask(Ask::update(&old, service("s", "NodePort")), vec![hard, old.clone(), other]),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=2, limited: services.nodeports=2"
    );
}

#[test]
fn claims_are_counted_by_class() {
    let claim = |name: &str, size: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "ns" },
            "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": size } } },
        })
    };
    let hard = quota("q", json!({ "gold.storageclass.storage.k8s.io/requests.storage": "2Gi" }), json!({}));
    assert_eq!(ask(Ask::create(claim("b", "1Gi")), vec![hard.clone(), claim("a", "1Gi")]), "ok");
    assert!(ask(Ask::create(claim("b", "2Gi")), vec![hard, claim("a", "1Gi")]).contains("exceeded quota: q"));
}

#[test]
fn devices_are_counted_by_class() {
    let claim = |name: &str, requests: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": { "name": name, "namespace": "ns" },
            "spec": { "devices": { "requests": requests } },
        })
    };
    let gpus = |count: i64| json!({ "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count });
    let exactly = |count: i64| json!([{ "name": "r", "exactly": gpus(count) }]);
    let hard =
        quota("q", json!({ "gpu.deviceclass.resource.k8s.io/devices": "4", "count/resourceclaims.resource.k8s.io": "9" }), json!({}));
    let answer = |requests: Value| ask(Ask::create(claim("b", requests)), vec![hard.clone(), claim("a", exactly(2))]);
    let exceeded = |requested: i64| {
        let name = "gpu.deviceclass.resource.k8s.io/devices";
        format!(
            "resourceclaims.resource.k8s.io \"b\" is forbidden: exceeded quota: q, requested: {name}={requested}, used: {name}=2, limited: {name}=4"
        )
    };
    assert_eq!(answer(exactly(2)), "ok");
    assert_eq!(answer(exactly(3)), exceeded(3));
    assert_eq!(answer(json!([{ "name": "r", "exactly": { "deviceClassName": "gpu", "allocationMode": "All" } }])), exceeded(32));
    let nic = json!({ "name": "nic", "deviceClassName": "nic", "count": 9 });
    assert_eq!(answer(json!([{ "name": "r", "firstAvailable": [gpus(1), gpus(2), nic] }])), "ok", "one of them is allocated");
    assert_eq!(answer(json!([{ "name": "r", "firstAvailable": [gpus(1), nic] }, { "name": "s", "exactly": gpus(2) }])), exceeded(3));
}

#[test]
fn usage_is_computed() {
    let hard = quota("q", json!({ "pods": "10", "requests.memory": "1Gi", "services": "5", "count/jobs.batch": "1" }), json!({}));
    let stored = Objects::new([pod("a", json!({ "requests": { "memory": "128Mi" } })), service("s", "ClusterIP")]);
    let wanted = json!({ "count/jobs.batch": "0", "pods": "1", "requests.memory": "128Mi", "services": "1" });
    assert_eq!(Value::Object(used(&hard, &Counted(&stored))), wanted);
}

#[test]
fn what_was_added_can_be_taken_away() {
    let resource = GroupResource::new("", "pods");
    let (small, large) = (pod("a", cpu("100m")), pod("b", cpu("2")));
    let mut sum = Sum::default();
    sum.add(&resource, &small);
    let alone = sum.clone();
    sum.add(&resource, &large);
    assert_ne!(sum, alone);
    sum.take(&resource, &large);
    assert_eq!(sum, alone);
    sum.take(&resource, &small);
    assert_eq!(sum, Sum::default(), "not even a zero is left");
}

#[test]
fn a_resize_after_an_infeasible_one_is_counted() {
    let resized = |generation: i64, amount: &str| {
        let mut pod = pod("a", cpu(amount));
        pod["metadata"]["generation"] = generation.into();
        let pending = json!({ "type": "PodResizePending", "status": "True", "reason": "Infeasible", "observedGeneration": 2 });
        let has = json!({ "name": "c", "allocatedResources": { "cpu": "1" }, "resources": cpu("1") });
        pod["status"] = json!({ "conditions": [pending], "containerStatuses": [has] });
        pod
    };
    let used = |pod: &Value| usage::amounts(&pods::resource(), pod).get("requests.cpu").copied();
    let delta = |after: &Value| growth(&pods::resource(), after, Some(&resized(2, "1000"))).get("requests.cpu").copied();
    assert_eq!(used(&resized(2, "1000")), Some(1_000));
    assert_eq!(delta(&resized(3, "100")), Some(99_000), "the verdict is about the spec before");
    assert_eq!(delta(&resized(3, "1")), None);
}
