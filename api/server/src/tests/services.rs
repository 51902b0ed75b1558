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

/// Only the server can create this Service again.
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
    // The port of a deleted Service is free again.
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
    // If many ask for the same address, one of them gets it.
    let requests = (0..10).map(|at| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { cluster.post(SERVICES, service(&format!("t{at}"), json!({"clusterIP": "10.96.0.99"}))).await.status })
    });
    let mut created = 0;
    for status in requests.collect::<Vec<_>>() {
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

#[tokio::test]
async fn external_addresses_are_denied_unless_that_is_switched_off() {
    let external = service("a", json!({"externalIPs": ["203.0.113.7"]}));
    let refused = cluster().await.post(SERVICES, external).await;
    assert_eq!(refused.refusal(), (403, "services \"a\" is forbidden: Use of external IPs is denied by admission control"));
}

#[tokio::test]
async fn external_addresses_can_be_taken_off() {
    let mut config = config();
    config.disable_admission_plugins = vec!["DenyServiceExternalIPs".to_owned()];
    let cluster = cluster_with(config, Arc::new(MemoryStore::new())).await;
    let path = format!("{SERVICES}/a");
    let apply = async |addresses: Value| {
        let spec = json!({"ports": [{"port": 80}], "selector": {"a": "b"}, "externalIPs": addresses});
        let applied = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        let (target, media) = (format!("{path}?fieldManager=me"), "application/apply-patch+yaml");
        cluster.request(Method::PATCH, &target, media, applied.to_string()).await.ok()
    };
    assert_eq!(apply(json!(["203.0.113.7"])).await["spec"]["externalTrafficPolicy"], "Cluster");
    let plain = apply(json!([])).await;
    assert!(plain["spec"].get("externalTrafficPolicy").is_none(), "{plain}");
    // Values that the client sets itself are still checked.
    let local = cluster.patch(&path, "merge", json!({"spec": {"externalTrafficPolicy": "Local"}})).await;
    assert!(local.refusal().1.contains("may only be set for externally-accessible services"), "{local:?}");
}

#[tokio::test]
async fn families_that_the_cluster_lacks_are_rejected() {
    let cluster = cluster().await;
    let refused = async |spec: Value| {
        let answer = cluster.post(SERVICES, service("a", spec)).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{answer:?}");
        answer.refusal().1.trim_start_matches("Service \"a\" is invalid: ").to_owned()
    };
    for (spec, wanted) in [
        (json!({"ipFamilies": ["IPv6"]}), "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (json!({"clusterIP": "fd00::1"}), "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster"),
        (
            json!({"clusterIP": "None", "selector": {}, "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP \
             families are specified",
        ),
        (
            json!({"clusterIP": "None", "ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
    ] {
        assert_eq!(refused(spec).await, wanted);
    }
    let families = async |name: &str, spec: Value| {
        let made = cluster.post(SERVICES, service(name, spec)).await.ok();
        [made["spec"]["ipFamilyPolicy"].clone(), made["spec"]["ipFamilies"].clone()]
    };
    let prefer = families("prefer", json!({"ipFamilyPolicy": "PreferDualStack"})).await;
    assert_eq!(prefer, [json!("PreferDualStack"), json!(["IPv4"])]);
    // The client that writes the endpoints knows their families.
    let free = |more: Value| {
        let mut spec = json!({"clusterIP": "None", "selector": null});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        spec
    };
    assert_eq!(families("free", free(json!({}))).await, [json!("RequireDualStack"), json!(["IPv4", "IPv6"])]);
    assert_eq!(families("six", free(json!({"ipFamilies": ["IPv6"]}))).await, [json!("RequireDualStack"), json!(["IPv6", "IPv4"])]);
    assert_eq!(families("one", free(json!({"ipFamilyPolicy": "SingleStack"}))).await, [json!("SingleStack"), json!(["IPv4"])]);
    let selects = cluster.patch(&format!("{SERVICES}/free"), "merge", json!({"spec": {"selector": {"a": "b"}}})).await;
    assert!(selects.refusal().1.contains("this cluster is not configured for dual-stack services"), "{selects:?}");
    let single = cluster.patch(&format!("{SERVICES}/free"), "merge", json!({"spec": {"ipFamilyPolicy": "SingleStack"}})).await.ok();
    assert_eq!(single["spec"]["ipFamilies"], json!(["IPv4"]));
    let labelled = cluster.patch(&format!("{SERVICES}/six"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(labelled["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    let dual = cluster.patch(&format!("{SERVICES}/prefer"), "merge", json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}})).await;
    assert_eq!(dual.status, StatusCode::UNPROCESSABLE_ENTITY, "{dual:?}");
}

#[tokio::test]
async fn protocols_of_one_port_share_their_node_port() {
    let cluster = cluster().await;
    let dns = |more: Value| {
        let mut ports =
            json!([{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}, {"name": "o", "port": 54}]);
        ports[1].as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        json!({"type": "NodePort", "ports": ports})
    };
    let node_ports = |service: &Value| [0, 1, 2].map(|at| service["spec"]["ports"][at]["nodePort"].as_u64().expect("a port"));
    let [tcp, udp, other] = node_ports(&cluster.post(SERVICES, service("a", dns(json!({})))).await.ok());
    assert_eq!(tcp, udp);
    assert_ne!(tcp, other);
    let [tcp, udp, _] = node_ports(&cluster.post(SERVICES, service("b", dns(json!({"nodePort": 30_053})))).await.ok());
    assert_eq!([tcp, udp], [30_053, 30_053]);
}
