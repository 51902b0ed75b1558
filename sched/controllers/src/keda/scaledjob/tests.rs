//! Tables of the calculation and of the Jobs.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::demand::{Decision, Demand, JOBS_AT_ONCE_MAX, Running};
use super::jobs;
use crate::keda::kinds::ScaledJob;
use crate::keda::spec::ScaledJobSpec;
use crate::keda::triggers::Sample;

fn spec(value: Value) -> ScaledJobSpec {
    serde_json::from_value(value).expect("a spec")
}

/// Queues of these lengths, with five entries for a Job.
fn demand(spec: &ScaledJobSpec, lengths: &[i64]) -> Demand {
    let mut demand = Demand::default();
    for &length in lengths {
        demand.add(Sample { milli: length * 1_000, is_active: length > 0 }, Some(("AverageValue", 5_000)), spec.max());
    }
    demand
}

fn running(jobs: i64, pending: i64) -> Running {
    Running { jobs, pending }
}

#[test]
fn the_strategies_are_upstreams() {
    let custom = json!({"strategy": "custom", "customScalingQueueLengthDeduction": 1, "customScalingRunningJobPercentage": "0.5"});
    let broken = json!({"strategy": "custom", "customScalingRunningJobPercentage": "half"});
    let max = |max: i32, strategy: &Value| json!({"maxReplicaCount": max, "scalingStrategy": strategy});
    let [default, accurate, eager] = ["default", "accurate", "eager"].map(|name| json!({"strategy": name}));
    for (value, length, run, jobs) in [
        (max(100, &default), 0, running(0, 0), 0),
        (max(100, &default), 1, running(0, 0), 1),
        (max(100, &default), 50, running(0, 0), 10),
        (max(100, &default), 50, running(4, 1), 6),
        (max(100, &default), 50, running(10, 0), 0),
        (max(3, &default), 50, running(0, 0), 3),
        (max(3, &default), 50, running(5, 0), 0),
        (max(100, &custom), 50, running(4, 0), 7),
        (max(100, &broken), 50, running(4, 0), 6),
        (max(100, &accurate), 50, running(4, 1), 9),
        (max(12, &accurate), 50, running(4, 1), 8),
        (max(12, &accurate), 50, running(4, 4), 6),
        (max(20, &eager), 50, running(4, 1), 10),
        (max(12, &eager), 50, running(4, 1), 7),
        (json!({"minReplicaCount": 2}), 0, running(0, 0), 2),
        (json!({"minReplicaCount": 2}), 0, running(2, 0), 0),
        (json!({"minReplicaCount": 2}), 50, running(2, 0), 10),
        (json!({"minReplicaCount": 9, "maxReplicaCount": 4}), 0, running(0, 0), 4),
        (json!({"maxReplicaCount": 1_000_000}), 5_000_000, running(0, 0), JOBS_AT_ONCE_MAX),
    ] {
        let spec = spec(value.clone());
        let is_active = length > 0 || spec.min() > 0;
        assert_eq!(demand(&spec, &[length]).decide(&spec, run), Decision { is_active, jobs }, "{value} {length} {run:?}");
    }
}

#[test]
fn several_triggers_count_together() {
    for (calculation, jobs) in [("", 8), ("max", 8), ("min", 2), ("avg", 5), ("sum", 10)] {
        let spec = spec(json!({"scalingStrategy": {"multipleScalersCalculation": calculation}}));
        let decision = demand(&spec, &[10, 0, 40]).decide(&spec, Running::default());
        assert_eq!(decision, Decision { is_active: true, jobs }, "{calculation}");
        let decision = demand(&spec, &[0, 0]).decide(&spec, Running::default());
        assert_eq!(decision, Decision { is_active: false, jobs: 0 }, "{calculation}");
    }
}

fn scaled_job() -> ScaledJob {
    serde_json::from_value(json!({"metadata": {"name": "work", "namespace": "default", "uid": "u", "generation": 3,
        "labels": {"team": "a", "secret": "b"},
        "annotations": {"note": "x", "scaledjob.keda.sh/job-excluded-labels": "secret", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}}))
    .expect("a ScaledJob")
}

#[test]
fn a_job_has_upstreams_labels_and_annotations() {
    let template = json!({"template": {"metadata": {"labels": {"own": "y"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}});
    let job = json!(jobs::job(&scaled_job(), &template).expect("a Job"));
    let metadata = &job["metadata"];
    assert_eq!(metadata["generateName"], "work-");
    assert_eq!(metadata["ownerReferences"][0]["kind"], "ScaledJob");
    let labels = ["app.kubernetes.io/managed-by", "scaledjob.keda.sh/name", "team", "secret"].map(|name| metadata["labels"][name].clone());
    assert_eq!(labels, [json!("keda-operator"), json!("work"), json!("a"), Value::Null]);
    assert_eq!(
        metadata["annotations"],
        json!({"note": "x", "scaledjob.keda.sh/job-excluded-labels": "secret", "scaledjob.keda.sh/generation": "3"})
    );
    let template = &job["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], json!({"own": "y", "scaledjob.keda.sh/name": "work"}));
    assert_eq!(template["spec"]["restartPolicy"], "OnFailure");
    assert!(jobs::job(&scaled_job(), &json!({"template": {"spec": {"containers": 7}}})).is_err());
}

fn stored(name: &str, generation: &str, ended: Option<(&str, &str)>) -> Arc<Job> {
    let status = ended.map(|(kind, at)| json!({"completionTime": at, "conditions": [{"type": kind, "status": "True"}]}));
    let annotations = json!({"scaledjob.keda.sh/generation": generation});
    let job = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"template": {}}, "status": status});
    Arc::new(serde_json::from_value(job).expect("a Job"))
}

fn names(jobs: &[Arc<Job>]) -> Vec<&str> {
    jobs.iter().filter_map(|job| job.metadata.name.as_deref()).collect()
}

#[test]
fn jobs_of_an_earlier_spec_go_at_once_or_gradually() {
    let all = [stored("old", "2", None), stored("new", "3", None)];
    for (value, wanted) in [
        (json!({}), vec!["old"]),
        (json!({"rollout": {"strategy": "immediate"}}), vec!["old"]),
        (json!({"rollout": {"strategy": "gradual"}}), vec![]),
        (json!({"rolloutStrategy": "gradual"}), vec![]),
    ] {
        assert_eq!(names(&jobs::outdated(&scaled_job(), &spec(value.clone()), &all)), wanted, "{value}");
    }
}

#[test]
fn the_oldest_finished_jobs_are_surplus() {
    let at = |minute: u32| format!("2026-01-01T00:{minute:02}:00Z");
    let all = [
        stored("c2", "3", Some(("Complete", &at(2)))),
        stored("c1", "3", Some(("Complete", &at(1)))),
        stored("c3", "3", Some(("Complete", &at(3)))),
        stored("f1", "3", Some(("Failed", &at(1)))),
        stored("runs", "3", None),
    ];
    for (value, wanted) in [
        (json!({}), vec![]),
        (json!({"successfulJobsHistoryLimit": 1}), vec!["c1", "c2"]),
        (json!({"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0}), vec!["c1", "c2", "c3", "f1"]),
    ] {
        assert_eq!(names(&jobs::surplus(&spec(value.clone()), &all)), wanted, "{value}");
    }
}

#[test]
fn a_job_is_pending_until_a_pod_has_begun() {
    let pod = |phase: &str, conditions: Value| -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({"metadata": {}, "status": {"phase": phase, "conditions": conditions}})).expect("a Pod"))
    };
    let ready = || json!([{"type": "Ready", "status": "True"}, {"type": "Extra", "status": "False"}]);
    for (pods, conditions, wanted) in [
        (vec![], vec![], true),
        (vec![pod("Pending", json!([]))], vec![], true),
        (vec![pod("Running", json!([]))], vec![], false),
        (vec![pod("Succeeded", json!([]))], vec![], false),
        (vec![pod("Running", ready())], vec!["Ready"], false),
        (vec![pod("Running", ready())], vec!["Ready", "Extra"], true),
    ] {
        let conditions: Vec<String> = conditions.into_iter().map(str::to_owned).collect();
        assert_eq!(jobs::is_pending(&pods, &conditions), wanted, "{pods:?} {conditions:?}");
    }
}
