use api_model::kind;
use serde_json::{Value, json};

use super::*;

fn warnings(api_version: &str, kind: &str, new: Value, old: Option<Value>) -> Vec<String> {
    unacted(kind::find_by_kind(api_version, kind).expect("a served kind"), &new, old.as_ref())
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn texts(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| format!("skiff: {path} is stored but nothing acts on it yet")).collect()
}

#[test]
fn reports_a_field_that_nobody_acts_on() {
    let context = json!({"seLinuxChangePolicy": "Recursive", "windowsOptions": {"runAsUserName": "x"}});
    let spec = json!({"affinity": {"nodeAffinity": {}}, "securityContext": context, "containers": [{"name": "c"}]});
    let fields = ["spec.securityContext.seLinuxChangePolicy", "spec.securityContext.windowsOptions"];
    assert_eq!(warnings("v1", "Pod", pod(spec.clone()), None), texts(&fields));
    let template = json!({"spec": {"replicas": 1, "template": {"spec": spec}}});
    let paths = fields.map(|field| format!("spec.template.{field}"));
    let paths = paths.each_ref().map(String::as_str);
    assert_eq!(warnings("apps/v1", "Deployment", template, None), texts(&paths));
}

#[test]
fn reports_the_first_element_of_a_list_once() {
    let claims = json!({"claims": [{"name": "x"}]});
    let containers = json!([{"name": "a"}, {"name": "b", "resources": claims}, {"name": "c", "resources": claims}]);
    let wanted = texts(&["spec.containers[1].resources.claims"]);
    assert_eq!(warnings("v1", "Pod", pod(json!({"containers": containers})), None), wanted);
}

#[test]
fn reports_nothing_that_the_node_does() {
    let spec = json!({"hostIPC": true, "hostNetwork": true, "hostPID": true, "hostUsers": false, "setHostnameAsFQDN": true,
        "shareProcessNamespace": true});
    assert_eq!(warnings("v1", "Pod", pod(spec), None), texts(&[]));
}

#[test]
fn reports_no_value_without_effect() {
    let spec = json!({"evictionResponders": [], "topologySpreadConstraints": [], "preemptionPolicy": "PreemptLowerPriority",
        "securityContext": {"supplementalGroupsPolicy": "Merge"}, "containers": [{"name": "c", "securityContext": {"procMount": "Default"}}]});
    assert_eq!(warnings("v1", "Pod", pod(spec), None), texts(&[]));
}

#[test]
fn reports_only_what_is_new_in_a_change() {
    let old = json!({"securityContext": {"seLinuxChangePolicy": "Recursive"}});
    let new = json!({"securityContext": {"seLinuxChangePolicy": "Recursive", "windowsOptions": {"runAsUserName": "x"}}});
    assert_eq!(warnings("v1", "Pod", pod(new), Some(pod(old.clone()))), texts(&["spec.securityContext.windowsOptions"]));
    assert_eq!(warnings("v1", "Pod", pod(old.clone()), Some(pod(old))), texts(&[]));
}

#[test]
fn reports_a_kind_that_nobody_acts_on() {
    let address = |service: &str, label: &str| json!({"metadata": {"labels": {"a": label}}, "spec": {"parentRef": {"resource": "services", "name": service}}});
    let warned = |new: Value, old: Option<Value>| warnings("networking.k8s.io/v1", "IPAddress", new, old);
    let sentence = ["skiff: IPAddresses are stored but nothing acts on them yet"];
    assert_eq!(warned(address("a", "x"), None), sentence);
    assert_eq!(warned(address("b", "x"), Some(address("a", "x"))), sentence);
    assert_eq!(warned(address("a", "y"), Some(address("a", "x"))), texts(&[]));
    assert_eq!(warnings("v1", "ConfigMap", json!({"data": {"a": "b"}}), None), texts(&[]));
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
    assert_eq!(warnings("v1", "Pod", pod(json!({"volumes": volumes})), None).len(), WARNINGS_MAX);
}
