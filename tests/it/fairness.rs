//! Priority and fairness with the real kubectl: one user's flood delays only its own requests.

use std::process::{Child, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use tests::net::Net;
use tests::{Cluster, Kubectl, backend, eventually};
use tokio::sync::Semaphore;

const PORT: u16 = 8443;
/// Number of simultaneous requests: more than the seats and the queue of their level.
const FLOOD: usize = 12;
/// Holds the flood's requests: the webhook answers when it gets a permit.
static GATE: Semaphore = Semaphore::const_new(0);

/// A level with few seats and one queue of length one, for one user.
const LEVEL: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: narrow}
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 1
    lendablePercent: 0
    borrowingLimitPercent: 0
    limitResponse: {type: Queue, queuing: {queues: 1, handSize: 1, queueLengthLimit: 1}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: mob}
spec:
  priorityLevelConfiguration: {name: narrow}
  matchingPrecedence: 500
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: User, user: {name: mob}}]
    resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], clusterScope: true}]
";

#[test]
fn a_flood_waits_for_itself_alone() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    let authority = backend::serve_in(&cluster.net, "127.0.0.1", PORT, None, answer);
    kubectl.apply(&webhook(&authority)).ok();
    kubectl.apply(LEVEL).ok();
    kubectl.ok("create clusterrolebinding writers --clusterrole=edit --user=mob --user=alice");
    eventually("the level is there for the flow", || {
        let missing = kubectl.field("flowschema/mob", "/status/conditions/0/status");
        if missing == "False" { Ok(()) } else { Err(missing.to_string()) }
    });

    let flood: Vec<Child> = (0..FLOOD).map(|n| writes(&kubectl, n)).collect();
    eventually("the queue is full", || {
        let refused = metric(&kubectl, "rejected_requests_total", ",reason=\"queue-full\"");
        let waiting = metric(&kubectl, "current_inqueue_requests", "");
        let (Some(refused @ 1..), Some(1)) = (refused, waiting) else { return Err(format!("{refused:?} {waiting:?}")) };
        Ok(refused)
    });
    // Meanwhile no other request waits: neither the administrator's, which are exempt, nor those of another flow.
    kubectl.ok("create configmap of-the-administrator");
    kubectl.ok("create configmap of-alice --as=alice");
    let made = kubectl.ok("get configmaps --as=alice -o name");
    assert!(made.contains("configmap/of-alice") && !made.contains("configmap/flood-"), "the flood still waits: {made}");

    GATE.add_permits(FLOOD);
    // A rejected client got a Retry-After, and its retry succeeded.
    for (n, child) in flood.into_iter().enumerate() {
        let ended = child.wait_with_output().expect("kubectl ends");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{n}: {said}");
    }
    let made = kubectl.ok("get configmaps -o name");
    assert_eq!(made.lines().filter(|name| name.starts_with("configmap/flood-")).count(), FLOOD, "{made}");
    assert_eq!(metric(&kubectl, "current_executing_requests", ""), Some(0));
}

async fn answer(request: Request<Incoming>) -> backend::Answer {
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("JSON");
    GATE.acquire().await.expect("never closed").forget();
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    Response::new(Full::from(answer.to_string()))
}

fn webhook(authority: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: slow}}\nwebhooks:\n\
         - name: slow.example.com\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  timeoutSeconds: 30\n  \
         clientConfig: {{url: 'https://127.0.0.1:{PORT}/', caBundle: {}}}\n  \
         rules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}}]\n  \
         matchConditions: [{{name: of-the-flood, expression: \"request.name.startsWith('flood-')\"}}]\n",
        STANDARD.encode(authority)
    )
}

/// One request of the flood, by the real kubectl, which follows Retry-After.
fn writes(kubectl: &Kubectl<'_>, n: usize) -> Child {
    let name = format!("flood-{n}");
    let mut command = kubectl.command(&["create", "configmap", &name, "--as=mob"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("kubectl runs")
}

/// A metric of the flow.
fn metric(kubectl: &Kubectl<'_>, name: &str, more: &str) -> Option<u64> {
    let metrics = kubectl.ok("get --raw /metrics");
    let line = format!("apiserver_flowcontrol_{name}{{flow_schema=\"mob\",priority_level=\"narrow\"{more}}} ");
    metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok())
}
