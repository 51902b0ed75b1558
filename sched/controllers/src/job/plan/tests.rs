use std::collections::HashSet;

use serde_json::{Value, json};

use super::*;
use crate::job::counts::{Counts, Snapshot, counts};
use crate::job::track::{self, Managed, Tracking};

const NOW: i64 = 1_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).expect("in range")
}

fn ago(seconds: i64) -> String {
    Timestamp::from_second(NOW - seconds).expect("in range").to_string()
}

fn job(spec: Value, status: Value) -> Job {
    let mut all = json!({"parallelism": 2, "backoffLimit": 6, "completionMode": "NonIndexed",
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}});
    meta::overlay(&mut all, &spec);
    let value = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "ju"}, "spec": all, "status": status});
    serde_json::from_value(value).expect("a Job")
}

fn pod(name: &str, phase: &str, more: Value) -> Arc<Pod> {
    let mut value = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "finalizers": [member::FINALIZER],
        "creationTimestamp": ago(100)}, "spec": {"containers": []}, "status": {"phase": phase}});
    meta::overlay(&mut value, &more);
    Arc::new(serde_json::from_value(value).expect("a Pod"))
}

fn indexed(name: &str, index: i32, phase: &str, more: Value) -> Arc<Pod> {
    let mut all = json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()}}});
    meta::overlay(&mut all, &more);
    pod(name, phase, all)
}

fn ended(seconds: i64, code: i32) -> Value {
    json!({"status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "finishedAt": ago(seconds)}}}]}})
}

fn deleting() -> Value {
    json!({"metadata": {"deletionTimestamp": ago(1), "deletionGracePeriodSeconds": 30}})
}

/// A pass as the controller makes it, whose writes to Pods all succeed.
struct Pass {
    plan: Plan,
    counts: Counts,
    tracking: Tracking,
}

fn pass(job: &Job, pods: &[Arc<Pod>]) -> Pass {
    let untracked = HashSet::new();
    let snapshot = Snapshot { job, pods, untracked: &untracked, settled: true, now: now() };
    let counts = counts(&snapshot);
    let plan = plan(&snapshot, &counts);
    let number = |count: usize| i32::try_from(count).expect("few");
    let (created, deleted) = match &plan.manage {
        Manage::Nothing => (0, 0),
        Manage::Create(pods) => (number(pods.len()), 0),
        Manage::Delete(pods) => (0, number(pods.len())),
        Manage::End => (0, number(counts.active.len())),
    };
    let managed = Managed {
        active: number(counts.active.len()) + created - deleted,
        ready: counts.ready,
        terminating: counts.terminating + deleted,
        is_settled: true,
    };
    let complete = track::is_complete(&snapshot, &counts, &managed).then(|| track::completed(now()));
    let end = plan.end.clone().or(complete);
    let tracking = track::track(&snapshot, &counts, &managed, end);
    Pass { plan, counts, tracking }
}

/// The pass in one line.
fn line(pass: &Pass) -> String {
    let manage = match &pass.plan.manage {
        Manage::Nothing => "nothing".to_owned(),
        Manage::End => "end".to_owned(),
        Manage::Create(pods) => format!("create {}", names(pods.iter().map(|pod| pod.metadata.generate_name.as_deref()))),
        Manage::Delete(pods) => format!("delete {}", names(pods.iter().map(|pod| pod.metadata.name.as_deref()))),
    };
    let end = pass.plan.end.as_ref().map(|end| format!(", {} {}", end.type_, end.reason.clone().unwrap_or_default()));
    let wait = pass.plan.look_again.map(|wait| format!(", in {} s", wait.as_secs()));
    format!("{manage}{}{}", end.unwrap_or_default(), wait.unwrap_or_default())
}

fn names<'a>(names: impl Iterator<Item = Option<&'a str>>) -> String {
    names.flatten().collect::<Vec<_>>().join(" ")
}

fn failed(name: &str, seconds: i64) -> Arc<Pod> {
    pod(name, "Failed", ended(seconds, 1))
}

#[test]
fn pods_are_created_up_to_parallelism_and_completions() {
    let running = |name: &str| pod(name, "Running", json!({}));
    let cases: &[(Value, Value, Vec<Arc<Pod>>, &str)] = &[
        (json!({"completions": 3}), json!({}), vec![], "create j- j-"),
        (json!({"completions": 1}), json!({}), vec![], "create j-"),
        (json!({"completions": 3}), json!({}), vec![running("a")], "create j-"),
        (json!({"completions": 3}), json!({"succeeded": 2}), vec![running("a")], "nothing"),
        (json!({"completions": 0}), json!({}), vec![], "nothing"),
        (json!({}), json!({}), vec![], "create j- j-"),
        (json!({}), json!({"succeeded": 1}), vec![running("a")], "nothing"),
        (json!({"completions": 3, "parallelism": 1}), json!({}), vec![running("a"), pod("b", "Pending", json!({}))], "delete b"),
        (json!({"completions": 3, "suspend": true}), json!({}), vec![running("a")], "delete a"),
        (json!({"completions": 3, "suspend": true}), json!({}), vec![], "nothing"),
        (
            json!({"completions": 3, "activeDeadlineSeconds": 60}),
            json!({"startTime": ago(50)}),
            vec![running("a"), running("b")],
            "nothing, in 10 s",
        ),
        (json!({"completions": 3, "parallelism": 1000}), json!({"succeeded": 1}), vec![], "create j- j-"),
    ];
    for (spec, status, pods, wanted) in cases {
        assert_eq!(line(&pass(&job(spec.clone(), status.clone()), pods)), *wanted, "{spec} {status}");
    }
    let many = pass(&job(json!({"completions": 10_000, "parallelism": 5_000}), json!({})), &[]);
    assert!(matches!(&many.plan.manage, Manage::Create(pods) if pods.len() == PODS_MAX));
}

#[test]
fn failures_delay_creations_twice_as_long_each_time() {
    let spec = json!({"completions": 3});
    let succeeded = pod("ok", "Succeeded", ended(1, 0));
    let cases: &[(Vec<Arc<Pod>>, &str)] = &[
        (vec![failed("a", 4)], "nothing, in 6 s"),
        (vec![failed("a", 10)], "create j- j-"),
        (vec![failed("a", 30), failed("b", 4)], "nothing, in 16 s"),
        (vec![failed("a", 30), failed("b", 20), failed("c", 1)], "nothing, in 39 s"),
        (vec![failed("a", 30), failed("b", 4), succeeded], "create j- j-"),
    ];
    for (pods, wanted) in cases {
        assert_eq!(line(&pass(&job(spec.clone(), json!({})), pods)), *wanted);
    }
}

#[test]
fn a_job_fails_for_upstreams_reasons() {
    let restarts = |count: i32| {
        let status =
            json!({"status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": count}]}});
        pod("r", "Running", status)
    };
    let on_failure = json!({"completions": 1, "backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}});
    let policy = |action: &str| json!({"completions": 9, "podFailurePolicy": {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}});
    let of_code = |code: i32| vec![pod("a", "Failed", ended(900, code))];
    let cases: &[(Value, Value, Vec<Arc<Pod>>, &str)] = &[
        (json!({"completions": 1, "backoffLimit": 0}), json!({}), vec![failed("a", 1)], "end, FailureTarget BackoffLimitExceeded"),
        (
            json!({"completions": 1, "backoffLimit": 2}),
            json!({"failed": 2}),
            vec![failed("a", 1)],
            "end, FailureTarget BackoffLimitExceeded",
        ),
        (json!({"completions": 1, "backoffLimit": 3}), json!({"failed": 2}), vec![failed("a", 900)], "create j-"),
        (on_failure.clone(), json!({}), vec![restarts(1)], "nothing"),
        (on_failure, json!({}), vec![restarts(2)], "end, FailureTarget BackoffLimitExceeded"),
        (
            json!({"completions": 1, "activeDeadlineSeconds": 60}),
            json!({"startTime": ago(60)}),
            vec![],
            "end, FailureTarget DeadlineExceeded",
        ),
        (policy("FailJob"), json!({}), of_code(42), "end, FailureTarget PodFailurePolicy"),
        (policy("FailJob"), json!({}), of_code(41), "create j- j-"),
        (policy("Ignore"), json!({"failed": 6}), of_code(42), "create j- j-"),
        (policy("Count"), json!({"failed": 6}), of_code(42), "end, FailureTarget BackoffLimitExceeded"),
    ];
    for (spec, status, pods, wanted) in cases {
        assert_eq!(line(&pass(&job(spec.clone(), status.clone()), pods)), *wanted, "{spec} {status}");
    }
    let message = pass(&job(policy("FailJob"), json!({})), &of_code(42)).plan.end.and_then(|end| end.message);
    assert_eq!(message.as_deref(), Some("Container c for pod ns/a failed with exit code 42 matching FailJob rule at index 0"));
}

#[test]
fn a_pod_that_is_being_deleted_is_replaced_at_once_or_when_it_has_ended() {
    let pods = [pod("a", "Running", deleting())];
    let at_once = pass(&job(json!({"completions": 1}), json!({})), &pods);
    assert_eq!((line(&at_once).as_str(), at_once.counts.failed, at_once.counts.terminating), ("create j-", 1, 1));
    let ended = pass(&job(json!({"completions": 1, "podReplacementPolicy": "Failed"}), json!({})), &pods);
    assert_eq!((line(&ended).as_str(), ended.counts.failed, ended.tracking.untrack.len()), ("nothing", 0, 0));
}

#[test]
fn each_index_has_one_pod_until_it_succeeds() {
    let spec = |more: Value| {
        let mut spec = json!({"completions": 5, "parallelism": 3, "completionMode": "Indexed"});
        meta::overlay(&mut spec, &more);
        spec
    };
    let run = |name: &str, index: i32| indexed(name, index, "Running", json!({}));
    let cases: &[(Value, Value, Vec<Arc<Pod>>, &str)] = &[
        (spec(json!({})), json!({}), vec![], "create j-0- j-1- j-2-"),
        (spec(json!({})), json!({"completedIndexes": "0,2", "succeeded": 2}), vec![run("a", 1)], "create j-3- j-4-"),
        (spec(json!({})), json!({}), vec![run("a", 0), run("b", 0), run("c", 1)], "delete a"),
        (spec(json!({})), json!({}), vec![run("a", 7), pod("b", "Running", json!({}))], "delete a b"),
        (spec(json!({})), json!({}), vec![indexed("a", 1, "Succeeded", json!({})), run("b", 0)], "create j-2- j-3-"),
    ];
    for (spec, status, pods, wanted) in cases {
        assert_eq!(line(&pass(&job(spec.clone(), status.clone()), pods)), *wanted, "{spec} {status}");
    }
    let policy = json!({"successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 2}]}});
    let met = pass(&job(spec(policy), json!({"completedIndexes": "0,3"})), &[run("a", 1)]);
    assert_eq!(line(&met), "end, SuccessCriteriaMet SuccessPolicy");
    assert_eq!(met.plan.end.and_then(|end| end.message).as_deref(), Some("Matched rules at index 0"));
}

#[test]
fn an_index_fails_at_its_own_limit_and_its_failures_go_on_to_count() {
    let spec =
        json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1, "backoffLimit": i32::MAX});
    let fail = |name: &str, index: i32, before: &str, seconds: i64| {
        let mut more = ended(seconds, 1);
        meta::overlay(&mut more, &json!({"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": before}}}));
        indexed(name, index, "Failed", more)
    };
    // The first failure of index 0 waits for ten seconds; the others start. Its Pod keeps the finalizer until then.
    let first = pass(&job(spec.clone(), json!({})), &[fail("a", 0, "0", 4)]);
    assert_eq!(line(&first), "create j-1- j-2-");
    assert!(first.tracking.untrack.is_empty());
    let second = pass(&job(spec.clone(), json!({})), &[fail("a", 0, "0", 40)]);
    let Manage::Create(created) = &second.plan.manage else { panic!("{:?}", second.plan) };
    assert_eq!(meta::annotation(&created[0].metadata, "batch.kubernetes.io/job-index-failure-count"), Some("1"));
    assert_eq!(created[0].spec.as_ref().and_then(|spec| spec.hostname.as_deref()), Some("j-0"));
    let third = pass(&job(spec.clone(), json!({})), &[fail("a", 0, "1", 40)]);
    assert_eq!((line(&third).as_str(), third.tracking.status.failed_indexes.as_deref()), ("create j-1- j-2-", Some("0")));
    let last = pass(&job(spec.clone(), json!({"completedIndexes": "1,2", "succeeded": 2})), &[fail("a", 0, "1", 40)]);
    assert_eq!(line(&last), "end, FailureTarget FailedIndexes");
    let mut bounded = spec;
    meta::overlay(&mut bounded, &json!({"maxFailedIndexes": 0}));
    assert_eq!(line(&pass(&job(bounded, json!({})), &[fail("a", 0, "1", 40)])), "end, FailureTarget MaxFailedIndexesExceeded");
}

/// The status after the finalizers are gone from the Pods of `removed`.
fn after(pass: &Pass, removed: &[&str]) -> (k8s_openapi::api::batch::v1::JobStatus, bool) {
    let (mut status, mut tracked) = (pass.tracking.status.clone(), pass.tracking.tracked.clone());
    for uid in removed {
        tracked.remove(*uid);
    }
    track::count_untracked(&mut status, &tracked);
    let ended = pass.tracking.end.clone().is_some_and(|end| track::finish(&mut status, end));
    (status, ended)
}

#[test]
fn each_end_is_counted_once_wherever_the_controller_is_killed() {
    let pods = [pod("a", "Succeeded", json!({})), failed("b", 900), pod("c", "Running", json!({}))];
    let spec = json!({"completions": 3});
    let first = pass(&job(spec.clone(), json!({})), &pods);
    let noted = first.tracking.status.uncounted_terminated_pods.clone().expect("noted");
    assert_eq!((noted.succeeded.as_deref(), noted.failed.as_deref()), (Some(&["a".to_owned()][..]), Some(&["b".to_owned()][..])));
    assert_eq!((first.tracking.status.succeeded, first.counts.succeeded, first.counts.failed), (None, 1, 1));

    // Killed after the first write, and again after one of two removals: a later pass ends with the same counts.
    let stored = serde_json::to_value(&first.tracking.status).expect("JSON");
    let again = pass(&job(spec.clone(), stored), &pods);
    assert_eq!((again.counts.succeeded, again.counts.failed), (1, 1));
    let (half, _) = after(&again, &["a"]);
    assert_eq!((half.succeeded, half.failed), (Some(1), None));
    let untracked: Vec<_> = vec![pod("a", "Succeeded", json!({"metadata": {"finalizers": []}})), pods[1].clone(), pods[2].clone()];
    let later = pass(&job(spec, serde_json::to_value(&half).expect("JSON")), &untracked);
    let (whole, ended) = after(&later, &["b"]);
    assert_eq!((whole.succeeded, whole.failed, ended), (Some(1), Some(1), false));
    assert_eq!(whole.uncounted_terminated_pods, Some(Default::default()));
}

/// A cache that still shows a finalizer whose removal is known must not lead to another count.
#[test]
fn a_stale_cache_does_not_count_twice() {
    let (job, pods) = (job(json!({"completions": 3}), json!({"succeeded": 1})), [pod("a", "Succeeded", json!({}))]);
    let untracked = HashSet::from(["a".to_owned()]);
    let snapshot = Snapshot { job: &job, pods: &pods, untracked: &untracked, settled: true, now: now() };
    let counts = counts(&snapshot);
    assert_eq!(counts.succeeded, 1);
    let tracking = track::track(&snapshot, &counts, &Managed::default(), None);
    assert!(tracking.untrack.is_empty());
    assert_eq!((tracking.status.succeeded, tracking.status.uncounted_terminated_pods), (Some(1), Some(Default::default())));
}

#[test]
fn a_job_ends_when_every_pod_is_counted_and_gone() {
    let done = pass(&job(json!({"completions": 1}), json!({})), &[pod("a", "Succeeded", json!({}))]);
    let (status, ended) = after(&done, &["a"]);
    let kinds: Vec<_> = status.conditions.iter().flatten().map(|condition| condition.type_.as_str()).collect();
    assert_eq!((kinds, ended, status.succeeded), (vec!["SuccessCriteriaMet", "Complete"], true, Some(1)));
    assert!(status.completion_time.is_some());
    assert!(!after(&done, &[]).1, "one is not counted yet");

    // A Job that fails counts its running Pods as failed, and waits until they are gone.
    let spec = json!({"completions": 2, "backoffLimit": 0});
    let fails = pass(&job(spec.clone(), json!({})), &[failed("a", 1), pod("b", "Running", json!({}))]);
    assert_eq!((line(&fails).as_str(), fails.tracking.untrack.len()), ("end, FailureTarget BackoffLimitExceeded", 2));
    let (status, ended) = after(&fails, &["a", "b"]);
    assert_eq!((status.failed, status.terminating, ended), (Some(2), Some(1), false));
    let gone = pass(&job(spec, serde_json::to_value(&status).expect("JSON")), &[]);
    let (status, ended) = after(&gone, &[]);
    let failed = status.conditions.iter().flatten().find(|condition| condition.type_ == "Failed").expect("failed");
    assert_eq!((failed.reason.as_deref(), ended, status.completion_time), (Some("BackoffLimitExceeded"), true, None));
}

#[test]
fn a_job_is_suspended_and_starts_anew() {
    let suspended = pass(&job(json!({"completions": 1, "suspend": true}), json!({"startTime": ago(50)})), &[]);
    assert_eq!(suspended.tracking.event, Some(("Suspended", "Job suspended")));
    let status = serde_json::to_value(&suspended.tracking.status).expect("JSON");
    let resumed = pass(&job(json!({"completions": 1, "activeDeadlineSeconds": 20}), status), &[]);
    assert_eq!((line(&resumed).as_str(), resumed.tracking.event), ("create j-, in 20 s", Some(("Resumed", "Job resumed"))));
    let status = &resumed.tracking.status;
    assert_eq!(status.start_time.as_ref().map(|at| at.0.as_second()), Some(NOW));
    let conditions: Vec<_> = status.conditions.iter().flatten().map(|one| (one.type_.as_str(), one.status.as_str())).collect();
    assert_eq!(conditions, [("Suspended", "False")]);
    let never = pass(&job(json!({"completions": 1, "suspend": true}), json!({})), &[]);
    assert_eq!(never.tracking.status.start_time, None);
}

#[test]
fn many_ends_are_noted_in_parts() {
    let pods: Vec<_> = (0..700).map(|n| pod(&format!("p{n:03}"), "Succeeded", json!({}))).collect();
    let first = pass(&job(json!({"completions": 700, "parallelism": 700}), json!({})), &pods);
    assert_eq!((first.tracking.untrack.len(), first.tracking.end.is_none()), (500, true));
}
