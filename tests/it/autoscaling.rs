//! kubectl with an autoscaler and an aggregated metrics server. No node runs here: the story makes a Pod run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use serde_json::{Value, json};
use tests::net::Net;
use tests::{Cluster, Kubectl, backend, eventually};

const PORT: u16 = 8446;

/// A metrics server that knows one Pod.
fn answer(request: &Request<Incoming>, pod: &str, cpu_milli: u32) -> Value {
    let usage = json!({"cpu": format!("{cpu_milli}m"), "memory": "8Mi"});
    let metrics = json!({"metadata": {"name": pod, "namespace": "default"}, "timestamp": "2026-01-01T01:00:00Z", "window": "15s",
        "containers": [{"name": "c", "usage": usage}]});
    match request.uri().path() {
        "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods" => {
            json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [metrics]})
        }
        _ => {
            let pods = json!({"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"]});
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [pods]})
        }
    }
}

/// Serves the metrics of a Pod; the result sets its use of CPU.
fn serve(cluster: &Cluster, pod: &str) -> Arc<AtomicU32> {
    let cpu = Arc::new(AtomicU32::new(200));
    let (pod, shared) = (pod.to_owned(), Arc::clone(&cpu));
    let serving = move |request: Request<Incoming>| {
        let body = answer(&request, &pod, shared.load(Ordering::SeqCst)).to_string();
        let response = Response::builder().header(CONTENT_TYPE, "application/json").body(Full::from(body));
        std::future::ready(response.expect("a response"))
    };
    let authority = backend::serve_in(&cluster.net, "metrics.default.svc", PORT, None, serving);
    let kubectl = cluster.kubectl();
    kubectl.apply(&backend::service("metrics", &cluster.net.ip, PORT)).ok();
    kubectl.apply(&backend::api_service("metrics.k8s.io", "v1beta1", "metrics", &authority)).ok();
    kubectl.ok("wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io --timeout=60s");
    cpu
}

#[test]
fn a_deployment_is_autoscaled() {
    let stabilization = "--horizontal-pod-autoscaler-downscale-stabilization=15s";
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--horizontal-pod-autoscaler-sync-period=1s", stabilization]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    kubectl.apply(&web.to_string()).ok();
    let pod = a_running_pod(&kubectl);
    let none = kubectl.fails("top nodes");
    assert!(none.contains("metrics not available yet"), "{none}");
    let cpu = serve(&cluster, &pod);

    let made = kubectl.ok("autoscale deployment web --min=1 --max=3 --cpu-percent=50");
    assert_eq!(made, "horizontalpodautoscaler.autoscaling/web autoscaled\n");
    kubectl.until("deployment/web", "/spec/replicas", 3);
    kubectl.until("hpa/web", "/status/desiredReplicas", 3);
    let listed = kubectl.ok("get hpa web");
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]);
    assert_eq!(rows[1][..6], ["web", "Deployment/web", "cpu:", "200%/50%", "1", "3"], "{listed}");
    let described = until_described(&kubectl, "SuccessfulRescale");
    for words in [
        "Reference: Deployment/web",
        "resource cpu on pods (as a percentage of request): 200% (200m) / 50%",
        "AbleToScale True",
        "ScalingActive True ValidMetricFound the HPA was able to successfully calculate a replica count from cpu resource utilization",
        "ScalingLimited True TooManyReplicas the desired replica count is more than the maximum replica count",
        "ScaledToZero False NotScaledToZero the HPA controller did not scale the workload to zero",
        "horizontal-pod-autoscaler New size: 3; reason: cpu resource utilization (percentage of request) above target",
    ] {
        assert!(described.contains(words), "{words:?} in\n{described}");
    }

    // The proposals of the last seconds hold the replicas.
    cpu.store(10, Ordering::SeqCst);
    until_described(&kubectl, "AbleToScale True ScaleDownStabilized");
    assert_eq!(kubectl.field("deployment/web", "/spec/replicas"), 3);
    kubectl.until("deployment/web", "/spec/replicas", 1);
    until_described(&kubectl, "horizontal-pod-autoscaler New size: 1; reason: All metrics below target");
}

/// Waits for the Deployment's Pod, and makes it run; returns its name.
fn a_running_pod(kubectl: &Kubectl<'_>) -> String {
    let pod = eventually("a Pod", || {
        let name = kubectl.ok("get pods -l app=web -o jsonpath={.items[*].metadata.name}");
        if name.is_empty() { Err(name) } else { Ok(name) }
    });
    let long_ago = "2026-01-01T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": long_ago});
    let status = json!({"status": {"phase": "Running", "startTime": long_ago, "conditions": [ready]}}).to_string();
    kubectl.run(&["patch", "pod", &pod, "--subresource=status", "--type=merge", "-p", &status]).ok();
    pod
}

/// What kubectl describes, with single spaces, as soon as it has these words.
fn until_described(kubectl: &Kubectl<'_>, words: &str) -> String {
    eventually(words, || {
        let described = kubectl.ok("describe hpa web");
        let text = described.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.contains(words) { Ok(text) } else { Err(described) }
    })
}
