use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}})
}

#[tokio::test]
async fn status_and_spec_do_not_touch_each_other() {
    let cluster = cluster().await;
    let mut body = deployment();
    body["status"] = json!({"replicas": 9});
    let created = cluster.post(DEPLOYMENTS, body).await.ok();
    assert_ne!(created["status"]["replicas"], 9);
    let path = format!("{DEPLOYMENTS}/d");
    let patched = cluster.patch(&format!("{path}/status"), "merge", json!({"spec": {"replicas": 7}, "status": {"replicas": 1}})).await.ok();
    assert_eq!((&patched["spec"]["replicas"], &patched["status"]["replicas"]), (&json!(2), &json!(1)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let mut changed = patched.clone();
    changed["spec"]["replicas"] = 3.into();
    changed["status"]["replicas"] = 5.into();
    let updated = cluster.put(&path, &changed).await.ok();
    assert_eq!((&updated["spec"]["replicas"], &updated["status"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(cluster.get(&format!("{path}/status")).await.ok(), updated);
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let cluster = cluster().await;
    cluster.post(DEPLOYMENTS, deployment()).await.ok();
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = cluster.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    scale["spec"]["replicas"] = 4.into();
    assert_eq!(cluster.put(&path, &scale).await.ok()["spec"]["replicas"], 4);
    assert_eq!(cluster.put(&path, &scale).await.status, StatusCode::CONFLICT);
    // A zero is omitted, as upstream omits it.
    assert_eq!(cluster.patch(&path, "merge", json!({"spec": {"replicas": 0}})).await.ok()["spec"], json!({}));
    let deployment = cluster.get(&format!("{DEPLOYMENTS}/d")).await.ok();
    assert_eq!((&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]), (&json!(0), &json!(3)));
    let negative = cluster.patch(&path, "merge", json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let cluster = cluster().await;
    cluster.pod("p", "").await;
    let binding =
        |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    assert_eq!(cluster.post(&format!("{PODS}/p/binding"), binding("n1")).await.status, StatusCode::CREATED);
    let pod = cluster.get(&format!("{PODS}/p")).await.ok();
    assert_eq!(pod["spec"]["nodeName"], "n1");
    let condition =
        pod["status"]["conditions"].as_array().and_then(|all| all.iter().find(|c| c["type"] == "PodScheduled")).expect("a condition");
    assert_eq!(condition["status"], "True");
    let message = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\"";
    assert_eq!(cluster.post(&format!("{PODS}/p/binding"), binding("n2")).await.refusal(), (409, message));
    cluster.pod("q", "").await;
    let mut binding = binding("n2");
    binding["metadata"]["name"] = "q".into();
    cluster.post("/api/v1/namespaces/default/bindings", binding).await.ok();
    assert_eq!(cluster.get(&format!("{PODS}/q")).await.ok()["spec"]["nodeName"], "n2");
}

async fn post_as(user: &InProcess, path: &str, body: Value) -> Answer {
    let request = Request::builder().method(Method::POST).uri(path).header(header::CONTENT_TYPE, "application/json");
    json_of(send(user, request.body(Body::from(body.to_string())).expect("a request")).await).await
}

#[tokio::test]
async fn a_node_evicts_its_own_pods_alone() {
    let cluster = cluster().await;
    cluster.pod("own", "n1").await;
    cluster.pod("other", "n2").await;
    let node = cluster.user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    assert_eq!(post_as(&node, &format!("{PODS}/own/eviction"), eviction("own")).await.status, StatusCode::CREATED);
    let refused = post_as(&node, &format!("{PODS}/other/eviction"), eviction("other")).await;
    assert!(refused.refusal().1.contains("node n1 can only evict pods with spec.nodeName set to itself"), "{refused:?}");
}

#[tokio::test]
async fn a_node_gets_tokens_for_its_own_pods_alone() {
    let cluster = cluster().await;
    let own = cluster.pod("own", "n1").await;
    let other = cluster.pod("other", "n2").await;
    let node = cluster.user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let ask = |bound: Value| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}});
        let node = node.clone();
        async move { post_as(&node, "/api/v1/namespaces/default/serviceaccounts/default/token", request).await }
    };
    let reference =
        |pod: &Value| json!({"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
    ask(reference(&own)).await.ok();
    for (bound, why) in
        [(Value::Null, "node requested token not bound to a pod"), (reference(&other), "bound to a pod scheduled on a different node")]
    {
        let refused = ask(bound).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(refused.refusal().1.contains(why), "{refused:?}");
    }
}

#[tokio::test]
async fn a_service_account_gets_a_token_that_authenticates() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let answer = cluster.post("/api/v1/namespaces/default/serviceaccounts/default/token", request.clone()).await.ok();
    let token = answer["status"]["token"].as_str().expect("a token");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let review = cluster.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await.ok();
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:default", "{review}");
    let nobody = cluster.post("/api/v1/namespaces/default/serviceaccounts/nobody/token", request).await;
    assert_eq!(nobody.refusal(), (404, "serviceaccounts \"nobody\" not found"));
}

#[tokio::test]
async fn a_signing_request_is_approved_beside_its_spec() {
    let cluster = cluster().await;
    let identity = rcgen_request();
    let csr = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"},
        "spec": {"request": identity, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut created = cluster.post(path, csr).await.ok();
    assert_eq!(created["spec"]["username"], "admin");
    created["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}]);
    let approved = cluster.put(&format!("{path}/c/approval"), &created).await.ok();
    assert_eq!(approved["status"]["conditions"][0]["type"], "Approved");
    let mut changed = approved.clone();
    changed["status"] = json!({});
    let updated = cluster.put(&format!("{path}/c"), &changed).await.ok();
    assert_eq!(updated["status"]["conditions"][0]["type"], "Approved");
}

/// A certificate request (PKCS#10): PEM, in base64 for JSON.
fn rcgen_request() -> String {
    use base64::Engine as _;
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    let pem = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    base64::engine::general_purpose::STANDARD.encode(pem)
}
