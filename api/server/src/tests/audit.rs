//! The events of requests, read back from the audit log's file.

use std::path::PathBuf;

use api_model::request::Attributes;
use futures::{FutureExt, StreamExt};

use super::*;
use crate::{AuditConfig, AuditLog, AuditPolicy};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

struct Audited {
    cluster: Cluster,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

/// Records only requests of admin and jane, not those of the server's own start.
async fn audited(rules: &str) -> Audited {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.log");
    let own = "{level: None, users: [system:apiserver]}";
    let policy = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{own}, {rules}]}}");
    let policy = AuditPolicy::parse(&policy).expect("a good policy");
    let log = AuditLog { path: path.clone(), max_age_days: 0, max_backups: 0, max_size_mb: 100 };
    let config = Config { audit: Some(AuditConfig { policy, log }), ..config() };
    Audited { cluster: cluster_with(config, Arc::new(MemoryStore::new())).await, path, _directory: directory }
}

impl Audited {
    async fn text(&self) -> String {
        self.cluster.server.app().audit.as_ref().expect("audit is on").flush().await;
        std::fs::read_to_string(&self.path).expect("the log")
    }

    async fn events(&self) -> Vec<Value> {
        self.text().await.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"password": "tell-nobody"}})
}

fn values<'a>(events: &'a [Value], field: &str) -> Vec<&'a str> {
    events.iter().map(|event| event.pointer(field).and_then(Value::as_str).unwrap_or_default()).collect()
}

#[tokio::test]
async fn metadata_names_everything_but_the_bodies() {
    let audited = audited("{level: Metadata}").await;
    let cluster = &audited.cluster;
    let request = Request::builder().method(Method::POST).uri(format!("{SECRETS}?fieldManager=me"));
    let request = request.header("audit-id", "id-1").header("user-agent", "tester/1").header("content-type", "application/json");
    let request = request.header("x-forwarded-for", "192.0.2.7, 192.0.2.8");
    json_of(cluster.raw(request.body(Body::from(secret().to_string())).expect("a request")).await).await.ok();
    let text = audited.text().await;
    assert!(!text.contains("tell-nobody") && !text.contains("dGVsbC1ub2JvZHk"), "{text}");
    let events = audited.events().await;
    assert_eq!(values(&events, "/stage"), ["RequestReceived", "ResponseComplete"]);
    let (received, complete) = (&events[0], &events[1]);
    assert_eq!(received["requestReceivedTimestamp"], received["stageTimestamp"]);
    assert!(complete["stageTimestamp"].as_str().is_some_and(|at| at.len() == "2026-01-02T03:04:05.678901Z".len() && at.ends_with('Z')));
    let mut template = complete.clone();
    for field in ["requestReceivedTimestamp", "stageTimestamp"] {
        template[field] = "…".into();
    }
    assert_eq!(
        template,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "id-1", "stage": "ResponseComplete",
            "requestURI": "/api/v1/namespaces/default/secrets?fieldManager=me", "verb": "create",
            "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "sourceIPs": ["192.0.2.7", "192.0.2.8"], "userAgent": "tester/1",
            "objectRef": {"resource": "secrets", "namespace": "default", "name": "x", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "requestReceivedTimestamp": "…", "stageTimestamp": "…",
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
}

#[tokio::test]
async fn bodies_are_recorded_as_far_as_the_rule_says() {
    let rules = "{level: RequestResponse, omitStages: [RequestReceived], verbs: [create, update, patch], resources: [{group: '', resources: [configmaps]}]},
                 {level: Request, omitStages: [RequestReceived], verbs: [create, delete], resources: [{group: '', resources: [secrets]}]}, {level: None}";
    let audited = audited(rules).await;
    let cluster = &audited.cluster;
    let gzip = Request::builder().method(Method::POST).uri(CONFIG_MAPS).header("accept-encoding", "gzip");
    let mut large = config_map("a", json!({"app": "x"}));
    large["data"]["large"] = "x".repeat(200_000).into();
    json_of(cluster.raw(gzip.body(Body::from(large.to_string())).expect("a request")).await).await.ok();
    cluster.patch(&format!("{CONFIG_MAPS}/a"), "merge", json!({"data": {"large": null, "key": "new"}})).await.ok();
    cluster.post(SECRETS, secret()).await.ok();
    cluster.delete(&format!("{SECRETS}/x")).await.ok();
    cluster.get(&format!("{CONFIG_MAPS}/a")).await.ok();
    cluster.get("/version").await.ok();
    let events = audited.events().await;
    assert_eq!(values(&events, "/verb"), ["create", "patch", "create", "delete"]);
    assert_eq!(values(&events, "/objectRef/resource"), ["configmaps", "configmaps", "secrets", "secrets"]);
    assert_eq!(events[0]["requestObject"]["data"]["key"], "value");
    assert_eq!(events[0]["responseObject"]["metadata"]["name"], "a");
    assert_eq!(events[1]["requestObject"], json!({"data": {"large": null, "key": "new"}}));
    assert_eq!(events[1]["responseObject"]["data"], json!({"key": "new"}));
    assert_eq!(events[2]["requestObject"]["stringData"]["password"], "tell-nobody");
    assert_eq!(events[2].get("responseObject"), None);
    assert_eq!(events[3]["responseStatus"]["status"], "Success");
}

#[tokio::test]
async fn denials_and_impersonation_are_recorded() {
    let audited = audited("{level: Metadata, omitStages: [RequestReceived]}").await;
    let cluster = &audited.cluster;
    let request = |bearer: Option<&str>| {
        let request = Request::builder().uri(CONFIG_MAPS);
        let request = match bearer {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request.header("impersonate-user", "jane"),
        };
        request.body(Body::empty()).expect("a request")
    };
    assert_eq!(json_of(cluster.raw(request(None)).await).await.status, StatusCode::FORBIDDEN);
    // Without an in-process identity, as for a request from a connection.
    let response = crate::handle::handle(Arc::clone(cluster.server.app()), request(Some("wrong"))).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let events = audited.events().await;
    let message =
        "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(events[0]["user"]["username"], "admin");
    assert_eq!(events[0]["impersonatedUser"], json!({"username": "jane", "groups": ["system:authenticated"]}));
    assert_eq!(events[0]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[0]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(events[0]["responseStatus"]["message"], message);
    assert_eq!(events[1]["stage"], "ResponseStarted");
    assert_eq!(events[1]["responseStatus"]["code"], 401);
    assert_eq!(events[1]["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn a_watch_has_a_beginning_and_an_end() {
    let audited = audited("{level: RequestResponse, verbs: [watch]}").await;
    let request = Request::builder().uri(format!("{CONFIG_MAPS}?watch=1")).body(Body::empty()).expect("a request");
    let watch = audited.cluster.raw(request).await;
    let stages = |events: &[Value]| values(events, "/stage").into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(stages(&audited.events().await), ["RequestReceived", "ResponseStarted"]);
    drop(watch);
    assert_eq!(stages(&audited.events().await), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn a_panic_is_recorded_and_goes_on() {
    let audited = audited("{level: Metadata, omitStages: [RequestReceived]}").await;
    let (mut parts, ()) = Request::builder().uri("/version").body(()).expect("a request").into_parts();
    let trail = crate::audit::start(audited.cluster.server.app().audit.as_ref(), &mut parts, None).expect("audit is on");
    let attributes = Attributes { verb: "get".to_owned(), path: "/version".to_owned(), ..Attributes::default() };
    trail.begin(Some(&UserInfo::new("admin", &[])), &attributes, &parts).await;
    let request = crate::audit::watched(Some(&trail), async { panic!("on purpose") });
    let ended: Result<(), _> = std::panic::AssertUnwindSafe(request).catch_unwind().await;
    assert!(ended.is_err());
    let events = audited.events().await;
    assert_eq!(values(&events, "/stage"), ["Panic"]);
    assert_eq!(events[0]["responseStatus"]["code"], 500);
}

#[tokio::test]
async fn paths_are_recorded_by_their_rules() {
    let audited = audited("{level: Metadata, omitStages: [RequestReceived], nonResourceURLs: ['/healthz*']}, {level: None}").await;
    audited.cluster.get("/healthz/ping").await.ok();
    audited.cluster.get("/version").await.ok();
    let events = audited.events().await;
    assert_eq!(values(&events, "/requestURI"), ["/healthz/ping"]);
    assert_eq!(events[0].get("objectRef"), None);
    let metrics = audited.cluster.get("/metrics").await.ok();
    assert!(metrics.as_str().is_some_and(|text| text.contains("\napiserver_audit_event_total 1\n")), "{metrics}");
}

/// A backend behind a proxy may send an endless answer, also with an error status.
#[tokio::test]
async fn an_endless_answer_through_a_proxy_is_passed_on_and_not_stored() {
    let audited = audited("{level: RequestResponse}").await;
    super::nodes::with_pod(&audited.cluster, super::nodes::node().await).await;
    let request = Request::builder().uri("/api/v1/nodes/n1/proxy/endless/missing").body(Body::empty()).expect("a request");
    let limit = std::time::Duration::from_secs(20);
    let response = tokio::time::timeout(limit, audited.cluster.raw(request)).await.expect("it is not waited for the end");
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let first = response.into_body().into_data_stream().next().await.expect("some of it").expect("bytes");
    assert!(!first.is_empty());
    let refused = audited.cluster.get("/api/v1/nodes/n2/proxy/").await;
    assert_eq!(refused.refusal(), (404, "nodes \"n2\" not found"));
    let events = audited.events().await;
    let of_nodes: Vec<&Value> = events.iter().filter(|event| event["stage"] == "ResponseStarted").collect();
    assert_eq!(of_nodes[0]["responseStatus"]["code"], 404);
    assert_eq!(of_nodes[0]["responseObject"], Value::Null);
    assert_eq!(of_nodes[1]["responseStatus"]["message"], "nodes \"n2\" not found", "the server's own words are kept");
}
