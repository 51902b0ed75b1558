//! Admission webhooks in practice: behind a Service, registered and triggered with kubectl; and the classification of
//! requests by priority and fairness.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, backend};

const PORT: u16 = 8443;

#[test]
fn webhooks_have_their_say() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    let authority = backend::serve_in(&cluster.net, "hook.default.svc", PORT, None, answer);
    kubectl.apply(&backend::service("hook", &cluster.net.ip, PORT)).ok();
    objects_are_changed_and_rejected(&kubectl, &authority);
    no_webhook_is_called_any_more(&kubectl);
    conditions_decide_which_webhook_is_called(&kubectl, &authority);
    requests_are_sorted(&kubectl);
}

async fn answer(request: Request<Incoming>) -> backend::Answer {
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
    Response::new(Full::from(answer.to_string()))
}

/// Denies red objects, the deletion of precious objects, and exec into `tools`.
fn think(request: &Value) -> Value {
    let denied = |message: &str| json!({"allowed": false, "status": {"message": message, "code": 403, "reason": "Forbidden"}});
    match request["operation"].as_str() {
        Some("DELETE") if request["oldObject"]["data"]["precious"] == "yes" => denied("it is precious"),
        Some("CONNECT") if request["subResource"] == "exec" => denied("tools are for the crew"),
        Some(_) if request["object"]["data"]["colour"] == "red" => denied("red is taken"),
        _ => json!({"allowed": true, "warnings": ["mind the colour"]}),
    }
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

fn objects_are_changed_and_rejected(kubectl: &Kubectl<'_>, authority: &str) {
    // The Pod need not run: admission rejects the connection before the server looks for the Pod's node.
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

fn no_webhook_is_called_any_more(kubectl: &Kubectl<'_>) {
    kubectl.ok("delete mutatingwebhookconfiguration,validatingwebhookconfiguration story");
    kubectl.ok("create configmap rust --from-literal=colour=red");
    kubectl.ok("delete configmap sky rust");
}

/// Only requests that meet a webhook's match conditions reach it. A condition that fails to evaluate causes a
/// rejection.
fn conditions_decide_which_webhook_is_called(kubectl: &Kubectl<'_>, authority: &str) {
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
