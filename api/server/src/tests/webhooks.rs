//! Webhooks over real HTTPS, on loopback, with a certificate of the cluster.

mod changes;
mod failures;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// The webhook's decision: the fields of its response beside the uid.
type Think = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// A webhook that records its requests.
pub(super) struct Hook {
    pub(super) port: u16,
    pub(super) received: Arc<Mutex<Vec<Value>>>,
    pub(super) connections: Arc<AtomicUsize>,
}

impl Hook {
    async fn thinking(think: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let think: Think = Arc::new(think);
        Self::answering(move |review| {
            let mut response = think(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            Response::new(Body::from(
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}).to_string(),
            ))
        })
        .await
    }

    pub(super) async fn answering(answer: impl Fn(&Value) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::considering(std::time::Duration::ZERO, answer).await
    }

    /// A webhook that answers after some time.
    async fn considering(takes: std::time::Duration, answer: impl Fn(&Value) -> Response<Body> + Send + Sync + 'static) -> Self {
        let names = PkiConfig { names: ["hook.default.svc".to_owned()].into(), addresses: [IpAddr::V4(Ipv4Addr::LOCALHOST)].into() };
        let subject = api_auth::pki::Subject::server("hook", &names);
        let identity = PKI.issue(&subject, std::time::Duration::from_secs(3_600)).expect("a certificate");
        let acceptor = crate::tls::tests_server(&identity.certificate_pem, &identity.key_pem);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let hook = Self { port: listener.local_addr().expect("an address").port(), received: Arc::default(), connections: Arc::default() };
        let (received, connections, answer) = (Arc::clone(&hook.received), Arc::clone(&hook.connections), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (acceptor, received, answer) = (acceptor.clone(), Arc::clone(&received), Arc::clone(&answer));
                tokio::spawn(async move {
                    // A client that does not trust the certificate ends the connection.
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request: Request<hyper::body::Incoming>| {
                        let (received, answer) = (Arc::clone(&received), Arc::clone(&answer));
                        async move {
                            let query = request.uri().query().unwrap_or_default().to_owned();
                            let body = request.into_body().collect().await.expect("a body").to_bytes();
                            let mut review: Value = serde_json::from_slice(&body).expect("JSON");
                            let response = answer(&review);
                            review["query"] = query.into();
                            received.lock().push(review);
                            tokio::time::sleep(takes).await;
                            Ok::<_, std::convert::Infallible>(response)
                        }
                    });
                    // A client may close the connection at any time.
                    let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        hook
    }

    pub(super) fn received(&self) -> Vec<Value> {
        self.received.lock().clone()
    }

    pub(super) fn client_config(&self) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/think", self.port), "caBundle": STANDARD.encode(PKI.ca_pem())})
    }

    /// The configuration of a webhook for writes of ConfigMaps.
    fn webhook(&self, name: &str, more: Value) -> Value {
        let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
        let mut webhook = json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": self.client_config(), "rules": rules});
        webhook.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        webhook
    }
}

impl Cluster {
    async fn configure(&self, kind: &str, name: &str, webhooks: Value) {
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": name}, "webhooks": webhooks});
        let collection = format!("{CONFIGURATIONS}/{}webhookconfigurations", kind.to_lowercase());
        self.post(&collection, configuration).await.ok();
    }
}

/// A response that allows the request and has a patch.
fn patching(patch: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

/// Allows everything.
fn agree(_: &Value) -> Value {
    json!({"allowed": true})
}

/// A webhook that is slow for ConfigMaps.
pub(super) struct Slow {
    hook: Hook,
    entered: Arc<tokio::sync::Notify>,
}

/// A webhook that allows requests after some time.
pub(super) async fn slow_hook(takes: std::time::Duration) -> Slow {
    let entered = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&entered);
    let hook = Hook::considering(takes, move |review| {
        notify.notify_one();
        let response = json!({"uid": review["request"]["uid"], "allowed": true});
        Response::new(Body::from(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}).to_string()))
    });
    Slow { hook: hook.await, entered }
}

impl Slow {
    /// Waits until the webhook gets a request.
    pub(super) async fn was_called(&self) {
        self.entered.notified().await;
    }
}

impl Cluster {
    /// Makes writes of ConfigMaps slow, and gives the group `flooders` the right to make them.
    pub(super) async fn configure_slowness(&self, slow: &Slow) {
        self.configure("Validating", "slow", json!([slow.hook.webhook("slow.example.com", json!({}))])).await;
        let rbac = "rbac.authorization.k8s.io";
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "flooders"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "flooders"}]});
        self.post(&format!("/apis/{rbac}/v1/namespaces/default/rolebindings"), binding).await.ok();
    }
}

#[tokio::test]
async fn a_webhook_is_called_for_every_kind_of_write() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    cluster.configure("Validating", "all", json!([hook.webhook("all.example.com", json!({"timeoutSeconds": 7}))])).await;
    cluster.config_map("c", json!({})).await;
    let path = format!("{CONFIG_MAPS}/c");
    cluster.patch(&path, "merge", json!({"data": {"key": "other"}})).await.ok();
    cluster.delete(&format!("{path}?dryRun=All&propagationPolicy=Orphan")).await.ok();
    cluster.delete(&path).await.ok();
    let received = hook.received();
    let mut reviews: Vec<Value> = received.iter().map(|review| review["request"].clone()).collect();
    for review in &mut reviews {
        review["uid"] = "…".into();
        for object in ["object", "oldObject"] {
            if let Some(metadata) = review.pointer_mut(&format!("/{object}/metadata")).and_then(Value::as_object_mut) {
                metadata.retain(|field, _| field == "name" || field == "namespace");
            }
        }
    }
    insta::assert_json_snapshot!(reviews);
    assert_eq!(received[0]["query"], "timeout=7s");
    assert_eq!(hook.connections.load(Ordering::SeqCst), 1, "the connection is kept");
}

#[tokio::test]
async fn a_denial_has_the_webhooks_message() {
    let think = |request: &Value| match request["name"].as_str() {
        Some("good") => json!({"allowed": true, "warnings": ["careful"]}),
        Some("plain") => json!({"allowed": false}),
        _ => json!({"allowed": false, "status": {"message": "no such colour", "reason": "Teapot", "code": 418}}),
    };
    let (cluster, hook) = (cluster().await, Hook::thinking(think).await);
    cluster.configure("Validating", "v", json!([hook.webhook("v.example.com", json!({}))])).await;
    let create = |name: &'static str| cluster.post(CONFIG_MAPS, config_map(name, json!({})));
    let good = create("good").await;
    assert_eq!((good.status, &good.headers["warning"]), (StatusCode::CREATED, &"299 - \"careful\"".parse().expect("a value")));
    assert_eq!(create("plain").await.refusal(), (400, "admission webhook \"v.example.com\" denied the request without explanation"));
    let refused = create("bad").await;
    assert_eq!(refused.refusal(), (418, "admission webhook \"v.example.com\" denied the request: no such colour"));
    assert_eq!((&refused.body["reason"], &refused.body["status"]), (&json!("Teapot"), &json!("Failure")));
    assert_eq!(cluster.get(&format!("{CONFIG_MAPS}/bad")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn subresources_are_sent_as_what_they_are() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    cluster.service_account().await;
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}});
    cluster.post("/apis/apps/v1/namespaces/default/deployments", deployment).await.ok();
    cluster.pod("p", "").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    cluster.post("/api/v1/nodes", node).await.ok();
    cluster.configure("Validating", "all", json!([hook.webhook("all.example.com", json!({"rules": rules}))])).await;
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    cluster.patch(scale, "merge", json!({"spec": {"replicas": 3}})).await.ok();
    cluster.patch(&format!("{PODS}/p/status"), "merge", json!({"status": {"message": "m"}})).await.ok();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    cluster.post(&format!("{PODS}/p/binding"), binding).await.ok();
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    cluster.post("/api/v1/namespaces/default/serviceaccounts/default/token", token).await.ok();
    cluster.get(&format!("{PODS}/p/exec?command=ls&command=-l&stdin=true&container=c")).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    cluster.post(&format!("{PODS}/p/eviction"), eviction).await.ok();
    let table: Vec<String> = hook
        .received()
        .iter()
        .map(|review| &review["request"])
        .map(|request| {
            let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
            let [operation, resource, sub] = ["/operation", "/resource/resource", "/subResource"].map(text);
            let [kind, object, old] = ["/kind/kind", "/object/kind", "/oldObject/kind"].map(text);
            format!("{operation} {resource}/{sub}: {kind} {object} {old} {}", request["options"]["kind"].as_str().unwrap_or("-"))
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"));
    let exec = hook.received().into_iter().find(|review| review["request"]["subResource"] == "exec").expect("asked");
    let wanted = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "container": "c", "command": ["ls", "-l"]});
    assert_eq!(exec["request"]["object"], wanted);
}

#[tokio::test]
async fn an_equivalent_form_is_sent_where_the_rules_name_it() {
    let (cluster, hook) = (cluster().await, Hook::thinking(agree).await);
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}]);
    let equivalent = hook.webhook("equivalent.example.com", json!({"rules": rules}));
    let exact = hook.webhook("exact.example.com", json!({"rules": rules, "matchPolicy": "Exact"}));
    cluster.configure("Validating", "events", json!([equivalent, exact])).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"namespace": "default", "name": "p"}, "reason": "R", "message": "text"});
    cluster.post("/api/v1/namespaces/default/events", event).await.ok();
    let received = hook.received();
    assert_eq!(received.len(), 1, "who wants exact matches is not asked");
    let request = &received[0]["request"];
    assert_eq!(request["kind"], json!({"group": "events.k8s.io", "version": "v1", "kind": "Event"}));
    assert_eq!(request["requestKind"], json!({"group": "", "version": "v1", "kind": "Event"}));
    assert_eq!((&request["object"]["apiVersion"], &request["object"]["note"]), (&json!("events.k8s.io/v1"), &json!("text")));
}

/// A user who registers a webhook that rejects everything must still be able to delete it.
#[tokio::test]
async fn webhooks_are_not_called_for_webhooks() {
    let (cluster, hook) = (cluster().await, Hook::thinking(|_| json!({"allowed": false})).await);
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let all = |name: &str| json!([hook.webhook(name, json!({"rules": rules}))]);
    cluster.configure("Validating", "v", all("v.example.com")).await;
    cluster.configure("Mutating", "m", all("m.example.com")).await;
    assert_eq!(cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await.status, StatusCode::BAD_REQUEST);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    cluster.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review).await.ok();
    cluster.delete(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations/v")).await.ok();
    cluster.delete(&format!("{CONFIGURATIONS}/mutatingwebhookconfigurations/m")).await.ok();
    cluster.config_map("c", json!({})).await;
}
