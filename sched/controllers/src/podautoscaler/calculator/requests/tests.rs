use serde_json::{Value, json};

use super::*;

fn cpu(amount: &str) -> Value {
    json!({"requests": {"cpu": amount}})
}

fn request(spec: &Value, container: Option<&str>, resource: &str) -> Result<i64, String> {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a Pod");
    let pods = [Arc::new(pod)];
    let requests = of_pods(&pods, container, resource).map_err(|error| error.to_string())?;
    Ok(requests["p"])
}

#[test]
fn a_pod_requests_what_it_says_or_what_its_containers_say() {
    let two = json!([{"name": "a", "resources": cpu("100m")}, {"name": "b", "resources": cpu("50m")}]);
    let half = json!([{"name": "a"}, {"name": "b", "resources": cpu("50m")}]);
    let own = |containers: &Value, resources: Value| json!({"containers": containers, "resources": resources});
    let sidecars = json!({"containers": [{"name": "a", "resources": cpu("100m")}], "initContainers": [
        {"name": "i", "resources": cpu("20m")}, {"name": "s", "restartPolicy": "Always", "resources": cpu("50m")}]});
    let memory = json!({"requests": {"memory": "1Gi"}});
    for (name, spec, container, wanted) in [
        ("the sum", json!({"containers": two}), None, Ok(150)),
        ("one container", json!({"containers": two}), Some("a"), Ok(100)),
        ("a sidecar", sidecars.clone(), None, Ok(150)),
        ("a sidecar alone", sidecars, Some("s"), Ok(50)),
        ("the Pod's own", own(&two, cpu("800m")), None, Ok(800)),
        ("the Pod's own, instead of a missing one", own(&half, cpu("800m")), None, Ok(800)),
        ("a container in spite of the Pod's own", own(&two, cpu("800m")), Some("a"), Ok(100)),
        ("the containers', of a Pod with another one", own(&two, memory.clone()), None, Ok(150)),
        ("a missing one", json!({"containers": half}), None, Err("missing request for cpu in container a of Pod p")),
        ("no container", json!({"containers": two}), Some("c"), Err("container c not found in Pod p")),
        ("none at all", own(&json!([{"name": "a"}]), memory), None, Err("missing pod-level request for cpu in Pod p")),
    ] {
        assert_eq!(request(&spec, container, "cpu"), wanted.map_err(str::to_owned), "{name}");
    }
    let bytes = json!({"containers": [{"name": "a", "resources": {"requests": {"memory": "64Mi"}}}]});
    assert_eq!(request(&bytes, None, "memory"), Ok(64 * 1024 * 1024 * 1000));
    let own_bytes = json!({"containers": [{"name": "a"}], "resources": {"requests": {"memory": "64Mi"}}});
    assert_eq!(request(&own_bytes, None, "memory"), Ok(64 * 1024 * 1024 * 1000));
}
