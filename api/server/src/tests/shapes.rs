use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn a_scale_has_columns_of_its_own() {
    let cluster = cluster().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    cluster.post(sets, json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "s"}, "spec": spec})).await.ok();
    let table = cluster.get_as(&format!("{sets}/s/scale"), TABLE).await.ok();
    let columns: Vec<&str> = table["columnDefinitions"].as_array().expect("columns").iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().expect("cells")[..3], [json!("s"), json!(3), json!(0)]);
}

#[tokio::test]
async fn tables_show_what_kubectl_prints() {
    let cluster = cluster().await;
    cluster.pod("p", "").await;
    let table = cluster.get_as(PODS, TABLE).await.ok();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&str> = table["columnDefinitions"].as_array().expect("columns").iter().filter_map(|c| c["name"].as_str()).collect();
    assert_eq!(columns.first(), Some(&"Name"));
    assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), Some(columns.len()));
    assert_eq!(table["rows"][0]["cells"][0], "p");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert!(table["rows"][0].get("conditions").is_none());
    cluster.patch(&format!("{PODS}/p/status"), "merge", json!({"status": {"phase": "Succeeded"}})).await.ok();
    assert_eq!(cluster.get_as(PODS, TABLE).await.ok()["rows"][0]["conditions"][0]["type"], "Completed");
    let with_object = cluster.get_as(&format!("{PODS}/p?includeObject=Object"), TABLE).await.ok();
    assert_eq!(with_object["rows"][0]["object"]["kind"], "Pod");
    assert!(cluster.get_as(&format!("{PODS}?includeObject=None"), TABLE).await.ok()["rows"][0].get("object").is_none());
}

#[tokio::test]
async fn metadata_alone() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({"x": "y"})).await;
    let accept = |what: &str| format!("application/json;as={what};v=v1;g=meta.k8s.io");
    let one = cluster.get_as(&format!("{CONFIG_MAPS}/a"), &accept("PartialObjectMetadata")).await.ok();
    assert_eq!((&one["kind"], &one["metadata"]["labels"]["x"], one.get("data")), (&json!("PartialObjectMetadata"), &json!("y"), None));
    let list = cluster.get_as(CONFIG_MAPS, &accept("PartialObjectMetadataList")).await.ok();
    assert_eq!((&list["kind"], names(&list)), (&json!("PartialObjectMetadataList"), vec!["a"]));
    assert_eq!(cluster.get_as(CONFIG_MAPS, &accept("PartialObjectMetadata")).await.status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn discovery_speaks_both_dialects() {
    let cluster = cluster().await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;\
                      as=APIGroupDiscoveryList,application/json";
    for path in ["/api", "/apis"] {
        let answer = cluster.get_as(path, aggregated).await;
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        let etag = answer.headers[header::ETAG].clone();
        assert_eq!(answer.ok()["kind"], "APIGroupDiscoveryList");
        let request = Request::builder().uri(path).header(header::ACCEPT, aggregated).header(header::IF_NONE_MATCH, etag);
        let response = cluster.raw(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    }
    assert_eq!(cluster.get("/api").await.ok()["kind"], "APIVersions");
    assert_eq!(cluster.get("/apis").await.ok()["kind"], "APIGroupList");
    assert_eq!(cluster.get("/apis/apps").await.ok()["preferredVersion"]["groupVersion"], "apps/v1");
    assert_eq!(cluster.get("/api/v1").await.ok()["kind"], "APIResourceList");
    assert_eq!(cluster.get("/apis/bogus").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn openapi_is_there() {
    let cluster = cluster().await;
    let index = cluster.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("a document");
    assert!(cluster.get(url).await.ok()["components"]["schemas"].is_object());
    assert_eq!(cluster.get("/openapi/v2").await.ok()["swagger"], "2.0");
}

#[tokio::test]
async fn health_version_metrics_and_keys() {
    let cluster = cluster().await;
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/etcd"] {
        assert_eq!(cluster.get(path).await.ok(), "ok", "{path}");
    }
    let verbose = cluster.get("/readyz?verbose").await.ok();
    assert!(verbose.as_str().is_some_and(|text| text.starts_with("[+]ping ok\n") && text.ends_with("readyz check passed\n")), "{verbose}");
    assert_eq!(cluster.get("/version").await.ok()["gitVersion"], "v1.37.0+skiff");
    cluster.config_map("a", json!({})).await;
    let metrics = cluster.get("/metrics").await.ok();
    let text = metrics.as_str().expect("text");
    for line in [
        "apiserver_request_total{code=\"201\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"POST\",version=\"v1\"}",
        "apiserver_storage_objects{resource=\"namespaces\"} 4",
        "process_cpu_seconds_total",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(cluster.get("/openid/v1/jwks").await.ok()["keys"][0]["kid"].is_string());
    assert!(cluster.get("/.well-known/openid-configuration").await.ok()["issuer"].is_string());
    cluster.server.shutdown().await;
    assert_eq!(cluster.get("/readyz").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(cluster.get("/livez").await.ok(), "ok");
}

#[tokio::test]
async fn every_answer_bears_an_audit_id() {
    let cluster = cluster().await;
    assert!(cluster.get("/version").await.headers.contains_key("audit-id"));
    let request = Request::builder().uri("/version").header("audit-id", "mine").body(Body::empty()).expect("a request");
    assert_eq!(cluster.raw(request).await.headers()["audit-id"], "mine");
}

#[tokio::test]
async fn a_server_whose_store_is_gone_says_that_it_is_not_well() {
    let cluster = cluster().await;
    assert_eq!(cluster.get("/livez").await.ok(), "ok");
    cluster.store.close().await;
    let answer = cluster.get("/livez").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.body.as_str().is_some_and(|text| text.contains("[-]etcd failed")), "{answer:?}");
}

#[tokio::test]
async fn a_server_whose_cache_falls_behind_says_so() {
    let cluster = cluster().await;
    api_tasks::fault::inject("api-server/cache-feeder", api_tasks::fault::Fault::Stall);
    let report = cluster.get("/readyz").await.body.to_string();
    assert!(report.contains("[-]informer-sync failed"), "also before anything is written: {report}");
    let write = api_store::Write::new("core/configmaps/default/late", Some("{}".into()), api_store::Expect::Absent);
    cluster.store.write(write).await.expect("written");
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = cluster.get(path).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        let report = answer.body.as_str().expect("text").to_owned();
        assert!(report.contains("[+]etcd ok\n[-]informer-sync failed: reason withheld\n"), "{report}");
    }
}

async fn a_failed_feeder_is_a_failure_of_the_server(fault: api_tasks::fault::Fault) {
    let cluster = cluster().await;
    api_tasks::fault::inject("api-server/cache-feeder", fault);
    let failure = tokio::time::timeout(std::time::Duration::from_secs(1), cluster.server.failed()).await.expect("within a second");
    assert_eq!(failure.task(), "api-server/cache-feeder");
    assert_eq!(cluster.get("/livez").await.status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn a_feeder_that_panics_is_a_failure_of_the_server() {
    a_failed_feeder_is_a_failure_of_the_server(api_tasks::fault::Fault::Panic).await;
}

#[tokio::test]
async fn a_feeder_that_ends_is_a_failure_of_the_server() {
    a_failed_feeder_is_a_failure_of_the_server(api_tasks::fault::Fault::End).await;
}
