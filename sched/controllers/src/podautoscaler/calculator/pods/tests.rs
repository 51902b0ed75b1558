//! Upstream's cases of `groupPods`, with its settings.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_000_000;

fn at(ago: i64) -> Timestamp {
    Timestamp::from_second(NOW - ago).expect("in range")
}

/// A Pod that started and whose readiness changed that long ago.
fn pod(phase: &str, started: Option<i64>, ready: Option<(&str, i64)>) -> Pod {
    let conditions: Vec<Value> =
        ready.iter().map(|(status, ago)| json!({"type": "Ready", "status": status, "lastTransitionTime": at(*ago).to_string()})).collect();
    let started = started.map(|ago| at(ago).to_string());
    serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"phase": phase, "startTime": started, "conditions": conditions}}))
        .expect("a Pod")
}

/// The group of the Pod, whose metric is that old and has that window.
fn group(pod: Pod, metric: Option<(i64, i64)>, resource: &str) -> &'static str {
    let settings = Autoscaling {
        cpu_initialization_period: SignedDuration::from_mins(2),
        initial_readiness_delay: SignedDuration::from_secs(10),
        ..Autoscaling::default()
    };
    let sample = |(ago, window)| PodMetric { timestamp: at(ago), window: SignedDuration::from_secs(window), value: 1 };
    let metrics: PodMetrics = metric.into_iter().map(|metric| ("p".to_owned(), sample(metric))).collect();
    let pods = [Arc::new(pod)];
    let groups = Groups::new(&pods, &metrics, Some(resource), &settings, at(0));
    match (groups.ready, groups.unready.len(), groups.missing.len(), groups.ignored.len()) {
        (1, 0, 0, 0) => "ready",
        (0, 1, 0, 0) => "unready",
        (0, 0, 1, 0) => "missing",
        (0, 0, 0, 1) => "ignored",
        other => panic!("{other:?}"),
    }
}

#[test]
fn readiness_counts_for_cpu_while_a_pod_may_be_starting() {
    let running = |started, ready| pod("Running", started, ready);
    for (name, pod, metric, resource, wanted) in [
        ("memory, without readiness", running(None, None), (0, 60), "memory", "ready"),
        ("never ready", running(Some(0), None), (0, 0), "cpu", "unready"),
        ("never started", running(None, Some(("True", 30))), (0, 0), "cpu", "unready"),
        ("ready, with a fresh metric", running(Some(60), Some(("True", 30))), (0, 30), "cpu", "ready"),
        ("ready, with a metric from before", running(Some(60), Some(("True", 30))), (0, 60), "cpu", "unready"),
        ("not ready any more while starting", running(Some(60), Some(("False", 30))), (0, 0), "cpu", "unready"),
        ("not ready since its start", running(Some(600), Some(("False", 594))), (0, 0), "cpu", "unready"),
        ("ready for long, with an old metric", running(Some(180), Some(("True", 180))), (120, 60), "cpu", "ready"),
        ("not ready any more", running(Some(600), Some(("False", 540))), (0, 0), "cpu", "ready"),
        ("not ready since the delay", running(Some(600), Some(("False", 590))), (0, 0), "cpu", "ready"),
        ("readiness is unknown", running(Some(600), Some(("Unknown", 600))), (0, 0), "cpu", "ready"),
    ] {
        assert_eq!(group(pod, Some(metric), resource), wanted, "{name}");
    }
}

#[test]
fn what_does_not_run_has_no_metric_that_counts() {
    assert_eq!(group(pod("Running", Some(180), None), None, "cpu"), "missing");
    assert_eq!(group(pod("Pending", None, None), None, "cpu"), "unready");
    assert_eq!(group(pod("Pending", None, None), Some((0, 0)), "memory"), "unready");
    for phase in ["Failed", "Succeeded"] {
        assert_eq!(group(pod(phase, None, None), Some((0, 0)), "cpu"), "ignored", "{phase}");
    }
    let mut deleted = pod("Pending", None, None);
    deleted.metadata.deletion_timestamp = Some(meta::whole_seconds(at(0)));
    assert_eq!(group(deleted, Some((0, 0)), "cpu"), "ignored");
}
