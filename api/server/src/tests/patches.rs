use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]}}}})
}

#[tokio::test]
async fn the_three_kinds_of_patch() {
    let cluster = cluster().await;
    let created = cluster.post(DEPLOYMENTS, deployment()).await.ok();
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{DEPLOYMENTS}/d");
    let strategic = json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "new"}]}}}});
    let patched = cluster.patch(&path, "strategic", strategic).await.ok();
    let images: Vec<&Value> =
        patched["spec"]["template"]["spec"]["containers"].as_array().expect("a list").iter().map(|c| &c["image"]).collect();
    assert_eq!(images, [&json!("a"), &json!("new")]);
    assert_eq!(patched["metadata"]["generation"], 2);
    let patched = cluster.patch(&path, "merge", json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    assert_eq!((&patched["metadata"]["labels"]["x"], &patched["metadata"]["generation"]), (&json!("y"), &json!(2)));
    let operations = json!([{"op": "test", "path": "/metadata/labels/x", "value": "y"}, {"op": "remove", "path": "/metadata/labels/x"}]);
    let patched = cluster.patch(&path, "json", operations.clone()).await.ok();
    assert!(patched["metadata"]["labels"].get("x").is_none());
    let failed = cluster.patch(&path, "json", operations).await;
    assert_eq!(failed.refusal(), (422, "the server rejected our request due to an error in our request"));
}

#[tokio::test]
async fn a_whole_float_is_a_whole_number_where_upstream_converts_it() {
    let cluster = cluster().await;
    cluster.post(DEPLOYMENTS, deployment()).await.ok();
    let path = format!("{DEPLOYMENTS}/d");
    let patched = cluster.patch(&path, "strategic", json!({"spec": {"replicas": 3.0}})).await.ok();
    assert_eq!(patched["spec"]["replicas"].as_i64(), Some(3));
    for (kind, patch) in
        [("merge", json!({"spec": {"replicas": 4.0}})), ("json", json!([{"op": "replace", "path": "/spec/replicas", "value": 4.0}]))]
    {
        assert_eq!(cluster.patch(&path, kind, patch).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{kind}");
    }
    let mut applied = deployment();
    applied["spec"]["replicas"] = json!(5.0);
    let path = format!("{path}?fieldManager=a&force=true");
    let applied = cluster.request(Method::PATCH, &path, "application/apply-patch+yaml", applied.to_string()).await.ok();
    assert_eq!(applied["spec"]["replicas"].as_i64(), Some(5));
}

#[tokio::test]
async fn a_version_in_a_patch_is_a_condition() {
    let cluster = cluster().await;
    let created = cluster.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patch = |value: &str| json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"key": value}});
    cluster.patch(&path, "merge", patch("1")).await.ok();
    assert_eq!(cluster.patch(&path, "merge", patch("2")).await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn patches_at_once_all_count() {
    let cluster = Arc::new(cluster().await);
    cluster.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..20).map(|at| {
        let (cluster, path) = (Arc::clone(&cluster), path.clone());
        tokio::spawn(async move {
            let mut data = serde_json::Map::new();
            data.insert(format!("k{at}"), "v".into());
            cluster.patch(&path, "merge", json!({ "data": data })).await.ok();
        })
    });
    for patch in patches {
        patch.await.expect("no panic");
    }
    assert_eq!(cluster.get(&path).await.ok()["data"].as_object().map(serde_json::Map::len), Some(21));
}

#[tokio::test]
async fn a_patch_may_not_rename_or_break_an_object() {
    let cluster = cluster().await;
    cluster.post(DEPLOYMENTS, deployment()).await.ok();
    let path = format!("{DEPLOYMENTS}/d");
    let renamed = cluster.patch(&path, "merge", json!({"metadata": {"name": "e"}})).await;
    assert_eq!(renamed.refusal(), (400, "the name of the object (e) does not match the name on the URL (d)"));
    let strict = format!("{path}?fieldValidation=Strict");
    let body = r#"{"spec":{"bogus":1,"paused":true,"paused":false}}"#;
    let message = "strict decoding error: duplicate field \"spec.paused\", unknown field \"spec.bogus\"";
    let strange = cluster.request(Method::PATCH, &strict, "application/merge-patch+json", body).await;
    assert!(strange.refusal().1.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{strange:?}");
    assert!(strange.refusal().1.ends_with(message), "{strange:?}");
    let strange = cluster.request(Method::PATCH, &strict, "application/strategic-merge-patch+json", body).await;
    let message = format!(" \"\" is invalid: patch: Invalid value: \"map[spec:map[bogus:1 paused:false]]\": {message}");
    assert_eq!(strange.refusal(), (422, message.as_str()));
    assert_eq!((&strange.body["reason"], &strange.body["details"]["causes"][0]["field"]), (&json!("Invalid"), &json!("patch")));
    let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}, "colour": "red"}]);
    let strange = cluster.patch(&strict, "json", operations.clone()).await;
    assert!(strange.refusal().1.ends_with("strict decoding error: json patch unknown field \"[0].colour\""), "{strange:?}");
    let warned = cluster.patch(&format!("{path}?dryRun=All"), "json", operations).await;
    assert_eq!(warned.headers[header::WARNING], "299 - \"json patch unknown field \\\"[0].colour\\\"\"");
    let cut = cluster.request(Method::PATCH, &path, "application/merge-patch+json", "{").await;
    assert_eq!(cut.refusal(), (400, "error decoding patch: unexpected end of JSON input"));
    let negative = cluster.patch(&path, "merge", json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.status, StatusCode::UNPROCESSABLE_ENTITY, "{negative:?}");
    let unknown = cluster.request(Method::PATCH, &path, "application/json", "{}").await;
    assert_eq!(unknown.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// Each patch fits into a request, but the sum of many patches must fit into memory too.
#[tokio::test]
async fn an_object_does_not_grow_without_end() {
    let cluster = cluster().await;
    cluster.pod("p", "").await;
    let path = format!("{PODS}/p/status");
    let large = "x".repeat(2 << 20);
    cluster.patch(&path, "merge", json!({"status": {"message": large}})).await.ok();
    let refused = cluster.patch(&path, "merge", json!({"status": {"reason": large}})).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(refused.body["reason"], "RequestEntityTooLarge");
    cluster.patch(&path, "merge", json!({"status": {"message": null}})).await.ok();
}
