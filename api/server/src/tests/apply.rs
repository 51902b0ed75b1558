//! Server-side apply, and the entries of all other writes in `managedFields`.

use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(spec: Value) -> Value {
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    for (field, value) in spec.as_object().expect("a map") {
        deployment["spec"][field] = value.clone();
    }
    deployment
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})
}

impl Cluster {
    async fn apply(&self, path: &str, query: &str, config: impl ToString) -> Answer {
        let path = format!("{path}?fieldManager={query}");
        self.request(Method::PATCH, &path, "application/apply-patch+yaml", config.to_string()).await
    }
}

/// Manager, operation and subresource of every entry.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    entries.iter().map(|entry| format!("{} {}/{}", text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"))).collect()
}

fn fields<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().expect("entries");
    &entries.iter().find(|entry| entry["manager"] == manager).unwrap_or_else(|| panic!("{manager} in {entries:?}"))["fieldsV1"]
}

#[tokio::test]
async fn what_is_applied_is_created_changed_and_given_up() {
    let cluster = cluster().await;
    let path = format!("{CONFIG_MAPS}/x");
    let created = cluster
        .apply(&path, "me", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {l: '1'}}\ndata: {a: '1', b: '1'}\n")
        .await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let created = created.ok();
    assert_eq!(managers(&created), ["me Apply/"]);
    assert_eq!(*fields(&created, "me"), json!({"f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}));
    // The same apply again writes nothing.
    let again = cluster
        .apply(
            &path,
            "me",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"l": "1"}}, "data": {"a": "1", "b": "1"}}),
        )
        .await;
    assert_eq!((again.status, again.body), (StatusCode::OK, created));
    let changed = cluster.apply(&path, "me", config(json!({"a": "2"}))).await.ok();
    assert_eq!((&changed["data"], changed["metadata"].get("labels")), (&json!({"a": "2"}), None));
    let tried = cluster.apply(&path, "other&dryRun=All", config(json!({"c": "3"}))).await.ok();
    assert_eq!(tried["data"], json!({"a": "2", "c": "3"}));
    assert_eq!(cluster.get(&path).await.ok(), changed);
}

#[tokio::test]
async fn conflicts_are_reported_and_forced() {
    let cluster = cluster().await;
    let path = format!("{DEPLOYMENTS}/d");
    cluster.apply(&path, "me", deployment(json!({"replicas": 1}))).await.ok();
    let refused = cluster.apply(&path, "you", deployment(json!({"replicas": 2}))).await;
    assert_eq!(refused.refusal(), (409, "Apply failed with 1 conflict: conflict with \"me\": .spec.replicas"));
    assert_eq!(refused.body["reason"], "Conflict");
    let causes = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".spec.replicas"}]);
    assert_eq!(refused.body["details"]["causes"], causes);
    let forced = cluster.apply(&path, "you&force=true", deployment(json!({"replicas": 2}))).await.ok();
    assert_eq!((&forced["spec"]["replicas"], &forced["metadata"]["generation"]), (&json!(2), &json!(2)));
    assert!(fields(&forced, "me")["f:spec"].get("f:replicas").is_none());
    // A manager does not remove a field that it no longer owns. A field without an owner goes back to its default.
    let left = cluster.apply(&path, "me", deployment(json!({}))).await.ok();
    assert_eq!(left["spec"]["replicas"], 2);
    let left = cluster.apply(&path, "you", deployment(json!({}))).await.ok();
    assert_eq!(left["spec"]["replicas"], 1);
}

#[tokio::test]
async fn every_write_is_recorded() {
    let cluster = cluster().await;
    let path = format!("{DEPLOYMENTS}/d");
    let by = |manager: &str, path: &str| format!("{path}?fieldManager={manager}");
    let created = cluster.post(&by("maker", DEPLOYMENTS), deployment(json!({}))).await.ok();
    assert_eq!(managers(&created), ["maker Update/"]);
    assert!(fields(&created, "maker")["f:spec"]["f:strategy"]["f:type"].is_object(), "defaults belong to who made the object");
    assert!(fields(&created, "maker").get("f:status").is_none());
    let mut put = created.clone();
    put["spec"]["paused"] = true.into();
    let put = cluster.put(&by("putter", &path), &put).await.ok();
    assert_eq!(*fields(&put, "putter"), json!({"f:spec": {"f:paused": {}}}));
    for (kind, body) in [
        ("merge", json!({"metadata": {"labels": {"merge": "1"}}})),
        ("json", json!([{"op": "add", "path": "/metadata/labels/json", "value": "1"}])),
        ("strategic", json!({"metadata": {"labels": {"strategic": "1"}}})),
    ] {
        let patched = cluster.patch(&by(kind, &path), kind, body).await.ok();
        assert!(fields(&patched, kind)["f:metadata"]["f:labels"][format!("f:{kind}")].is_object(), "{patched:#}");
    }
    let mut status = cluster.get(&path).await.ok();
    status["status"]["replicas"] = 1.into();
    status["spec"]["replicas"] = 7.into();
    let status = cluster.put(&by("controller", &format!("{path}/status")), &status).await.ok();
    assert_eq!(*fields(&status, "controller"), json!({"f:status": {"f:replicas": {}}}));
    cluster.patch(&by("scaler", &format!("{path}/scale")), "merge", json!({"spec": {"replicas": 3}})).await.ok();
    let scaled = cluster.get(&path).await.ok();
    assert_eq!(*fields(&scaled, "scaler"), json!({"f:spec": {"f:replicas": {}}}));
    assert!(managers(&scaled).contains(&"scaler Update/scale".to_owned()));
    assert!(fields(&scaled, "maker")["f:spec"].get("f:replicas").is_none());
}

#[tokio::test]
async fn the_manager_is_named_by_the_request_or_its_program() {
    let cluster = cluster().await;
    let send = async |agent: Option<&str>, name: &str| {
        let request = Request::builder().method(Method::POST).uri(CONFIG_MAPS).header(header::CONTENT_TYPE, "application/json");
        let request = agent.into_iter().fold(request, |request, agent| request.header(header::USER_AGENT, agent));
        json_of(cluster.raw(request.body(Body::from(config_map(name, json!({})).to_string())).expect("a request")).await).await.ok()
    };
    assert_eq!(managers(&send(Some("kubectl/v1.36 (linux/amd64)"), "a").await), ["kubectl Update/"]);
    assert_eq!(managers(&send(None, "b").await), ["unknown Update/"]);
    let part = cluster.user("part", &["system:masters"]).with_agent("kube-scheduler");
    let post = |agent: Option<&str>, name: &str| {
        let request = Request::builder().method(Method::POST).uri(CONFIG_MAPS).header(header::CONTENT_TYPE, "application/json");
        let request = agent.into_iter().fold(request, |request, agent| request.header(header::USER_AGENT, agent));
        crate::tests::send(&part, request.body(Body::from(config_map(name, json!({})).to_string())).expect("a request"))
    };
    assert_eq!(managers(&json_of(post(None, "e").await).await.ok()), ["kube-scheduler Update/"]);
    assert_eq!(managers(&json_of(post(Some("own"), "f").await).await.ok()), ["own Update/"]);
    let long = "x".repeat(300);
    assert_eq!(managers(&send(Some(&long), "c").await), [format!("{} Update/", "x".repeat(128))]);
    let refused = cluster.post(&format!("{CONFIG_MAPS}?fieldManager={long}"), config_map("d", json!({}))).await;
    assert_eq!(
        refused.refusal(),
        (422, "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes")
    );
}

/// One manager applies an empty list. Another client reads and writes without it. Neither changes anything.
#[tokio::test]
async fn empty_lists_are_not_fought_over() {
    let cluster = cluster().await;
    let path = format!("{DEPLOYMENTS}/d");
    let mut applied = deployment(json!({}));
    applied["metadata"]["annotations"] = json!({});
    applied["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
    for made_by in ["applier", "updater"] {
        if made_by == "updater" {
            cluster.delete(&path).await.ok();
            cluster.post(DEPLOYMENTS, deployment(json!({}))).await.ok();
        }
        let mut seen = cluster.apply(&path, "applier", applied.clone()).await.ok();
        let version = seen["metadata"]["resourceVersion"].clone();
        seen["spec"]["template"]["spec"]["containers"][0].as_object_mut().expect("a container").remove("env");
        seen["metadata"].as_object_mut().expect("metadata").remove("annotations");
        let written = cluster.put(&path, &seen).await.ok();
        let again = cluster.apply(&path, "applier", applied.clone()).await.ok();
        assert_eq!((&written["metadata"]["resourceVersion"], &again["metadata"]["resourceVersion"]), (&version, &version), "{made_by}");
    }
}

#[tokio::test]
async fn bad_requests_are_rejected_in_upstreams_words() {
    let cluster = cluster().await;
    let path = format!("{CONFIG_MAPS}/x");
    let nobody = cluster.apply(&path, "", config(json!({}))).await;
    let required = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(nobody.refusal(), (422, required));
    let forced = cluster.patch(&format!("{path}?force=true"), "merge", json!({})).await;
    let forbidden = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
    assert_eq!(forced.refusal(), (422, forbidden));
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
    let cases = [
        (managed.to_string(), 400, "metadata.managedFields must be nil"),
        (other.to_string(), 400, "invalid object type: /v1, Kind=Secret"),
        ("- a".to_owned(), 400, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ncolour: red\n".to_owned(),
            500,
            "failed to create typed patch object (default/x; /v1, Kind=ConfigMap): .colour: field not declared in schema",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: z}\n".to_owned(),
            400,
            "the name of the object (z) does not match the name on the URL (x)",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: '1', a: '2'}\n".to_owned(),
            400,
            "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map",
        ),
    ];
    for (body, code, message) in cases {
        assert_eq!(cluster.apply(&path, "me&fieldValidation=Strict", body).await.refusal(), (code, message));
    }
    let unknown = cluster.request(Method::PATCH, &path, "application/apply-patch+cbor", "").await;
    assert_eq!(unknown.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(cluster.get(&path).await.status, StatusCode::NOT_FOUND);
    let warned = cluster.apply(&path, "me", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: '1', a: '2'}\n").await;
    assert_eq!(warned.headers[header::WARNING], "299 - \"line 4: key \\\"a\\\" already set in map\"");
    assert_eq!(warned.ok()["data"]["a"], "2");
}

#[tokio::test]
async fn versions_and_uids_in_a_configuration_are_conditions() {
    let cluster = cluster().await;
    let path = format!("{CONFIG_MAPS}/x");
    let mut stale = config(json!({"a": "2"}));
    stale["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555".into();
    let absent = cluster.apply(&path, "me", &stale).await;
    assert_eq!(absent.status, StatusCode::CONFLICT, "{absent:?}");
    let created = cluster.apply(&path, "me", config(json!({"a": "1"}))).await.ok();
    assert_eq!(cluster.apply(&path, "me", &stale).await.status, StatusCode::CONFLICT);
    let mut versioned = config(json!({"a": "2"}));
    versioned["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    cluster.apply(&path, "me", &versioned).await.ok();
    assert_eq!(cluster.apply(&path, "me", &versioned).await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn status_and_scale_are_applied_through_their_doors() {
    let cluster = cluster().await;
    let path = format!("{DEPLOYMENTS}/d");
    let absent = cluster
        .apply(&format!("{path}/status"), "c", json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}))
        .await;
    assert_eq!(absent.status, StatusCode::NOT_FOUND);
    cluster.apply(&path, "me", deployment(json!({"replicas": 1}))).await.ok();
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {
        "conditions": [{"type": "Available", "status": "True"}]}});
    let applied = cluster.apply(&format!("{path}/status"), "c", status).await.ok();
    assert_eq!(applied["status"]["conditions"][0]["type"], "Available");
    assert!(managers(&applied).contains(&"c Apply/status".to_owned()));
    let scale = |replicas: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}});
    let refused = cluster.apply(&format!("{path}/scale"), "hpa", scale(4.into())).await;
    assert_eq!(refused.refusal(), (409, "Apply failed with 1 conflict: conflict with \"me\": .spec.replicas"));
    let scaled = cluster.apply(&format!("{path}/scale"), "hpa&force=true", scale(4.into())).await.ok();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(4)));
    // client-go's Scale without a name.
    let nameless = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 4}});
    assert_eq!(cluster.apply(&format!("{path}/scale"), "hpa", nameless).await.ok()["metadata"]["name"], "d");
    let refused = cluster.apply(&path, "me", deployment(json!({"replicas": 1}))).await;
    assert_eq!(refused.refusal(), (409, "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\": .spec.replicas"));
    assert_eq!(
        cluster.apply(&format!("{path}/scale"), "hpa&force=true", scale((-1).into())).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let half = cluster.apply(&format!("{path}/scale"), "hpa&force=true", scale(json!(1.5))).await;
    assert_eq!(half.status, StatusCode::BAD_REQUEST, "{half:?}");
}

#[tokio::test]
async fn who_may_patch_may_not_create_by_applying() {
    let cluster = cluster().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "patcher", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]});
    cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role).await.ok();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "patcher", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "patcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    let apply = || {
        let request = Request::builder().method(Method::PATCH).uri(format!("{CONFIG_MAPS}/x?fieldManager=jane"));
        request
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(config(json!({"a": "1"})).to_string()))
            .expect("a request")
    };
    assert_eq!(json_of(send(&jane, apply()).await).await.status, StatusCode::FORBIDDEN);
    cluster.apply(&format!("{CONFIG_MAPS}/x"), "me", config(json!({"a": "1"}))).await.ok();
    assert_eq!(json_of(send(&jane, apply()).await).await.status, StatusCode::OK);
}

#[tokio::test]
async fn appliers_at_once_all_count() {
    let cluster = Arc::new(cluster().await);
    let path = format!("{CONFIG_MAPS}/x");
    let applies = (0..20).map(|at| {
        let (cluster, path) = (Arc::clone(&cluster), path.clone());
        tokio::spawn(async move {
            let data: serde_json::Map<String, Value> = [(format!("k{at}"), "v".into())].into_iter().collect();
            cluster.apply(&path, &format!("m{at}"), config(Value::Object(data))).await.ok();
        })
    });
    for apply in applies {
        apply.await.expect("no panic");
    }
    let object = cluster.get(&path).await.ok();
    assert_eq!((object["data"].as_object().map(serde_json::Map::len), managers(&object).len()), (Some(20), 20));
}

#[tokio::test]
async fn users_may_clear_the_managers() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patched = cluster.patch(&path, "merge", json!({"metadata": {"managedFields": null}})).await.ok();
    assert_eq!(managers(&patched).len(), 1);
    let cleared = cluster.patch(&path, "merge", json!({"metadata": {"managedFields": []}})).await.ok();
    assert_eq!(cleared["metadata"].get("managedFields"), None);
    let refused = cluster
        .apply(&path, "me", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "other"}}))
        .await;
    assert_eq!(refused.refusal(), (409, "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.key"));
}
