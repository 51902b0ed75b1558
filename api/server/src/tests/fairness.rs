//! Priority and fairness from the clients' view.

use std::time::Duration;

use tokio::time::Instant;

use super::*;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn answers_say_which_schema_and_level_they_went_by() {
    let cluster = cluster().await;
    let uid = |list: &Value, name: &str| {
        let item = list["items"].as_array().expect("a list").iter().find(|item| item["metadata"]["name"] == name).expect("there");
        item["metadata"]["uid"].as_str().expect("a uid").to_owned()
    };
    let schemas = cluster.get(&format!("{GROUP}/flowschemas")).await.ok();
    let levels = cluster.get(&format!("{GROUP}/prioritylevelconfigurations")).await.ok();
    assert_eq!((names(&schemas).len(), names(&levels).len()), (13, 8));
    let gone_by = async |user: &str, groups: &[&str], path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        let headers = send(&cluster.user(user, groups), request).await.headers().clone();
        let header = |name: &str| headers[name].to_str().expect("text").to_owned();
        (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"))
    };
    let pods = "/api/v1/namespaces/default/pods";
    let everybody = "system:authenticated";
    for (user, groups, path, schema, level) in [
        ("admin", vec!["system:masters"], pods, "exempt", "exempt"),
        ("jane", vec![everybody], "/readyz", "probes", "exempt"),
        ("jane", vec![everybody], pods, "global-default", "global-default"),
        ("system:node:n", vec!["system:nodes", everybody], "/api/v1/nodes/n", "system-node-high", "node-high"),
        ("system:node:n", vec!["system:nodes", everybody], pods, "system-nodes", "system"),
        ("system:serviceaccount:default:x", vec!["system:serviceaccounts", everybody], pods, "service-accounts", "workload-low"),
        ("system:kube-scheduler", vec![everybody], pods, "kube-scheduler", "workload-high"),
    ] {
        assert_eq!(gone_by(user, &groups, path).await, (uid(&schemas, schema), uid(&levels, level)), "{user} {path}");
    }
}

/// Two users of one priority level with few seats: many requests of one user, and among them single requests of the
/// other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_user_leaves_anothers_latency_near_what_it_was() {
    let mut config = config();
    (config.max_requests_inflight, config.max_mutating_requests_inflight) = (10, 2);
    let server = Server::start(config, Arc::new(MemoryStore::new())).await.expect("starts");
    let hook = super::webhooks::slow_hook(Duration::from_millis(50)).await;
    let admin = server.client(UserInfo::new("admin", &["system:masters", "system:authenticated"]));
    let cluster = Arc::new(Cluster { store: Arc::new(MemoryStore::new()), server, admin });
    cluster.configure_slowness(&hook).await;
    let create = |user: &'static str, name: String| {
        let cluster = Arc::clone(&cluster);
        async move {
            let client = cluster.user(user, &["system:authenticated", "flooders"]);
            let request = Request::builder().method(Method::POST).uri(CONFIG_MAPS).header(header::CONTENT_TYPE, "application/json");
            let start = Instant::now();
            let status =
                send(&client, request.body(Body::from(config_map(&name, json!({})).to_string())).expect("a request")).await.status();
            (status, start.elapsed())
        }
    };
    let alone = create("jane", "alone".to_owned()).await;
    assert_eq!(alone.0, StatusCode::CREATED);
    let flooding: Vec<_> = (0..200).map(|n| tokio::spawn(create("flood", format!("flood-{n}")))).collect();
    let mut waited = Vec::new();
    for n in 0..10 {
        let (status, took) = create("jane", format!("jane-{n}")).await;
        assert_eq!(status, StatusCode::CREATED);
        waited.push(took);
    }
    let mut flood = Vec::new();
    for request in flooding {
        let (status, took) = request.await.expect("no panic");
        assert!(matches!(status, StatusCode::CREATED | StatusCode::TOO_MANY_REQUESTS));
        flood.push(took);
    }
    waited.sort();
    flood.sort();
    let (jane, flood) = (waited[waited.len() / 2], flood[flood.len() / 2]);
    assert!(jane * 3 < flood, "jane {jane:?}, alone {:?}, the flood {flood:?}", alone.1);
}

#[tokio::test]
async fn rejected_requests_get_retry_after_and_are_counted() {
    let mut config = config();
    (config.max_requests_inflight, config.max_mutating_requests_inflight) = (1, 0);
    let server = Server::start(config, Arc::new(MemoryStore::new())).await.expect("starts");
    let admin = server.client(UserInfo::new("admin", &["system:masters", "system:authenticated"]));
    let cluster = Cluster { store: Arc::new(MemoryStore::new()), server, admin };
    // Without the levels that lend seats, the requests that match only the last schema have its one seat.
    for level in ["global-default", "workload-low", "workload-high"] {
        cluster.delete(&format!("{GROUP}/prioritylevelconfigurations/{level}")).await.ok();
    }
    let hook = super::webhooks::slow_hook(Duration::from_secs(1)).await;
    cluster.configure_slowness(&hook).await;
    let jane = cluster.user("jane", &["system:authenticated", "flooders"]);
    let request = || {
        let request = Request::builder().method(Method::POST).uri(CONFIG_MAPS).header(header::CONTENT_TYPE, "application/json");
        request.body(Body::from(config_map("c", json!({})).to_string())).expect("a request")
    };
    let sits = tokio::spawn({
        let (jane, request) = (jane.clone(), request());
        async move { send(&jane, request).await.status() }
    });
    hook.was_called().await;
    let refused = json_of(send(&jane, request()).await).await;
    assert_eq!(refused.refusal(), (429, "Too many requests, please try again later."));
    assert_eq!((&refused.headers["retry-after"], &refused.body["reason"]), (&"1".parse().expect("a value"), &json!("TooManyRequests")));
    assert_eq!(sits.await.expect("no panic"), StatusCode::CREATED);
    let metrics = cluster.get("/metrics").await.ok();
    let metrics = metrics.as_str().expect("text");
    let labels = "flow_schema=\"catch-all\",priority_level=\"catch-all\"";
    for line in [
        format!("apiserver_flowcontrol_rejected_requests_total{{{labels},reason=\"concurrency-limit\"}} 1"),
        format!("apiserver_flowcontrol_dispatched_requests_total{{{labels}}} 1"),
        format!("apiserver_flowcontrol_current_executing_requests{{{labels}}} 0"),
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"catch-all\"} 1".to_owned(),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

/// Mandatory objects are created again, and priority levels may come and go.
#[tokio::test]
async fn the_configuration_stays_whole() {
    let cluster = cluster().await;
    let dangling = async |schema: &str, status: &str| {
        let path = format!("{GROUP}/flowschemas/{schema}");
        for _ in 0..200 {
            let found = cluster.get(&path).await;
            if found.body.pointer("/status/conditions/0/status").is_some_and(|found| found == status) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{schema} is not {status}");
    };
    dangling("global-default", "False").await;
    cluster.delete(&format!("{GROUP}/prioritylevelconfigurations/global-default")).await.ok();
    dangling("global-default", "True").await;
    cluster.delete(&format!("{GROUP}/flowschemas/catch-all")).await.ok();
    dangling("catch-all", "False").await;
    let schema = cluster.get(&format!("{GROUP}/flowschemas/catch-all")).await.ok();
    assert_eq!(schema["spec"]["matchingPrecedence"], 10_000);
}

/// A watch occupies a seat only until it has started.
#[tokio::test]
async fn watches_do_not_hold_seats() {
    let mut config = config();
    (config.max_requests_inflight, config.max_mutating_requests_inflight) = (1, 0);
    let server = Server::start(config, Arc::new(MemoryStore::new())).await.expect("starts");
    let user = server.client(UserInfo::new("system:kube-scheduler", &["system:authenticated"]));
    let mut watches = Vec::new();
    for _ in 0..5 {
        let request = Request::builder().uri("/api/v1/nodes?watch=true").body(Body::empty()).expect("a request");
        let watch = send(&user, request).await;
        assert_eq!(watch.status(), StatusCode::OK);
        watches.push(watch);
    }
}
