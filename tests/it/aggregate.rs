//! An aggregated API server behind skiff's: metrics of nodes and Pods, as `kubectl top` requests them.

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tests::net::Net;
use tests::{Cluster, Kubectl, backend, eventually};

const PORT: u16 = 8445;
/// kubectl's error when the aggregated server is not available.
const UNAVAILABLE: &str = "(ServiceUnavailable): the server is currently unable to handle the request";
const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";

/// Answers as a metrics server does, as far as kubectl asks. It returns the user's name in a header, and returns a node
/// only to members of the group `system:masters`.
async fn answer(request: Request<Incoming>) -> backend::Answer {
    let usage = json!({"cpu": "250m", "memory": "512Mi"});
    let times = |kind: &str, name: &str| {
        json!({"kind": kind, "apiVersion": GROUP_VERSION, "metadata": {"name": name, "namespace": "default"},
            "timestamp": "2026-01-01T00:00:00Z", "window": "10s"})
    };
    let (path, headers) = (request.uri().path(), request.headers());
    let body = match path.strip_prefix("/apis/metrics.k8s.io/v1beta1") {
        Some("") => resources(),
        Some("/nodes") => {
            let mut node = times("NodeMetrics", "node-of-the-story");
            node["usage"] = usage;
            let nodes = if groups(headers).contains(&"system:masters") { vec![node] } else { vec![] };
            json!({"kind": "NodeMetricsList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": nodes})
        }
        Some("/namespaces/default/pods") => {
            let mut pod = times("PodMetrics", "pod-of-the-story");
            pod["containers"] = json!([{"name": "c", "usage": usage}]);
            json!({"kind": "PodMetricsList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": [pod]})
        }
        Some("/whoami") => json!({"user": headers.get("x-remote-user").and_then(|user| user.to_str().ok()), "groups": groups(headers),
            "authorization": headers.contains_key("authorization")}),
        _ => return plain(StatusCode::NOT_FOUND, "404 page not found"),
    };
    let mut response = plain(StatusCode::OK, &body.to_string());
    response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().expect("a value"));
    response
}

fn plain(status: StatusCode, text: &str) -> backend::Answer {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    response
}

fn groups(headers: &HeaderMap) -> Vec<&str> {
    headers.get_all("x-remote-group").iter().filter_map(|group| group.to_str().ok()).collect()
}

fn resources() -> Value {
    let row = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
        "resources": [row("nodes", "NodeMetrics", false), row("pods", "PodMetrics", true)]})
}

#[test]
fn another_server_answers_behind_this_one() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    let proxies = kubectl.json("get configmap extension-apiserver-authentication -n kube-system");
    let authority =
        backend::serve_in(&cluster.net, "metrics.default.svc", PORT, proxies["data"]["requestheader-client-ca-file"].as_str(), answer);
    assert_eq!(proxies["data"]["requestheader-username-headers"], "[\"X-Remote-User\"]");
    assert_eq!(proxies["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    what_is_served_here_is_registered(&kubectl);
    assert!(kubectl.ok("api-resources --api-group=metrics.k8s.io").contains("PodMetrics"));
    a_server_without_a_service_is_not_available(&kubectl, &authority);
    kubectl.apply(&backend::service("metrics", &cluster.net.ip, PORT)).ok();
    it_answers(&kubectl);
    its_rules_are_ours(&kubectl);
    it_goes_away(&kubectl);
    skiff_answers_again(&kubectl);
}

fn what_is_served_here_is_registered(kubectl: &Kubectl<'_>) {
    let all = kubectl.ok("get apiservices");
    let words = |name: &str| -> Vec<String> {
        let line = all.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in\n{all}"));
        line.split_whitespace().take(3).map(str::to_owned).collect()
    };
    assert_eq!(words("NAME"), ["NAME", "SERVICE", "AVAILABLE"]);
    assert_eq!(words("v1.apps "), ["v1.apps", "Local", "True"]);
    assert_eq!(words("v1. "), ["v1.", "Local", "True"]);
}

fn a_server_without_a_service_is_not_available(kubectl: &Kubectl<'_>, authority: &str) {
    kubectl.apply(&backend::api_service("metrics.k8s.io", "v1beta1", "metrics", authority)).ok();
    let service = "apiservice/v1beta1.metrics.k8s.io";
    kubectl.until(service, "/status/conditions/0/reason", "ServiceNotFound");
    assert_eq!(kubectl.field(service, "/status/conditions/0/message"), "service/metrics in \"default\" is not present");
    let away = kubectl.fails("get --raw /apis/metrics.k8s.io/v1beta1/nodes");
    assert!(away.contains(UNAVAILABLE), "{away}");
}

fn it_answers(kubectl: &Kubectl<'_>) {
    kubectl.ok("wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io --timeout=60s");
    assert_eq!(kubectl.field("apiservice/v1beta1.metrics.k8s.io", "/status/conditions/0/reason"), "Passed");
    let line = kubectl.ok("get apiservice v1beta1.metrics.k8s.io --no-headers");
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["v1beta1.metrics.k8s.io", "default/metrics", "True"]);
    let resources = kubectl.ok("api-resources --api-group=metrics.k8s.io");
    assert!(resources.lines().any(|line| line.starts_with("nodes") && line.contains("NodeMetrics")), "{resources}");
    let top = kubectl.ok("top pods --no-headers");
    assert_eq!(top.split_whitespace().collect::<Vec<_>>(), ["pod-of-the-story", "250m", "512Mi"]);
    let listed = kubectl.ok("get nodes.metrics.k8s.io -o name");
    assert_eq!(listed, "nodemetrics.metrics.k8s.io/node-of-the-story\n");
    let who: Value = serde_json::from_str(&kubectl.ok("get --raw /apis/metrics.k8s.io/v1beta1/whoami")).expect("JSON");
    assert_eq!(who["authorization"], false, "{who}");
    assert!(who["groups"].as_array().expect("groups").contains(&json!("system:masters")), "{who}");
}

/// skiff rejects a user without the right. An authorized user reaches the aggregated server, which gets the user's
/// name.
fn its_rules_are_ours(kubectl: &Kubectl<'_>) {
    let refused = kubectl.fails("get nodes.metrics.k8s.io --as=jane");
    assert!(
        refused.contains("nodes.metrics.k8s.io is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"metrics.k8s.io\""),
        "{refused}"
    );
    kubectl.ok("create clusterrole metrics --verb=get,list --resource=nodes.metrics.k8s.io");
    kubectl.ok("create clusterrolebinding metrics --clusterrole=metrics --user=jane");
    assert_eq!(kubectl.ok("get nodes.metrics.k8s.io --as=jane -o name"), "", "the server behind knows that jane is nobody");
}

fn it_goes_away(kubectl: &Kubectl<'_>) {
    kubectl.ok("delete endpointslice metrics-1");
    kubectl.until("apiservice/v1beta1.metrics.k8s.io", "/status/conditions/0/status", "False");
    let away = kubectl.fails("get --raw /apis/metrics.k8s.io/v1beta1/nodes");
    assert!(away.contains(UNAVAILABLE), "{away}");
    // Everything else still works.
    kubectl.ok("get nodes");
    kubectl.ok("delete apiservice v1beta1.metrics.k8s.io");
}

/// Without an APIService of a user, skiff itself answers for the metrics of resources.
fn skiff_answers_again(kubectl: &Kubectl<'_>) {
    eventually("skiff's own APIService", || {
        let line = kubectl.run(&["get", "apiservice", "v1beta1.metrics.k8s.io", "--no-headers"]).stdout;
        let words: Vec<&str> = line.split_whitespace().take(3).collect();
        if words == ["v1beta1.metrics.k8s.io", "Local", "True"] { Ok(()) } else { Err(line) }
    });
    let node = kubectl.ok("get nodes -o jsonpath={.items[0].metadata.name}");
    eventually("metrics of the node", || {
        let ran = kubectl.run(&["top", "nodes", "--no-headers"]);
        if ran.stdout.starts_with(&node) { Ok(()) } else { Err(ran.to_string()) }
    });
}
