use super::*;

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let cluster = cluster().await;
    let mut body = config_map("a", json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.post(CONFIG_MAPS, body).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let marked = cluster.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    cluster.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}})).await.ok();
    let namespace = cluster.delete("/api/v1/namespaces/going").await.ok();
    assert!(namespace["metadata"]["deletionTimestamp"].is_string() && namespace["metadata"].get("deletionGracePeriodSeconds").is_none());
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(cluster.get(&path).await.ok(), marked);
    let again = cluster.delete(&path).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    cluster.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(cluster.get(&path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn propagation_becomes_a_finalizer() {
    let cluster = cluster().await;
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        cluster.config_map("a", json!({})).await;
        let path = format!("{CONFIG_MAPS}/a");
        let marked = cluster.delete(&format!("{path}?propagationPolicy={policy}")).await.ok();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        cluster.delete(&format!("{path}?propagationPolicy=Background")).await.ok();
        assert_eq!(cluster.get(&path).await.status, StatusCode::NOT_FOUND, "{policy}");
    }
}

#[tokio::test]
async fn preconditions_are_checked() {
    let cluster = cluster().await;
    let created = cluster.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let options = |preconditions: Value| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}).to_string();
    let wrong = cluster.request(Method::DELETE, &path, "application/json", options(json!({"uid": "x"}))).await;
    assert_eq!(wrong.status, StatusCode::CONFLICT);
    assert!(wrong.refusal().1.contains("the UID in the precondition (x) does not match the UID in record ("), "{wrong:?}");
    let unreadable = cluster.request(Method::DELETE, &path, "application/json", options(json!({"uid": 5}))).await;
    assert_eq!(unreadable.status, StatusCode::BAD_REQUEST, "a condition that is not understood is not ignored: {unreadable:?}");
    let right = options(json!({"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}));
    cluster.request(Method::DELETE, &path, "application/json", right).await.ok();
}

#[tokio::test]
async fn a_bound_pod_gets_time_to_stop() {
    let cluster = cluster().await;
    cluster.pod("p", "n1").await;
    let path = format!("{PODS}/p");
    let marked = cluster.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let hurried = cluster.delete(&format!("{path}?gracePeriodSeconds=5")).await.ok();
    assert_eq!(hurried["metadata"]["deletionGracePeriodSeconds"], 5);
    let time = |pod: &Value| pod["metadata"]["deletionTimestamp"].as_str().and_then(|t| t.parse::<jiff::Timestamp>().ok()).expect("a time");
    assert_eq!((time(&marked) - time(&hurried)).get_seconds(), 25);
    let slower = cluster.delete(&format!("{path}?gracePeriodSeconds=60")).await.ok();
    assert_eq!(slower["metadata"]["deletionGracePeriodSeconds"], 5);
    let gone = cluster.delete(&format!("{path}?gracePeriodSeconds=0")).await.ok();
    assert_eq!(gone["kind"], "Pod");
    assert_eq!(cluster.get(&path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_pod_that_runs_nowhere_goes_at_once() {
    let cluster = cluster().await;
    cluster.pod("p", "").await;
    cluster.delete(&format!("{PODS}/p")).await.ok();
    assert_eq!(cluster.get(&format!("{PODS}/p")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_collection_goes_by_selector() {
    let cluster = cluster().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        cluster.config_map(name, json!({"app": label})).await;
    }
    let deleted = cluster.delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx")).await.ok();
    assert_eq!(names(&deleted), ["a", "c"]);
    assert_eq!(names(&cluster.get(CONFIG_MAPS).await.ok()), ["b"]);
}

#[tokio::test]
async fn a_namespace_waits_for_its_own_finalizer() {
    let cluster = cluster().await;
    let created =
        cluster.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})).await.ok();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    let marked = cluster.delete("/api/v1/namespaces/n").await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    let refused = cluster.post("/api/v1/namespaces/n/configmaps", config_map("a", json!({}))).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    let mut finalized = marked.clone();
    finalized["spec"]["finalizers"] = json!([]);
    cluster.put("/api/v1/namespaces/n/finalize", &finalized).await.ok();
    assert_eq!(cluster.get("/api/v1/namespaces/n").await.status, StatusCode::NOT_FOUND);
}
