//! Admission webhooks as somebody runs them: behind a Service, registered and felt by kubectl; and how
//! requests are sorted by priority and fairness.

use std::convert::Infallible;
use std::sync::{Arc, mpsc};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net};
use tokio_rustls::TlsAcceptor;

const PORT: u16 = 8443;

#[test]
fn webhooks_have_their_say() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    let authority = hook_in(&cluster.net);
    behind_a_service(&kubectl, &cluster.net.ip);
    objects_are_changed_and_refused(&kubectl, &authority);
    nobody_is_asked_any_more(&kubectl);
    conditions_decide_who_is_asked(&kubectl, &authority);
    requests_are_sorted(&kubectl);
}

/// Runs a webhook in a namespace for as long as the test; answers its authority's certificate.
fn hook_in(net: &Net) -> String {
    let key = rcgen::generate_simple_self_signed(["hook.default.svc".to_owned()]).expect("a certificate");
    let pem = key.cert.pem();
    let (ready, is_ready) = mpsc::channel();
    let namespace = format!("/run/netns/{}", net.name);
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        let namespace = std::fs::File::open(namespace).expect("the namespace");
        nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).expect("may enter it");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind(("0.0.0.0", PORT)).await.expect("the port is free");
            ready.send(()).expect("the test waits");
            let acceptor = acceptor(key.cert.der().clone(), key.signing_key.serialize_der());
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    // A client may go away at any time.
                    let _ended =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
    });
    is_ready.recv().expect("the webhook listens");
    pem
}

fn acceptor(certificate: CertificateDer<'static>, key: Vec<u8>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key))).expect("a certificate");
    TlsAcceptor::from(Arc::new(config))
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("JSON");
    let mut response = match path.as_str() {
        "/paint" => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"colour": "blue"}}]).to_string();
            json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        _ => think(&review["request"]),
    };
    response["uid"] = review["request"]["uid"].clone();
    let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Ok(Response::new(Full::from(answer.to_string())))
}

/// Nothing red is kept, nothing precious is deleted, nobody looks into `tools`.
fn think(request: &Value) -> Value {
    let denied = |message: &str| json!({"allowed": false, "status": {"message": message, "code": 403, "reason": "Forbidden"}});
    match request["operation"].as_str() {
        Some("DELETE") if request["oldObject"]["data"]["precious"] == "yes" => denied("it is precious"),
        Some("CONNECT") if request["subResource"] == "exec" => denied("tools are for the crew"),
        Some(_) if request["object"]["data"]["colour"] == "red" => denied("red is taken"),
        _ => json!({"allowed": true, "warnings": ["mind the colour"]}),
    }
}

fn behind_a_service(kubectl: &Kubectl<'_>, ip: &str) {
    let yaml = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: hook}}\nspec: {{ports: [{{name: https, port: 443, targetPort: {PORT}}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: hook-1, labels: {{kubernetes.io/service-name: hook}}}}\naddressType: IPv4\n\
         endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}}}]\nports: [{{name: https, port: {PORT}}}]\n"
    );
    kubectl.apply(&yaml).ok();
}

fn configuration(kind: &str, path: &str, authority: &str, rules: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: {kind}WebhookConfiguration\nmetadata: {{name: story}}\nwebhooks:\n\
         - name: story.example.com\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  \
         clientConfig: {{service: {{name: hook, namespace: default, path: {path}}}, caBundle: {}}}\n  rules: [{rules}]\n  \
         namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: default}}}}\n",
        STANDARD.encode(authority)
    )
}

fn objects_are_changed_and_refused(kubectl: &Kubectl<'_>, authority: &str) {
    // It need not run: a connection is refused before anybody looks for its node.
    kubectl.ok("apply -f samples/quickstart/tools.yaml");
    let config_maps = "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}";
    kubectl.apply(&configuration("Mutating", "/paint", authority, config_maps)).ok();
    let all = "{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [configmaps, pods/exec]}";
    kubectl.apply(&configuration("Validating", "/think", authority, all)).ok();
    let made = kubectl.run(&["create", "configmap", "sky", "--from-literal=precious=yes"]);
    assert_eq!((made.code, made.stdout.as_str(), made.stderr.as_str()), (0, "configmap/sky created\n", "Warning: mind the colour\n"));
    assert_eq!(kubectl.field("configmap/sky", "/metadata/labels/colour"), "blue");
    let denied = "admission webhook \"story.example.com\" denied the request: ";
    for (words, why) in [
        ("create configmap rust --from-literal=colour=red", "red is taken"),
        ("create configmap rust --from-literal=colour=red --dry-run=server", "red is taken"),
        ("patch configmap sky -p {\"data\":{\"colour\":\"red\"}}", "red is taken"),
        ("delete configmap sky", "it is precious"),
        ("exec tools -- true", "tools are for the crew"),
    ] {
        let complaint = kubectl.fails(words);
        assert!(complaint.contains(&format!("{denied}{why}")), "{words}: {complaint}");
    }
    kubectl.ok("create namespace elsewhere");
    kubectl.ok("create configmap rust -n elsewhere --from-literal=colour=red");
    let port = "[{\"op\":\"replace\",\"path\":\"/webhooks/0/clientConfig/service/port\",\"value\":444}]";
    kubectl.ok(&format!("patch mutatingwebhookconfiguration story --type=json -p {port}"));
    let away = kubectl.fails("create configmap rust");
    let wanted = "failed calling webhook \"story.example.com\": failed to call webhook: \
                  Post \"https://hook.default.svc:444/paint?timeout=10s\": no service port 444 found for service \"hook\"";
    assert!(away.contains(wanted), "{away}");
}

fn nobody_is_asked_any_more(kubectl: &Kubectl<'_>) {
    kubectl.ok("delete mutatingwebhookconfiguration,validatingwebhookconfiguration story");
    kubectl.ok("create configmap rust --from-literal=colour=red");
    kubectl.ok("delete configmap sky rust");
}

/// Only what meets a webhook's match conditions is asked about; conditions without a value refuse.
fn conditions_decide_who_is_asked(kubectl: &Kubectl<'_>, authority: &str) {
    let config_maps = "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}";
    let with = |condition: &str| {
        format!(
            "{}  matchConditions: [{{name: asked, expression: \"{condition}\"}}]\n",
            configuration("Validating", "/think", authority, config_maps)
        )
    };
    let complaint = kubectl.apply(&with("object.metadata.name")).fails();
    let wanted = "webhooks[0].matchConditions[0].expression: Invalid value: \"object.metadata.name\": must evaluate to bool";
    assert!(complaint.contains(wanted), "{complaint}");
    kubectl.apply(&with("!object.metadata.name.startsWith('free-') && object.data.colour != 'none'")).ok();
    kubectl.ok("create configmap free-rust --from-literal=colour=red");
    assert!(kubectl.fails("create configmap rust --from-literal=colour=red").contains("denied the request: red is taken"));
    let without = kubectl.fails("create configmap plain --from-literal=size=1");
    let wanted = "configmaps \"plain\" is forbidden: expression '!object.metadata.name.startsWith('free-') && object.data.colour != 'none'' \
                  resulted in error: no such key: colour";
    assert!(without.contains(wanted), "{without}");
    let ignore = "[{\"op\":\"replace\",\"path\":\"/webhooks/0/failurePolicy\",\"value\":\"Ignore\"}]";
    kubectl.ok(&format!("patch validatingwebhookconfiguration story --type=json -p {ignore}"));
    kubectl.ok("create configmap plain --from-literal=size=1");
    kubectl.ok("delete validatingwebhookconfiguration story");
    kubectl.ok("delete configmap free-rust plain");
}

fn requests_are_sorted(kubectl: &Kubectl<'_>) {
    let schemas = kubectl.ok("get flowschemas");
    let header = ["NAME", "PRIORITYLEVEL", "MATCHINGPRECEDENCE", "DISTINGUISHERMETHOD", "AGE", "MISSINGPL"];
    assert_eq!(schemas.lines().next().expect("a header").split_whitespace().collect::<Vec<_>>(), header);
    let exempt: Vec<&str> = schemas.lines().find(|line| line.starts_with("exempt ")).expect("there").split_whitespace().collect();
    assert_eq!((exempt[1], exempt[2], exempt[3], exempt[5]), ("exempt", "1", "<none>", "False"));
    let metrics = kubectl.ok("get --raw /metrics");
    let nodes = "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"system-node-high\",priority_level=\"node-high\"} ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(nodes)).expect("nodes ask for their leases");
    assert!(count.parse::<u32>().expect("a number") > 0, "{count}");
    let immutable = kubectl.fails("patch flowschema catch-all --type=merge -p {\"spec\":{\"matchingPrecedence\":9}}");
    assert!(immutable.contains("spec of 'catch-all' must equal the fixed value"), "{immutable}");
}
