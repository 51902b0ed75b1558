use super::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
    for (field, value) in spec.as_object().expect("a map") {
        service["spec"][field] = value.clone();
    }
    service
}

#[tokio::test]
async fn the_cluster_has_its_two_services() {
    let cluster = cluster().await;
    let kubernetes = cluster.get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!(kubernetes["spec"]["clusterIP"], "10.96.0.1");
    let slice = cluster.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await.ok();
    assert_eq!((&slice["endpoints"][0]["addresses"], &slice["ports"][0]["port"]), (&json!(["10.0.0.1"]), &json!(6443)));
    let dns = cluster.get("/api/v1/namespaces/kube-system/services/kube-dns").await.ok();
    assert_eq!(dns["spec"]["clusterIP"], "10.96.0.10");
}

/// Nobody but the server could make them again.
#[tokio::test(start_paused = true)]
async fn the_servers_own_service_comes_back() {
    let cluster = cluster().await;
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes".to_owned();
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes".to_owned();
    let published = [format!("{SERVICES}/kubernetes"), endpoints, slice];
    for path in &published {
        cluster.delete(path).await.ok();
        assert_eq!(cluster.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    for path in &published {
        cluster.get(path).await.ok();
    }
    assert_eq!(cluster.get(&published[0]).await.ok()["spec"]["clusterIP"], "10.96.0.1");
}

#[tokio::test]
async fn a_service_gets_an_address_and_families() {
    let cluster = cluster().await;
    let created = cluster.post(SERVICES, service("a", json!({}))).await.ok();
    let spec = &created["spec"];
    let address: std::net::Ipv4Addr = spec["clusterIP"].as_str().expect("an address").parse().expect("an address");
    assert!(config().service_cluster_ip_range.contains(&address));
    assert_eq!(spec["clusterIPs"], json!([spec["clusterIP"]]));
    assert_eq!((&spec["ipFamilies"], &spec["ipFamilyPolicy"]), (&json!(["IPv4"]), &json!("SingleStack")));
    let headless = cluster.post(SERVICES, service("b", json!({"clusterIP": "None"}))).await.ok();
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = service("c", json!({"type": "ExternalName", "externalName": "example.com"}));
    let external = cluster.post(SERVICES, external).await.ok();
    assert!(external["spec"].get("clusterIP").is_none(), "{external}");
}

#[tokio::test]
async fn requested_addresses_and_ports_must_be_free_and_in_range() {
    let cluster = cluster().await;
    let taken = cluster.post(SERVICES, service("a", json!({"clusterIP": "10.96.0.1"}))).await;
    let message = "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: failed to allocate IP 10.96.0.1: provided IP is \
                   already allocated";
    assert_eq!(taken.refusal(), (422, message));
    let outside = cluster.post(SERVICES, service("a", json!({"clusterIP": "10.0.0.1"}))).await;
    let message = "the provided IP (10.0.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12";
    assert!(outside.refusal().1.ends_with(message), "{outside:?}");
    let port = |port: u16| service(&format!("p{port}"), json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
    cluster.post(SERVICES, port(30_080)).await.ok();
    let mut again = port(30_080);
    again["metadata"]["name"] = "again".into();
    let message = "Service \"again\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    assert_eq!(cluster.post(SERVICES, again).await.refusal(), (422, message));
    let low = cluster.post(SERVICES, port(80)).await;
    assert!(low.refusal().1.ends_with("provided port is not in the valid range. The range of valid ports is 30000-32767"), "{low:?}");
    // What is deleted is free again.
    cluster.delete(&format!("{SERVICES}/p30080")).await.ok();
    cluster.post(SERVICES, port(30_080)).await.ok();
}

#[tokio::test]
async fn services_made_at_once_get_different_addresses_and_ports() {
    let cluster = Arc::new(cluster().await);
    let creates = (0..30).map(|at| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { cluster.post(SERVICES, service(&format!("s{at}"), json!({"type": "NodePort"}))).await.ok() })
    });
    let mut seen = std::collections::HashSet::new();
    for create in creates.collect::<Vec<_>>() {
        let service = create.await.expect("no panic");
        assert!(seen.insert(service["spec"]["clusterIP"].to_string()), "{service}");
        assert!(seen.insert(service["spec"]["ports"][0]["nodePort"].to_string()), "{service}");
    }
    // The same address asked for by many goes to one.
    let asked = (0..10).map(|at| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { cluster.post(SERVICES, service(&format!("t{at}"), json!({"clusterIP": "10.96.0.99"}))).await.status })
    });
    let mut created = 0;
    for status in asked.collect::<Vec<_>>() {
        created += usize::from(status.await.expect("no panic") == StatusCode::CREATED);
    }
    assert_eq!(created, 1);
}

#[tokio::test]
async fn an_update_keeps_what_was_given_and_may_change_the_type() {
    let cluster = cluster().await;
    let created = cluster.post(SERVICES, service("a", json!({"type": "NodePort"}))).await.ok();
    let path = format!("{SERVICES}/a");
    let mut again = service("a", json!({"type": "NodePort"}));
    again["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    let updated = cluster.put(&path, &again).await.ok();
    assert_eq!(updated["spec"], created["spec"]);
    let plain = cluster.patch(&path, "merge", json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert!(plain["spec"]["ports"][0].get("nodePort").is_none(), "{plain}");
    assert_eq!(plain["spec"]["clusterIP"], created["spec"]["clusterIP"]);
    let moved = cluster.patch(&path, "merge", json!({"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}})).await;
    assert_eq!(moved.status, StatusCode::UNPROCESSABLE_ENTITY, "{moved:?}");
}
