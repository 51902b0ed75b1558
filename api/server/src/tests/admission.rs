//! What the server adds to the decisions of admission plugins: waiting and locking.

use super::*;

/// The controller that creates a new namespace's ServiceAccount may be a little late.
#[tokio::test]
async fn a_pod_waits_for_its_namespaces_account() {
    let cluster = Arc::new(cluster().await);
    let waiting = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.post(PODS, pod("early")).await }
    });
    tokio::task::yield_now().await;
    cluster.service_account().await;
    waiting.await.expect("no panic").ok();
}

#[tokio::test(start_paused = true)]
async fn a_pod_does_not_wait_for_ever() {
    let refused = cluster().await.post(PODS, pod("early")).await;
    let message = "pods \"early\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!(refused.refusal(), (403, message));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_without_a_name_is_identified_by_its_prefix() {
    let mut early = pod("early");
    early["metadata"] = json!({"generateName": "early-"});
    let refused = cluster().await.post(PODS, early).await;
    assert!(refused.refusal().1.starts_with("pods \"early-\" is forbidden: "), "{refused:?}");
    assert_eq!(refused.body["details"]["name"], "early-");
}

/// Each of many concurrent objects would fit alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_against_writers_at_once() {
    let cluster = Arc::new(cluster().await);
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}});
    cluster.post("/api/v1/namespaces/default/resourcequotas", quota).await.ok();
    let writers = (0..30).map(|writer| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { cluster.post(CONFIG_MAPS, config_map(&format!("m{writer}"), json!({}))).await.status })
    });
    let mut created = 0;
    for writer in writers.collect::<Vec<_>>() {
        match writer.await.expect("no panic") {
            StatusCode::CREATED => created += 1,
            refused => assert_eq!(refused, StatusCode::FORBIDDEN),
        }
    }
    assert_eq!(created, 5);
}

/// Creations that fail after admission, and deletions, use nothing of the quota. No writer waits for free quota.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_exact_while_objects_come_and_go() {
    const HARD: usize = 6;
    let cluster = Arc::new(cluster().await);
    let quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"secrets": HARD.to_string()}}});
    cluster.post("/api/v1/namespaces/default/resourcequotas", quota).await.ok();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    // Twice as many names as the quota allows, and two writers for each name.
    let writers = (0..4 * HARD).map(|writer| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move {
            let name = format!("s{}", writer / 2);
            for _ in 0..20 {
                let created = cluster.post(secrets, secret(&name)).await;
                let there = names(&cluster.get(secrets).await.ok()).len();
                assert!(there <= HARD, "{there}");
                match created.status {
                    StatusCode::CREATED => drop(cluster.delete(&format!("{secrets}/{name}")).await.ok()),
                    StatusCode::CONFLICT => {}
                    _ => assert!(
                        created.refusal().1.contains("exceeded quota: q, requested: secrets=1, used: secrets=6, limited: secrets=6"),
                        "{created:?}"
                    ),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("no panic");
    }
    for free in 0..HARD {
        cluster.post(secrets, secret(&format!("free{free}"))).await.ok();
    }
    assert_eq!(cluster.post(secrets, secret("more")).await.refusal().0, 403);
    for _ in 0..20 {
        assert_eq!(cluster.post(secrets, secret("free1")).await.refusal().0, 403, "the quota is asked before the name");
        cluster.delete(&format!("{secrets}/free0")).await.ok();
        assert_eq!(cluster.post(secrets, secret("free1")).await.refusal().0, 409);
        cluster.post(secrets, secret("free0")).await.ok();
    }
}

/// A dry run is rejected like any other request, and uses nothing of the quota.
#[tokio::test]
async fn a_quota_refuses_what_is_tried() {
    let cluster = cluster().await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1", "services.nodeports": "0"}}});
    cluster.post("/api/v1/namespaces/default/resourcequotas", quota).await.ok();
    let tried = format!("{CONFIG_MAPS}?dryRun=All");
    for name in ["a", "b"] {
        cluster.post(&tried, config_map(name, json!({}))).await.ok();
    }
    cluster.config_map("a", json!({})).await;
    assert_eq!(cluster.post(&tried, config_map("b", json!({}))).await.refusal().0, 403);
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    cluster.post(services, service).await.ok();
    let refused = cluster.patch(&format!("{services}/s?dryRun=All"), "merge", json!({"spec": {"type": "NodePort"}})).await;
    let message = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=0, limited: services.nodeports=0";
    assert_eq!(refused.refusal(), (403, message));
}

/// Only a namespace with the label may request administrators' access to devices that are in use.
#[tokio::test]
async fn administrators_access_to_devices_needs_a_label() {
    let cluster = cluster().await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = |name: &str| {
        let exactly = json!({"deviceClassName": "gpu", "adminAccess": true});
        let spec = json!({"devices": {"requests": [{"name": "a", "exactly": exactly}]}});
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec})
    };
    let needs = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    let refused = cluster.post(claims, claim("a")).await;
    let message = format!("ResourceClaim.resource.k8s.io \"a\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: {needs}");
    assert_eq!(refused.refusal(), (422, message.as_str()));
    let mark = async |value: Value| {
        let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}});
        cluster.patch("/api/v1/namespaces/default", "merge", label).await.ok();
    };
    mark("true".into()).await;
    cluster.post(claims, claim("a")).await.ok();
    mark(Value::Null).await;
    // An existing claim stays, but it gets no further devices.
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    cluster.patch(&format!("{claims}/a"), "merge", labelled).await.ok();
    let result = json!({"request": "a", "driver": "d.example.com", "pool": "p", "device": "x", "adminAccess": true});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let refused = cluster.patch(&format!("{claims}/a/status"), "merge", status.clone()).await;
    let message =
        format!("ResourceClaim.resource.k8s.io \"a\" is invalid: status.allocation.devices.results[0].adminAccess: Forbidden: {needs}");
    assert_eq!(refused.refusal(), (422, message.as_str()));
    mark("true".into()).await;
    cluster.patch(&format!("{claims}/a/status"), "merge", status).await.ok();
}

/// The status has the usage soon after a change, and soon after the creation of the quota.
#[tokio::test]
async fn a_quota_says_what_is_used() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"configmaps": "5", "requests.cpu": "2"}}});
    cluster.post(quotas, quota).await.ok();
    let status = async |used: Value| {
        let wanted = json!({"hard": {"configmaps": "5", "requests.cpu": "2"}, "used": used});
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        loop {
            let quota = cluster.get(&format!("{quotas}/q")).await.ok();
            if quota["status"] == wanted {
                return quota;
            }
            assert!(tokio::time::Instant::now() < deadline, "{quota}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let quota = status(json!({"configmaps": "1", "requests.cpu": "0"})).await;
    let owners: Vec<_> = quota["metadata"]["managedFields"].as_array().expect("owners").iter().map(|owner| &owner["subresource"]).collect();
    assert!(owners.contains(&&json!("status")), "{owners:?}");
    cluster.service_account().await;
    let mut asking = pod("p");
    asking["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1500m"}});
    cluster.post(PODS, asking).await.ok();
    cluster.config_map("b", json!({})).await;
    status(json!({"configmaps": "2", "requests.cpu": "1500m"})).await;
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    status(json!({"configmaps": "1", "requests.cpu": "1500m"})).await;
}

#[tokio::test]
async fn a_body_that_is_no_json_is_rejected_with_its_beginning() {
    let cluster = cluster().await;
    let refused = cluster.request(Method::POST, CONFIG_MAPS, "application/json", "{\"kind\": ").await;
    let (code, message) = refused.refusal();
    assert_eq!(code, 400);
    assert!(
        message
            .starts_with("the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ")
    );
    assert!(message.ends_with("({\"kind\": )"), "{message}");
}

/// An address in the index always means the same document. An old address redirects to the present one.
#[tokio::test]
async fn documents_requested_by_hash_may_be_cached() {
    let cluster = cluster().await;
    let index = cluster.get("/openapi/v3").await.ok();
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("an address");
    let found = cluster.get(address).await;
    assert_eq!(
        (found.status, &found.headers["cache-control"]),
        (StatusCode::OK, &"public, immutable, max-age=31536000".parse().expect("a value"))
    );
    let moved = cluster.get("/openapi/v3/apis/apps/v1?hash=OLD").await;
    assert_eq!((moved.status, &moved.headers["location"]), (StatusCode::MOVED_PERMANENTLY, &address.parse().expect("a value")));
}
