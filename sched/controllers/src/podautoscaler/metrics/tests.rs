//! The client against answers like those of a metrics server and of adapters.

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// A client whose server answers these paths. Others it does not have.
fn metrics(answers: Vec<(&'static str, u16, Value)>) -> Metrics {
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().to_string();
        let answer = answers.iter().find(|(of, ..)| *of == path).map(|(_, code, body)| (*code, body.clone()));
        async move {
            let (code, body) = answer.unwrap_or((404, json!("404 page not found")));
            // Text where a server has no Status.
            let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            Response::builder().status(code).body(Body::from(text.into_bytes()))
        }
    });
    let client = kube::Client::new(service, "default");
    Metrics::new(client.clone(), Arc::new(Resources::new(client)), Default::default())
}

fn groups(versions: &[&str]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|version| json!({"groupVersion": format!("custom.metrics.k8s.io/{version}"), "version": version})).collect();
    json!({"kind": "APIGroupList", "groups": [{"name": "custom.metrics.k8s.io", "versions": versions}]})
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).expect("a selector")
}

fn labels(key: &str, value: &str) -> LabelSelector {
    serde_json::from_value(json!({"matchLabels": {key: value}})).expect("a selector")
}

const PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=app%3Dweb";

fn usage() -> Metrics {
    let container = |name: &str, cpu: &str| json!({"name": name, "usage": {"cpu": cpu, "memory": "1Mi"}});
    let pod = |name: &str, containers: Value| json!({"metadata": {"name": name}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s", "containers": containers});
    let bare = json!({"name": "b", "usage": {"memory": "1Mi"}});
    let items = [
        pod("p", json!([container("a", "250m"), container("b", "1")])),
        pod("q", json!([container("a", "100m"), bare])),
        pod("r", json!([])),
    ];
    metrics(vec![(PODS, 200, json!({"kind": "PodMetricsList", "items": items}))])
}

fn values(metrics: PodMetrics) -> Vec<(String, i64)> {
    metrics.into_iter().map(|(pod, metric)| (pod, metric.value)).collect()
}

#[tokio::test]
async fn the_use_of_a_pod_is_the_sum_of_its_containers() {
    let metrics = usage();
    let all = metrics.resource("ns", &selector("app=web"), "cpu", None).await.expect("metrics");
    let first = all["p"];
    assert_eq!((first.timestamp.to_string().as_str(), first.window), ("2026-01-01T00:00:00Z", SignedDuration::from_secs(30)));
    assert_eq!(values(all), [("p".to_owned(), 1250)], "the others lack the metric of a container");
    let one = metrics.resource("ns", &selector("app=web"), "cpu", Some("a")).await.expect("metrics");
    assert_eq!(values(one), [("p".to_owned(), 250), ("q".to_owned(), 100)]);
    let memory = metrics.resource("ns", &selector("app=web"), "memory", None).await.expect("metrics");
    assert_eq!(values(memory)[0].1, 2 * 1024 * 1024 * 1000);
}

#[tokio::test]
async fn a_failure_has_the_words_of_client_go() {
    let failing = |code: u16, body: Value| metrics(vec![(PODS, code, body)]);
    let status =
        |message: &str, code: u16| json!({"kind": "Status", "status": "Failure", "reason": "Some", "message": message, "code": code});
    let (unserved, forbidden) = ("the server could not find the requested resource", "pods.metrics.k8s.io is forbidden");
    for (name, metrics, wanted) in [
        ("not served", metrics(vec![]), "the server could not find the requested resource (get pods.metrics.k8s.io)"),
        (
            "not served, in a Status",
            failing(404, status(unserved, 404)),
            "the server could not find the requested resource (get pods.metrics.k8s.io)",
        ),
        (
            "away",
            failing(503, json!("service unavailable\n")),
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
        ),
        ("forbidden", failing(403, status(forbidden, 403)), forbidden),
    ] {
        let error = metrics.resource("ns", &selector("app=web"), "cpu", None).await.expect_err(name);
        assert_eq!(error.to_string(), format!("unable to fetch metrics from resource metrics API: {wanted}"), "{name}");
    }
    let empty = metrics(vec![(PODS, 200, json!({"items": []}))]);
    let error = empty.resource("ns", &selector("app=web"), "cpu", None).await.expect_err("empty");
    assert_eq!(error.to_string(), "no metrics returned from resource metrics API");
}

#[tokio::test]
async fn custom_metrics_are_read_in_the_version_that_is_served() {
    let item = |name: &str, window: &str| json!({"describedObject": {"kind": "Pod", "name": name}, "timestamp": "2026-01-01T00:00:00Z", window: 10, "value": "1500m"});
    for (versions, version, window) in
        [(&["v1beta2", "v1beta1"][..], "v1beta2", "windowSeconds"), (&["v1alpha1", "v1beta1"], "v1beta1", "window")]
    {
        let path = format!(
            "/apis/custom.metrics.k8s.io/{version}/namespaces/ns/pods/*/rps?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET"
        );
        let list = json!({"items": [item("p", window), item("q", "unknown")]});
        let metrics = metrics(vec![("/apis", 200, groups(versions)), (Box::leak(path.into_boxed_str()), 200, list)]);
        let all = metrics.pods("ns", &selector("app=web"), "rps", Some(&labels("verb", "GET"))).await.expect("metrics");
        assert_eq!((all["p"].window.as_secs(), all["q"].window.as_secs(), all["p"].value), (10, 60, 1500), "{version}");
    }
    for (versions, wanted) in
        [(&["v1alpha1"][..], "no known available metric versions found"), (&[], "no known available metric versions found")]
    {
        let error = metrics(vec![("/apis", 200, groups(versions))]).pods("ns", &selector("a"), "rps", None).await.expect_err("no version");
        assert_eq!(error.to_string(), format!("unable to fetch metrics from custom metrics API: {wanted}"));
    }
    let none = metrics(vec![("/apis", 200, json!({"kind": "APIGroupList", "groups": []}))]);
    let error = none.pods("ns", &selector("a"), "rps", None).await.expect_err("no group");
    assert!(error.to_string().ends_with("no custom metrics API (custom.metrics.k8s.io) registered"), "{error}");
}

#[tokio::test]
async fn an_object_has_one_value() {
    let value = |value: &str| json!({"describedObject": {"kind": "Ingress", "name": "front"}, "timestamp": null, "value": value});
    let discovery = |group: &str, resource: &str, kind: &str| {
        json!({"items": [{"metadata": {"name": group}, "versions": [{"version": "v1", "resources": [
            {"resource": resource, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": ["get"]}]}]}]})
    };
    let base = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns";
    let path = |rest: &str| -> &'static str { Box::leak(format!("{base}/{rest}").into_boxed_str()) };
    let mut groups = groups(&["v1beta2"]);
    // One answer serves both forms of discovery here.
    groups["items"] = discovery("networking.k8s.io", "ingresses", "Ingress")["items"].clone();
    let metrics = metrics(vec![
        ("/apis", 200, groups),
        ("/api", 200, json!({"items": []})),
        (path("ingresses.networking.k8s.io/front/rps"), 200, json!({"items": [value("2k")]})),
        (path("ingresses.networking.k8s.io/two/rps"), 200, json!({"items": [value("1"), value("2")]})),
        (path("metrics/rps"), 200, json!({"items": [value("7")]})),
    ]);
    let object = |version: &str, kind: &str, name: &str| -> k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference {
        serde_json::from_value(json!({"apiVersion": version, "kind": kind, "name": name})).expect("a reference")
    };
    let ingress = object("networking.k8s.io/v1", "Ingress", "front");
    assert_eq!(metrics.object("ns", &ingress, "rps", None).await, Ok(2_000_000));
    assert_eq!(metrics.object("ns", &object("v1", "Namespace", "any"), "rps", None).await, Ok(7_000));
    let error = metrics.object("ns", &object("networking.k8s.io/v1", "Ingress", "two"), "rps", None).await.expect_err("two values");
    assert!(error.to_string().ends_with("the custom metrics API server returned 2 results when we asked for exactly one"), "{error}");
    let error = metrics.object("ns", &object("x.io/v1", "Thing", "t"), "rps", None).await.expect_err("no such kind");
    assert!(
        error.to_string().ends_with("unable to map kind Thing.x.io to resource: no matches for kind \"Thing\" in group \"x.io\""),
        "{error}"
    );
    let error = metrics.object("ns", &object("networking.k8s.io/v1", "Ingress", "none"), "rps", None).await.expect_err("no such object");
    let text = "the server could not find the requested resource (get ingresses.networking.k8s.io.custom.metrics.k8s.io none)";
    assert!(error.to_string().ends_with(text), "{error}");
}

#[tokio::test]
async fn an_external_metric_has_any_number_of_values() {
    let base = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/queue";
    let filtered: &'static str = Box::leak(format!("{base}?labelSelector=name%3Djobs").into_boxed_str());
    let value = |value: &str| json!({"metricName": "queue", "value": value});
    let metrics = metrics(vec![(base, 200, json!({"items": [value("1"), value("500m")]})), (filtered, 200, json!({"items": []}))]);
    assert_eq!(metrics.external("ns", "queue", None).await, Ok(vec![1000, 500]));
    assert_eq!(metrics.external("ns", "queue", Some(&labels("name", "jobs"))).await, Err(MetricsError::Empty("external")));
}

#[test]
fn amounts_are_thousandths() {
    let milli = |text: &str| milli(&Quantity(text.to_owned()));
    assert_eq!((milli("1500m"), milli("2k"), milli("1n"), milli("1e30"), milli("-1e30")), (1500, 2_000_000, 1, i64::MAX, i64::MIN));
}
