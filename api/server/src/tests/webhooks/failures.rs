//! Webhooks that are unavailable or slow, or that return invalid answers.

use super::*;

async fn refusal(cluster: &Cluster, name: &str) -> (u16, String) {
    let answer = cluster.post(CONFIG_MAPS, config_map(name, json!({}))).await;
    let (code, message) = answer.refusal();
    (code, message.to_owned())
}

/// Each answer, with the error text after the name of the webhook.
#[tokio::test]
async fn nonsense_counts_as_no_answer() {
    let answer = |review: &Value| {
        let uid = &review["request"]["uid"];
        let of =
            |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}).to_string();
        let text = match review["request"]["name"].as_str().unwrap_or_default() {
            "garbage" => "hello".to_owned(),
            "nothing" => json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}).to_string(),
            "other" => of(json!({"uid": "other", "allowed": true})),
            "patch" => of(json!({"uid": uid, "allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
            "long" => "x".repeat(4 * 1024 * 1024),
            _ => of(json!({"uid": uid, "allowed": true})),
        };
        let mut response = Response::new(Body::from(text));
        if review["request"]["name"] == "error" {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            *response.body_mut() = Body::from("oh no");
        }
        response
    };
    let (cluster, hook) = (cluster().await, Hook::answering(answer).await);
    cluster.configure("Validating", "v", json!([hook.webhook("v.example.com", json!({}))])).await;
    for (name, wanted) in [
        ("garbage", "failed to call webhook: couldn't get version/kind; json parse error: "),
        ("nothing", "received invalid webhook response: webhook response was absent"),
        ("other", "received invalid webhook response: expected response.uid="),
        ("patch", "received invalid webhook response: validating webhook may not return response.patch"),
        ("long", "length limit exceeded"),
        ("error", "failed to call webhook: an error on the server (\"oh no\") has prevented the request from succeeding"),
    ] {
        let (code, message) = refusal(&cluster, name).await;
        let begin = "Internal error occurred: failed calling webhook \"v.example.com\": ";
        assert!(code == 500 && message.starts_with(begin) && message.contains(wanted), "{name}: {code} {message}");
    }
    cluster.config_map("good", json!({})).await;
}

#[tokio::test]
async fn the_failure_policy_decides_about_unreachable_webhooks() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    let away = |policy: &str| {
        let mut webhook = hook.webhook("away.example.com", json!({"failurePolicy": policy}));
        webhook["clientConfig"]["url"] = "https://127.0.0.1:1/".into();
        json!([webhook])
    };
    cluster.configure("Mutating", "open", away("Ignore")).await;
    cluster.config_map("c", json!({})).await;
    cluster.configure("Mutating", "closed", away("Fail")).await;
    let wanted = "Internal error occurred: failed calling webhook \"away.example.com\": failed to call webhook: \
                  Post \"https://127.0.0.1:1/?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(refusal(&cluster, "d").await, (500, wanted.to_owned()));
    let metrics = cluster.get("/metrics").await.ok();
    for line in [
        "apiserver_admission_webhook_fail_open_count{name=\"away.example.com\",type=\"admit\"} 1",
        "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"away.example.com\",\
         operation=\"CREATE\",rejection_code=\"0\",type=\"admit\"} 1",
    ] {
        assert!(metrics.as_str().is_some_and(|text| text.lines().any(|found| found == line)), "{line}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_is_said_to_be_missing() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    let mut webhook = hook.webhook("s.example.com", json!({}));
    webhook["clientConfig"] = json!({"service": {"name": "hook", "namespace": "default", "path": "/x"}});
    cluster.configure("Validating", "v", json!([webhook])).await;
    let wanted = "Internal error occurred: failed calling webhook \"s.example.com\": failed to call webhook: \
                  Post \"https://hook.default.svc:443/x?timeout=10s\": service \"hook\" not found";
    assert_eq!(refusal(&cluster, "c").await, (500, wanted.to_owned()));
}

/// A certificate of an authority that the configuration does not name is rejected.
#[tokio::test]
async fn only_the_authority_that_is_named_is_believed() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    let directory = tempfile::tempdir().expect("a directory");
    let stranger = Pki::open(directory.path(), &PkiConfig::for_cluster("other.local")).expect("keys");
    let mut webhook = hook.webhook("v.example.com", json!({}));
    webhook["clientConfig"]["caBundle"] = STANDARD.encode(stranger.ca_pem()).into();
    cluster.configure("Validating", "v", json!([webhook])).await;
    let (code, message) = refusal(&cluster, "c").await;
    assert!(code == 500 && message.contains("invalid peer certificate"), "{message}");
    assert!(hook.received().is_empty());
}

#[tokio::test]
async fn a_slow_webhook_is_not_waited_for() {
    let cluster = cluster().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    // The backlog accepts connections, and nothing answers on them.
    let hook = Hook { port, received: Arc::default(), connections: Arc::default() };
    cluster.configure("Validating", "v", json!([hook.webhook("slow.example.com", json!({"timeoutSeconds": 1}))])).await;
    let (code, message) = refusal(&cluster, "c").await;
    assert!(code == 500 && message.ends_with("/think?timeout=1s\": context deadline exceeded"), "{message}");
    drop(listener);
}

#[tokio::test]
async fn a_dry_run_is_not_sent_to_webhooks_with_side_effects() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    cluster.configure("Validating", "v", json!([hook.webhook("v.example.com", json!({}))])).await;
    cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("c", json!({}))).await.ok();
    assert_eq!(hook.received()[0]["request"]["dryRun"], true);
    // Such a configuration can exist only from the time before side effects were forbidden.
    let value = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "old"}, "webhooks": [hook.webhook("old.example.com", json!({"sideEffects": "Some"}))]});
    let core = cluster.server.core();
    let served = core.registry.find("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations").expect("served");
    core.put(&served, ("", "old"), api_store::Expect::Absent, value, None).await.expect("stored");
    let refused = cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("c", json!({}))).await;
    assert_eq!(refused.refusal(), (400, "admission webhook \"old.example.com\" does not support dry run"));
    cluster.config_map("c", json!({})).await;
}

/// A Pod that left the Service may still run and answer; it gets no more requests.
#[tokio::test]
async fn a_connection_is_used_only_while_its_endpoint_is_in_the_slices() {
    let cluster = cluster().await;
    let (first, second) = (Hook::thinking(agree).await, Hook::thinking(agree).await);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}});
    cluster.post("/api/v1/namespaces/default/services", service).await.ok();
    let core = cluster.server.core();
    let served = core.registry.find("discovery.k8s.io", "v1", "endpointslices").expect("served");
    // The rules do not allow loopback as an endpoint, but these webhooks listen there.
    let point = async |expect, hook: &Hook| {
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "hook-x", "namespace": "default", "labels": {"kubernetes.io/service-name": "hook"}},
            "ports": [{"name": "", "port": hook.port}], "endpoints": [{"addresses": ["127.0.0.1"]}]});
        core.put(&served, ("default", "hook-x"), expect, slice, None).await.expect("stored").revision
    };
    let revision = point(api_store::Expect::Absent, &first).await;
    let mut webhook = first.webhook("s.example.com", json!({}));
    webhook["clientConfig"] = json!({"service": {"name": "hook", "namespace": "default"}, "caBundle": webhook["clientConfig"]["caBundle"]});
    cluster.configure("Validating", "v", json!([webhook])).await;
    for name in ["a", "b"] {
        cluster.config_map(name, json!({})).await;
    }
    assert_eq!((first.received().len(), first.connections.load(Ordering::SeqCst)), (2, 1), "a connection is kept");
    point(api_store::Expect::At(revision), &second).await;
    cluster.config_map("c", json!({})).await;
    assert_eq!((first.received().len(), second.received().len()), (2, 1));
}
