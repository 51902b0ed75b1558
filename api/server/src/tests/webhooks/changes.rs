//! Webhooks that change objects.

use super::*;

/// Adds the webhook's name to a list in an annotation.
fn signing(name: &'static str) -> impl Fn(&Value) -> Value + Send + Sync {
    move |request| {
        let seen = request["object"]["metadata"]["annotations"]["seen"].as_str().unwrap_or_default();
        let annotations = json!({"seen": format!("{seen}{name}")});
        patching(json!([{"op": "add", "path": "/metadata/annotations", "value": annotations}]))
    }
}

#[tokio::test]
async fn webhooks_change_objects_in_the_order_of_their_names() {
    let cluster = cluster().await;
    let (b, a) = (Hook::thinking(signing("b")).await, Hook::thinking(signing("a")).await);
    cluster.configure("Mutating", "two", json!([b.webhook("b.example.com", json!({}))])).await;
    cluster.configure("Mutating", "one", json!([a.webhook("a.example.com", json!({}))])).await;
    let created = cluster.config_map("c", json!({})).await;
    assert_eq!(created["metadata"]["annotations"], json!({"seen": "ab"}));
    let put = cluster.put(&format!("{CONFIG_MAPS}/c"), &config_map("c", json!({}))).await.ok();
    assert_eq!(put["metadata"]["annotations"], json!({"seen": "ab"}));
    assert_eq!((a.received().len(), b.received().len()), (2, 2), "nobody wanted to be asked again");
}

#[tokio::test]
async fn reinvocation_follows_a_change() {
    let cluster = cluster().await;
    let (early, late) = (Hook::thinking(signing("e")).await, Hook::thinking(signing("l")).await);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let webhooks = json!([early.webhook("a.example.com", again.clone()), late.webhook("b.example.com", again)]);
    cluster.configure("Mutating", "m", webhooks).await;
    let created = cluster.config_map("c", json!({})).await;
    assert_eq!(created["metadata"]["annotations"], json!({"seen": "elel"}));
    assert_eq!((early.received().len(), late.received().len()), (2, 2), "and then it is enough");
}

/// The result of a webhook is defaulted and validated, and validating webhooks get it.
#[tokio::test]
async fn what_a_webhook_makes_goes_by_the_rules() {
    let sidecar = json!({"name": "sidecar", "image": "i", "unknown": 1});
    let think = move |request: &Value| match request["name"].as_str() {
        Some("bad") => patching(json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "no image"}}])),
        _ => patching(json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}])),
    };
    let (cluster, changes, sees) = (cluster().await, Hook::thinking(think).await, Hook::thinking(agree).await);
    let pods = json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
    cluster.configure("Mutating", "m", json!([changes.webhook("m.example.com", pods.clone())])).await;
    cluster.configure("Validating", "v", json!([sees.webhook("v.example.com", pods)])).await;
    let made = cluster.pod("good", "").await;
    let sidecar = &made["spec"]["containers"][1];
    assert_eq!((&sidecar["terminationMessagePolicy"], sidecar.get("unknown")), (&json!("File"), None));
    assert_eq!(sidecar["volumeMounts"].as_array().map(Vec::len), Some(1), "plugins have their second turn: it gets its token");
    assert_eq!(sees.received()[0]["request"]["object"]["spec"]["containers"], made["spec"]["containers"]);
    let bad = cluster.post(PODS, pod("bad")).await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(bad.refusal().1.contains("spec.containers[1].name: Invalid value"), "{bad:?}");
}

/// For custom resources, the result of a webhook is pruned and defaulted too, except where the definition keeps unknown
/// fields.
#[tokio::test]
async fn custom_resources_are_pruned_of_what_a_webhook_adds() {
    let think = |_: &Value| {
        patching(json!([
            {"op": "add", "path": "/unknown", "value": 1},
            {"op": "add", "path": "/spec/unknown", "value": true},
            {"op": "add", "path": "/spec/free", "value": {"kept": 1.0}},
            {"op": "remove", "path": "/spec/color"},
        ]))
    };
    let (cluster, hook) = (cluster().await, Hook::thinking(think).await);
    let mut definition = custom::definition();
    for version in [0, 1] {
        definition["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["free"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    custom::define(&cluster, definition).await;
    let widgets = json!({"rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}]});
    cluster.configure("Mutating", "m", json!([hook.webhook("m.example.com", widgets)])).await;
    let wanted = |size: u32| (json!({"size": size, "color": "red", "free": {"kept": 1}}), None);
    let of = |widget: &Value| (widget["spec"].clone(), widget.get("unknown").cloned());
    let made = cluster.post(custom::WIDGETS, custom::widget("a", json!({"size": 1}))).await.ok();
    assert_eq!(of(&made), wanted(1));
    let path = format!("{}/a", custom::WIDGETS);
    assert_eq!(of(&cluster.patch(&path, "merge", json!({"spec": {"size": 2}})).await.ok()), wanted(2));
    let mut put = made.clone();
    (put["spec"]["size"], put["metadata"]["resourceVersion"]) =
        (json!(3), cluster.get(&path).await.ok()["metadata"]["resourceVersion"].clone());
    assert_eq!(of(&cluster.put(&path, &put).await.ok()), wanted(3));
    // The webhook gets its own version for a request in another version.
    let other = json!({"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"size": 4}});
    let made = cluster.post("/apis/example.com/v1beta1/namespaces/default/widgets", other).await.ok();
    assert_eq!(of(&made), wanted(4));
    assert_eq!(hook.received().len(), 4);
    assert_eq!(of(&cluster.get(&path).await.ok()), wanted(3));
}

#[tokio::test]
async fn a_scale_is_changed_as_a_scale() {
    let think = |_: &Value| patching(json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]));
    let (cluster, hook) = (cluster().await, Hook::thinking(think).await);
    cluster.service_account().await;
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}});
    cluster.post("/apis/apps/v1/namespaces/default/deployments", deployment).await.ok();
    let rules = json!({"rules": [{"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}]});
    cluster.configure("Mutating", "m", json!([hook.webhook("m.example.com", rules)])).await;
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let scaled = cluster.patch(&format!("{path}/scale"), "merge", json!({"spec": {"replicas": 9}})).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 2);
    assert_eq!(cluster.get(path).await.ok()["spec"]["replicas"], 2);
}

#[tokio::test]
async fn nothing_is_moved_to_another_namespace_or_kind() {
    let think = |request: &Value| {
        let (path, value) = match request["name"].as_str() {
            Some("kind") => ("/kind", "Secret"),
            _ => ("/metadata/namespace", "kube-system"),
        };
        patching(json!([{"op": "replace", "path": path, "value": value}]))
    };
    let (cluster, hook) = (cluster().await, Hook::thinking(think).await);
    cluster.configure("Mutating", "m", json!([hook.webhook("m.example.com", json!({}))])).await;
    let moved = cluster.post(CONFIG_MAPS, config_map("moved", json!({}))).await;
    assert_eq!(moved.refusal(), (400, "the namespace of the provided object does not match the namespace sent on the request"));
    assert_eq!(cluster.post(CONFIG_MAPS, config_map("kind", json!({}))).await.status, StatusCode::INTERNAL_SERVER_ERROR);
}
