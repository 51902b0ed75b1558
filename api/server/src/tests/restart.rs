use super::*;

/// Everything that the store holds must survive: objects, versions, and watches.
#[tokio::test]
async fn a_new_server_on_the_same_store_goes_on() {
    let first = cluster().await;
    let a = first.config_map("a", json!({"app": "x"})).await;
    let b = first.config_map("b", json!({"app": "x"})).await;
    first.patch(&format!("{CONFIG_MAPS}/b"), "merge", json!({"metadata": {"labels": {"app": "y"}}})).await.ok();
    first.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    let list = first.get("/api/v1/configmaps").await.ok();
    let store = Arc::clone(&first.store);
    first.server.shutdown().await;

    let second = cluster_on(store).await;
    assert_eq!(second.get("/api/v1/configmaps").await.ok()["items"], list["items"]);
    let from = a["metadata"]["resourceVersion"].as_str().expect("a version");
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&labelSelector=app%3Dx&timeoutSeconds=1");
    let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
    let bytes = second.raw(request).await.into_body().collect().await.expect("a body").to_bytes();
    let events: Vec<Value> = String::from_utf8_lossy(&bytes).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let delivered: Vec<(&str, &str)> =
        events.iter().map(|e| (e["type"].as_str().expect("a type"), e["object"]["metadata"]["name"].as_str().expect("a name"))).collect();
    assert_eq!(delivered, [("ADDED", "b"), ("DELETED", "b"), ("DELETED", "a")]);
    assert_eq!(events[0]["object"], b);
}

#[tokio::test]
async fn sqlite_holds_the_same_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || api_store::SqliteStore::open(api_store::SqliteConfig::new(directory.path().join("db")));
    let store: Arc<dyn Store> = Arc::new(open().await.expect("opens"));
    let first = cluster_on(Arc::clone(&store)).await;
    let created = first.config_map("a", json!({})).await;
    first.server.shutdown().await;
    store.close().await;
    drop((first, store));
    let second = cluster_on(Arc::new(open().await.expect("opens again"))).await;
    assert_eq!(second.get(&format!("{CONFIG_MAPS}/a")).await.ok(), created);
}

/// A class that came back as the newest default one would take the claims of a cluster that has replaced it.
#[tokio::test]
async fn the_built_in_class_is_made_once() {
    const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
    let config = || Config { local_volumes: true, ..config() };
    let default = |class: &Value| class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"].clone();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = cluster_with(config(), Arc::clone(&store)).await;
    let class = first.get(&format!("{CLASSES}/local-path")).await.ok();
    assert_eq!((default(&class), &class["provisioner"]), (json!("true"), &json!("skiff.internal/local-path")));
    first.delete(&format!("{CLASSES}/local-path")).await.ok();
    first.server.shutdown().await;
    let second = cluster_with(config(), Arc::clone(&store)).await;
    assert_eq!(second.get(&format!("{CLASSES}/local-path")).await.status, StatusCode::NOT_FOUND);

    // A cluster of an older version has a default class of its own.
    let (store, mine): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new()), json!({"storageclass.kubernetes.io/is-default-class": "true"}));
    let older = cluster_on(Arc::clone(&store)).await;
    let own = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "own", "annotations": mine}, "provisioner": "example.com/p"});
    older.post(CLASSES, own).await.ok();
    older.server.shutdown().await;
    let newer = cluster_with(config(), store).await;
    assert_eq!(default(&newer.get(&format!("{CLASSES}/local-path")).await.ok()), "false");
}
