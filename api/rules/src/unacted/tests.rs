use api_model::kind;
use serde_json::{Value, json};

use super::*;

fn told(api_version: &str, kind: &str, new: Value, old: Option<Value>) -> Vec<String> {
    unacted(kind::find_by_kind(api_version, kind).expect("a served kind"), &new, old.as_ref())
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn texts(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| format!("skiff: {path} is stored but nothing acts on it yet")).collect()
}

#[test]
fn a_field_that_nobody_acts_on_is_told() {
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]});
    let spec = json!({"affinity": {"podAffinity": affinity, "nodeAffinity": {}}, "hostPID": true, "containers": [{"name": "c"}]});
    assert_eq!(told("v1", "Pod", pod(spec.clone()), None), texts(&["spec.affinity.podAffinity", "spec.hostPID"]));
    let template = json!({"spec": {"replicas": 1, "template": {"spec": spec}}});
    let paths = ["spec.template.spec.affinity.podAffinity", "spec.template.spec.hostPID"];
    assert_eq!(told("apps/v1", "Deployment", template, None), texts(&paths));
}

#[test]
fn of_a_list_the_first_element_is_told_once() {
    let devices = json!([{"name": "d", "devicePath": "/d"}]);
    let containers =
        json!([{"name": "a"}, {"name": "b", "volumeDevices": devices}, {"name": "c", "volumeDevices": devices, "restartPolicy": "Always"}]);
    let wanted = texts(&["spec.containers[1].volumeDevices", "spec.containers[2].restartPolicy"]);
    assert_eq!(told("v1", "Pod", pod(json!({"containers": containers})), None), wanted);
    let sidecar = json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": []});
    assert_eq!(told("v1", "Pod", pod(sidecar), None), texts(&[]), "that of an init container is acted upon");
}

#[test]
fn what_the_node_does_is_not_told() {
    assert_eq!(told("v1", "Pod", pod(json!({"hostIPC": true, "hostNetwork": true, "hostUsers": false})), None), texts(&[]));
}

#[test]
fn what_asks_for_nothing_is_not_told() {
    let spec = json!({"hostPID": false, "topologySpreadConstraints": [], "preemptionPolicy": "PreemptLowerPriority",
        "securityContext": {"supplementalGroupsPolicy": "Strict"}, "containers": [{"name": "c", "securityContext": {"procMount": "Default"}}]});
    assert_eq!(told("v1", "Pod", pod(spec), None), texts(&[]));
    let spec = json!({"securityContext": {"supplementalGroupsPolicy": "Merge"}});
    assert_eq!(told("v1", "Pod", pod(spec), None), texts(&["spec.securityContext.supplementalGroupsPolicy"]));
}

#[test]
fn of_a_change_only_what_is_new_is_told() {
    let (old, new) = (json!({"hostPID": true}), json!({"hostPID": true, "setHostnameAsFQDN": true}));
    assert_eq!(told("v1", "Pod", pod(new), Some(pod(old.clone()))), texts(&["spec.setHostnameAsFQDN"]));
    assert_eq!(told("v1", "Pod", pod(old.clone()), Some(pod(old))), texts(&[]));
}

#[test]
fn a_kind_that_nobody_acts_on_is_told() {
    let set =
        |replicas: u32, label: &str| json!({"kind": "StatefulSet", "metadata": {"labels": {"a": label}}, "spec": {"replicas": replicas}});
    let sentence = ["skiff: StatefulSets are stored but no controller acts on them yet"];
    assert_eq!(told("apps/v1", "StatefulSet", set(1, "x"), None), sentence);
    assert_eq!(told("apps/v1", "StatefulSet", set(2, "x"), Some(set(1, "x"))), sentence);
    assert_eq!(told("apps/v1", "StatefulSet", set(1, "y"), Some(set(1, "x"))), texts(&[]));
    assert_eq!(told("v1", "ConfigMap", json!({"data": {"a": "b"}}), None), texts(&[]));
}

#[test]
fn no_object_brings_more_than_a_few() {
    let volumes: Vec<Value> = api_model::acted::POD_SPEC
        .iter()
        .copied()
        .flatten()
        .filter(|fields| fields.prefix == "volumes[]")
        .flat_map(|fields| fields.rows)
        .filter(|row| row.acted_on_by.is_empty() && !row.path.contains('.'))
        .map(|row| json!({"name": row.path, (row.path): {"a": "b"}}))
        .collect();
    assert!(volumes.len() > WARNINGS_MAX);
    assert_eq!(told("v1", "Pod", pod(json!({"volumes": volumes})), None).len(), WARNINGS_MAX);
}
