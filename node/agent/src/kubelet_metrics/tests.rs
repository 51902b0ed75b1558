//! The text of everything that is counted, and the labels.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::container::Role;

fn text(metrics: &KubeletMetrics) -> String {
    let mut families = Families::default();
    metrics.add_to(&mut families);
    families.text()
}

fn pod(resources: Value) -> Pod {
    serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})).expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn the_text_is_a_kubelets() {
    let metrics = std::sync::Arc::new(KubeletMetrics::default());
    let ms = Duration::from_millis;
    metrics.pods.worker_started(2, ms(3));
    [true, false].into_iter().for_each(|is_made| metrics.pods.sandbox_started(is_made));
    for (role, result) in
        [(Role::Main, Ok(())), (Role::Sidecar, Ok(())), (Role::Main, Err("ErrImagePull")), (Role::Ephemeral, Err("RunContainerError"))]
    {
        metrics.pods.container_started(role, result);
    }
    metrics.pods.runs(ms(1_500));
    metrics.pods.is_reported_started(ms(7_000), ms(4_500));
    metrics.pods.synced(SyncType::Create, ms(40));
    metrics.pods.synced(SyncType::Update, ms(1));
    metrics.pods.status_synced(ms(60));
    metrics.pods.static_pod_restarted();
    metrics.pods.orphaned(2);
    metrics.operations.add(Operation::CreateContainer, ms(10), true);
    metrics.operations.add(Operation::CreateContainer, ms(20), false);
    metrics.pulled(200 * MIB, ms(12_000));
    metrics.images_collected(3);
    metrics.evicted("memory.available");
    ["OutOfcpu", "NodePorts", "SELinux"].into_iter().for_each(|reason| metrics.rejected(reason));
    metrics
        .resizes
        .requested(&pod(json!({"requests": {"cpu": "1"}})), &pod(json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Mi"}})));
    metrics.resizes.infeasible("insufficient_node_allocatable");
    metrics.resizes.carried_out(ms(60), true);
    let exec = InflightRequest::begin(metrics.clone(), "POST", "/exec/ns/pod/c");
    drop(InflightRequest::begin(metrics.clone(), "GET", "/pods"));
    insta::assert_snapshot!(text(&metrics));
    drop(exec);
    let idle = "kubelet_http_inflight_requests{long_running=\"true\",method=\"POST\",path=\"exec\",server_type=\"readwrite\"} 0";
    assert!(text(&metrics).lines().any(|line| line == idle), "{}", text(&metrics));
}

#[test]
fn an_image_has_the_label_of_its_size() {
    for (bytes, label) in [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 * MIB, "0-10MB"),
        (10 * MIB + 1, "10MB-100MB"),
        (500 * MIB + 1, "500MB-1GB"),
        (15 * GIB, "10GB-20GB"),
        (200 * GIB, "GT100GB"),
    ] {
        assert_eq!(image_size(bytes), label, "{bytes}");
    }
}

#[test]
fn a_resize_is_counted_by_what_changes() {
    let metrics = KubeletMetrics::default();
    let limits = |memory: Value| pod(json!({"limits": memory}));
    let (none, small, large) = (json!({}), json!({"memory": "1Mi"}), json!({"memory": "2Mi"}));
    for (before, after) in [(&none, &small), (&small, &large), (&large, &small), (&small, &none), (&small, &json!({"memory": "1024Ki"}))] {
        metrics.resizes.requested(&limits(before.clone()), &limits(after.clone()));
    }
    let text = text(&metrics);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("kubelet_container_requested_resizes_total")).collect();
    let line = |operation: &str| {
        format!("kubelet_container_requested_resizes_total{{operation=\"{operation}\",requirement=\"limits\",resource=\"memory\"}} 1")
    };
    assert_eq!(lines, ["add", "decrease", "increase", "remove"].map(line));
}

#[tokio::test]
async fn an_operation_that_fails_is_an_error_and_one_that_is_dropped_is_nothing() {
    let operations = RuntimeOperations::default();
    let never = operations.measure(Operation::PullImage, std::future::pending::<Result<(), ()>>());
    assert!(futures::FutureExt::now_or_never(never).is_none());
    assert_eq!(operations.measure(Operation::Exec, async { Err::<(), _>(7) }).await, Err(7));
    let mut families = Families::default();
    operations.add_to(&mut families);
    let text = families.text();
    assert!(!text.contains("pull_image"), "{text}");
    for family in ["kubelet_runtime_operations_total", "kubelet_runtime_operations_errors_total"] {
        assert!(text.contains(&format!("\n{family}{{operation_type=\"exec\"}} 1\n")), "{text}");
    }
}
