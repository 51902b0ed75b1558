use super::*;

fn waiting(status: &Value) -> (String, String) {
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    let text = |field: &str| waiting[field].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[tokio::test]
async fn an_unavailable_image_is_reported_and_backed_off() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("lost", one("missing:1")).await;
    cluster.status("lost", "ErrImagePull", |status| waiting(status).0 == "ErrImagePull").await;
    let status = cluster.status("lost", "ImagePullBackOff", |status| waiting(status).0 == "ImagePullBackOff").await;
    assert!(waiting(&status).1.starts_with("Back-off pulling image \"missing:1\": ErrImagePull: "), "{status}");
    for event in [
        "Pulling: Pulling image \"missing:1\"",
        "Failed: Failed to pull image \"missing:1\"",
        "Failed: Error: ErrImagePull",
        "BackOff: Back-off pulling image \"missing:1\"",
    ] {
        cluster.event("lost", event).await;
    }
    assert_eq!(status["phase"], "Pending");
    cluster.delete("lost", 30).await;
    cluster.gone("lost").await;
}

#[tokio::test]
async fn an_image_that_may_not_be_pulled_and_is_not_there() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("never", json!({"containers": [{"name": "c", "image": "missing:1", "imagePullPolicy": "Never"}]})).await;
    let status = cluster.status("never", "ErrImageNeverPull", |status| waiting(status).0 == "ErrImageNeverPull").await;
    assert_eq!(waiting(&status).1, "Container image \"missing:1\" is not present with pull policy of Never");
}

#[tokio::test]
async fn a_runtime_class_that_does_not_fit_is_clear_and_no_crash_loop() {
    let (cluster, _agent) = Cluster::running().await;
    let mut spec = one("web:1");
    spec["runtimeClassName"] = json!("wasmtime");
    cluster.create("misfit", spec).await;
    let status = cluster.status("misfit", "a reason", |status| waiting(status).0 == "CreateContainerConfigError").await;
    let message = "image \"web:1\" holds a Linux file system, but RuntimeClass \"wasmtime\" (handler \"wasmtime\") runs WebAssembly";
    assert!(waiting(&status).1.starts_with(message), "{status}");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 0);
    cluster.event("misfit", &format!("Failed: Error: {message}")).await;
}

#[tokio::test]
async fn a_wrong_setting_of_a_wasm_container_is_named_and_may_be_corrected() {
    let (cluster, _agent) = Cluster::running().await;
    let setting = |value: &str| json!({"annotations": {"wasm.skiff.internal/http-concurrency": value}});
    let mut pod = json!({"metadata": setting("many"), "spec": one("wasm:1")});
    pod["metadata"]["name"] = json!("set");
    pod["spec"]["nodeName"] = json!(NODE);
    cluster.pods().create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created");
    let status = cluster.status("set", "a reason", |status| waiting(status).0 == "CreateContainerConfigError").await;
    assert_eq!(waiting(&status).1, "annotation \"wasm.skiff.internal/http-concurrency\": \"many\" is not a number from 1 to 1024");
    cluster.patch("set", json!({"metadata": setting("8")})).await;
    cluster.ready("set").await;
}

#[tokio::test]
async fn a_wrong_setting_of_a_runtime_class_is_named_and_the_pod_may_replace_it() {
    let (cluster, _agent) = Cluster::running().await;
    let classes: Api<k8s_openapi::api::node::v1::RuntimeClass> = Api::all(cluster.client.clone());
    let setting = |value: &str| json!({"annotations": {"wasm.skiff.internal/fuel": value}});
    let mut class = json!({"metadata": setting("much"), "handler": "wasmtime"});
    class["metadata"]["name"] = json!("bounded");
    classes.create(&PostParams::default(), &serde_json::from_value(class).expect("a class")).await.expect("created");
    let mut spec = one("wasm:1");
    spec["runtimeClassName"] = json!("bounded");
    cluster.create("set", spec).await;
    let status = cluster.status("set", "a reason", |status| waiting(status).0 == "CreateContainerConfigError").await;
    let wanted = "annotation \"wasm.skiff.internal/fuel\" of RuntimeClass \"bounded\": \"much\" is not a number from 1 to ";
    assert!(waiting(&status).1.starts_with(wanted), "{status}");
    cluster.patch("set", json!({"metadata": setting("8")})).await;
    cluster.ready("set").await;
}

#[tokio::test]
async fn a_wasm_container_has_its_mounts_for_itself() {
    let (cluster, _agent) = Cluster::running().await;
    let mount = json!({"name": "v", "mountPath": "/v", "mountPropagation": "HostToContainer"});
    let spec =
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c", "image": "wasm:1", "volumeMounts": [mount]}]});
    cluster.create("asks", spec).await;
    let status = cluster.status("asks", "a reason", |status| waiting(status).0 == "CreateContainerConfigError").await;
    let message = "the mount at /v of container \"c\" has mountPropagation HostToContainer, which a WebAssembly container cannot have";
    assert_eq!(waiting(&status).1, message);
}

#[tokio::test]
async fn a_missing_config_map_holds_the_container() {
    let (cluster, _agent) = Cluster::running().await;
    let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]);
    cluster.create("waits", json!({"containers": [{"name": "c", "image": "web:1", "env": env}]})).await;
    let status = cluster.status("waits", "a reason", |status| waiting(status).0 == "CreateContainerConfigError").await;
    assert_eq!(waiting(&status).1, "configmap \"settings\" not found");
}

#[tokio::test]
async fn a_secret_that_cannot_be_decrypted_holds_the_container() {
    let with_key = |key: &str| {
        let provider = json!({"aesgcm": {"keys": [{"name": "only", "secret": key}]}});
        let text = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": [provider]}],
        });
        AtRest::parse(&text.to_string()).expect("a configuration")
    };
    let (store, key) = (Arc::new(MemoryStore::new()), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    let before = Cluster::on(Script::default(), store.clone(), with_key(key)).await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(before.client.clone());
    let secret = serde_json::from_value(json!({"metadata": {"name": "locked"}, "stringData": {"a": "1"}})).expect("a Secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    before.server.shutdown().await;

    let other = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
    let cluster = Cluster::on(Script::default(), store, with_key(other)).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "locked", "key": "a"}}}]);
    cluster.create("waits", json!({"containers": [{"name": "c", "image": "web:1", "env": env}]})).await;
    let status = cluster.status("waits", "a reason", |status| waiting(status).0 == "CreateContainerConfigError").await;
    let wanted = "Internal error occurred: unable to transform key \"core/secrets/default/locked\": failed to decrypt with key \
                  \"k8s:enc:aesgcm:v1:only\"";
    let message = waiting(&status).1;
    assert!(message.starts_with("failed to get secret \"locked\": ") && message.contains(wanted), "{message}");
    cluster.event("waits", &format!("Failed: Error: {message}")).await;
}

#[tokio::test]
async fn a_missing_volume_is_an_event_and_comes_later() {
    let (cluster, _agent) = Cluster::running().await;
    let volumes = json!([{"name": "v", "configMap": {"name": "settings"}}]);
    let containers = json!([{"name": "c", "image": "web:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]);
    cluster.create("mounts", json!({"volumes": volumes, "containers": containers})).await;
    cluster.event("mounts", "FailedMount: MountVolume.SetUp failed for volume \"v\" : configmap \"settings\" not found").await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(cluster.client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": "settings"}, "data": {"a": "1"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("created");
    cluster.ready("mounts").await;
}

#[tokio::test]
async fn what_does_not_fit_is_turned_away() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("huge", json!({"containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "4k"}}}]})).await;
    let status = cluster.status("huge", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "OutOfcpu");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("Pod was rejected: Node didn't have enough resource: cpu, requested: 4000000, used: 0, capacity: "),
        "{message}"
    );
    assert_eq!(status["containerStatuses"], Value::Null);
    cluster.delete("huge", 30).await;
    cluster.gone("huge").await;
}

#[tokio::test]
async fn a_command_that_cannot_start_ends_with_128() {
    let script =
        Script::default().containers(|_| runtimes_fake::Behaviour::FailStart("exec: \"/nope\": no such file or directory".to_owned()));
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("nope", one("web:1")).await;
    let looping = |status: &Value| waiting(status).0 == "CrashLoopBackOff";
    let status = cluster.status("nope", "CrashLoopBackOff", looping).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((last["reason"].as_str(), last["exitCode"].as_i64()), (Some("StartError"), Some(128)));
    assert!(last["message"].as_str().unwrap_or_default().contains("/nope"), "{last}");
}

#[tokio::test]
async fn a_module_at_fault_is_said_and_backed_off() {
    let script = Script::default().containers(|_| runtimes_fake::Behaviour::BadContent("unknown import: `env::foo`".to_owned()));
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("broken", one("web:1")).await;
    let status = cluster.status("broken", "a reason", |status| waiting(status).0 == "CreateContainerError").await;
    assert_eq!(waiting(&status).1, "unknown import: `env::foo`");
    cluster.event("broken", "Failed: Error: unknown import").await;
}

#[tokio::test]
async fn a_pod_with_devices_waits_for_their_driver() {
    let (cluster, _agent) = Cluster::running().await;
    let claims: Api<k8s_openapi::api::resource::v1::ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]);
    let claim = json!({"metadata": {"name": "gpu"}, "spec": {"devices": {"requests": requests}}});
    claims.create(&PostParams::default(), &serde_json::from_value(claim).expect("a claim")).await.expect("created");
    let mut spec = one("web:1");
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
    cluster.create("device", spec).await;
    cluster.event("device", "FailedPrepareDynamicResources: Failed to prepare dynamic resources: pod device(").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let uid = pods.get("device").await.expect("a Pod").metadata.uid;
    let result = json!({"request": "r", "driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"});
    let reserved = json!([{"resource": "pods", "name": "device", "uid": uid}]);
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
    claims.patch_status("gpu", &PatchParams::default(), &Patch::Merge(status)).await.expect("allocated");
    let message = "FailedPrepareDynamicResources: Failed to prepare dynamic resources: DRA driver gpu.example.com is not registered";
    cluster.event("device", message).await;
    let pod = pods.get("device").await.expect("a Pod");
    let status = pod.status.unwrap_or_default();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert!(status.container_statuses.iter().flatten().all(|container| container.restart_count == 0 && container.container_id.is_none()));
    cluster.delete("device", 30).await;
    cluster.gone("device").await;
}

#[tokio::test]
async fn a_pod_whose_extended_resources_devices_back_waits_for_their_driver() {
    let (cluster, _agent) = Cluster::running().await;
    // As the scheduler leaves the Pod.
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let pod = json!({"metadata": {"name": "backed"}, "spec": one("web:1")});
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a Pod")).await.expect("created");
    let claims: Api<k8s_openapi::api::resource::v1::ResourceClaim> = Api::default_namespaced(cluster.client.clone());
    let requests = json!([{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu"}}]);
    let claim = json!({"metadata": {"name": "backed-x"}, "spec": {"devices": {"requests": requests}}});
    claims.create(&PostParams::default(), &serde_json::from_value(claim).expect("a claim")).await.expect("created");
    let result = json!({"request": "container-0-request-0", "driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"});
    let reserved = json!([{"resource": "pods", "name": "backed", "uid": pod.metadata.uid}]);
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
    claims.patch_status("backed-x", &PatchParams::default(), &Patch::Merge(status)).await.expect("allocated");
    let mappings = json!([{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}]);
    let status = json!({"status": {"extendedResourceClaimStatus": {"resourceClaimName": "backed-x", "requestMappings": mappings}}});
    pods.patch_status("backed", &PatchParams::default(), &Patch::Merge(status)).await.expect("named");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "backed"}, "target": {"kind": "Node", "name": NODE}});
    let bound = pods.create_subresource::<_, serde_json::Value>("binding", "backed", &PostParams::default(), &binding).await;
    bound.expect("bound");
    let message = "FailedPrepareDynamicResources: Failed to prepare dynamic resources: DRA driver gpu.example.com is not registered";
    cluster.event("backed", message).await;
    cluster.delete("backed", 30).await;
    cluster.gone("backed").await;
}
