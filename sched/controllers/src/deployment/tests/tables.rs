//! Upstream's tables of cases, in the names of its tests: `deployment_util_test.go`, `sync_test.go`, `rolling_test.go` and
//! `progress_test.go`.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetStatus};
use serde_json::{Value, json};

use super::super::history::{self, DESIRED_REPLICAS, MAX_REPLICAS, REVISION};
use super::super::plan::{Action, Sets};
use super::super::{fence, rollout, scale, status};
use crate::meta;

fn deployment(replicas: i32, surge: i32, unavailable: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "foo", "namespace": "default", "uid": "d"},
        "spec": {"replicas": replicas, "selector": {}, "template": {}, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
        }},
    }))
    .expect("a Deployment")
}

/// A ReplicaSet with that size; all its Pods are available. A higher age is older.
fn set(name: &str, size: i32, age: i64) -> ReplicaSet {
    let created = Timestamp::from_second(1_000_000 - age).expect("a time");
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": created.to_string()},
        "spec": {"replicas": size, "selector": {}},
        "status": {"replicas": size, "availableReplicas": size},
    }))
    .expect("a ReplicaSet")
}

fn annotated(mut set: ReplicaSet, annotations: &[(&str, String)]) -> ReplicaSet {
    let of_set = set.metadata.annotations.get_or_insert_default();
    of_set.extend(annotations.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    set
}

fn size_after(actions: &[Action], set: &ReplicaSet) -> i32 {
    let scaled = actions.iter().find_map(|action| match action {
        Action::Change { set: changed, scaled, .. } if changed.metadata.name == set.metadata.name => scaled.map(|(_, to)| to),
        _ => None,
    });
    scaled.unwrap_or(fence::size(set))
}

struct Scaling {
    name: &'static str,
    /// Replicas and surge when the ReplicaSets were scaled last, and now.
    from: (i32, i32),
    to: (i32, i32),
    /// Sizes of the new ReplicaSet and of the old ones, youngest first, before and after.
    new: Option<(i32, i32)>,
    old: &'static [(i32, i32)],
}

const fn case(name: &'static str, from: (i32, i32), to: (i32, i32), new: Option<(i32, i32)>, old: &'static [(i32, i32)]) -> Scaling {
    Scaling { name, from, to, new, old }
}

const SCALINGS: &[Scaling] = &[
    case("normal scaling event: 10 -> 12", (10, 0), (12, 0), Some((10, 12)), &[]),
    case("normal scaling event: 10 -> 5", (10, 0), (5, 0), Some((10, 5)), &[]),
    case("proportional scaling: 5 -> 10", (5, 0), (10, 0), Some((2, 4)), &[(3, 6)]),
    case("proportional scaling: 5 -> 3", (5, 0), (3, 0), Some((2, 1)), &[(3, 2)]),
    case("proportional scaling: 9 -> 4", (9, 0), (4, 0), Some((8, 4)), &[(1, 0)]),
    case("proportional scaling: 7 -> 10", (7, 0), (10, 0), Some((2, 3)), &[(3, 4), (2, 3)]),
    case("proportional scaling: 13 -> 8", (13, 0), (8, 0), Some((2, 1)), &[(8, 5), (3, 2)]),
    case("leftover distribution: 3 -> 4", (3, 0), (4, 0), Some((1, 2)), &[(1, 1), (1, 1)]),
    case("leftover distribution: 3 -> 2", (3, 0), (2, 0), Some((1, 1)), &[(1, 1), (1, 0)]),
    case("proportional scaling (no new rs): 4 -> 5", (4, 0), (5, 0), None, &[(2, 3), (2, 2)]),
    case("proportional scaling: 6 -> 0", (6, 0), (0, 0), Some((3, 0)), &[(2, 0), (1, 0)]),
    case("proportional scaling: 0 -> 6", (6, 0), (6, 0), Some((0, 6)), &[(0, 0), (0, 0)]),
    case("deployment with surge pods", (10, 2), (20, 2), Some((6, 11)), &[(6, 11)]),
    case("change both surge and size", (10, 3), (50, 6), Some((5, 22)), &[(8, 34)]),
    case("change both size and template", (10, 0), (14, 0), None, &[(7, 10), (3, 4)]),
];

#[test]
fn scaling_is_in_proportion_as_in_upstreams_table() {
    for Scaling { name, from, to, new, old } in SCALINGS {
        let notes = [(DESIRED_REPLICAS, from.0.to_string()), (MAX_REPLICAS, (from.0 + from.1).to_string())];
        let made = |name: String, size, age| Arc::new(annotated(set(&name, size, age), &notes));
        let new_set = new.map(|(size, _)| made("new".to_owned(), size, 0));
        let mut old_sets: Vec<_> = (1..).zip(*old).map(|(age, (size, _))| made(format!("old-{age}"), *size, age)).collect();
        old_sets.reverse();
        let sets = Sets { new: new_set.clone(), old: old_sets.clone() };
        let actions = scale::proportionally(&deployment(to.0, to.1, 0), &sets);
        assert_eq!(new_set.map(|set| size_after(&actions, &set)), new.map(|(_, after)| after), "{name}: new");
        let after: Vec<i32> = old_sets.iter().rev().map(|set| size_after(&actions, set)).collect();
        assert_eq!(after, old.iter().map(|(_, after)| *after).collect::<Vec<_>>(), "{name}: old");
    }
}

/// The case "failed rs update": foo-v2 was not scaled although foo-v3 was.
#[test]
fn a_scaling_that_failed_half_way_is_finished() {
    let noted = |name: &str, size, age, desired: i32| {
        Arc::new(annotated(set(name, size, age), &[(DESIRED_REPLICAS, desired.to_string()), (MAX_REPLICAS, desired.to_string())]))
    };
    let (v3, v2, v1) = (noted("foo-v3", 2, 0, 5), noted("foo-v2", 1, 1, 3), noted("foo-v1", 1, 2, 5));
    let sets = Sets { new: Some(v3.clone()), old: vec![v1.clone(), v2.clone()] };
    let deployment = deployment(5, 0, 0);
    assert!(scale::is_wanted(&deployment, &sets));
    let actions = scale::proportionally(&deployment, &sets);
    assert_eq!([&v3, &v2, &v1].map(|set| size_after(&actions, set)), [2, 2, 1]);
}

#[test]
fn a_saturated_but_broken_new_set_does_not_affect_old_pods() {
    let mut new = annotated(set("new", 2, 0), &[(DESIRED_REPLICAS, "2".to_owned()), (MAX_REPLICAS, "3".to_owned())]);
    new.status = Some(ReplicaSetStatus::default());
    let old = Arc::new(annotated(set("old", 1, 1), &[(DESIRED_REPLICAS, "2".to_owned()), (MAX_REPLICAS, "3".to_owned())]));
    let sets = Sets { new: Some(Arc::new(new)), old: vec![old.clone()] };
    let actions = scale::proportionally(&deployment(2, 1, 1), &sets);
    assert_eq!(size_after(&actions, &old), 1);
}

/// Upstream's `ReplicaSetsBySizeNewer` and `ReplicaSetsBySizeOlder`: of equal ReplicaSets the later name is the newer.
#[test]
fn of_equal_sets_the_name_decides_who_gets_the_leftover() {
    for (to, expected) in [(3, [1, 2]), (1, [0, 1])] {
        let notes = [(DESIRED_REPLICAS, "2".to_owned()), (MAX_REPLICAS, "2".to_owned())];
        let [a, b] = ["a", "b"].map(|name| Arc::new(annotated(set(name, 1, 0), &notes)));
        let sets = Sets { new: None, old: vec![a.clone(), b.clone()] };
        let actions = scale::proportionally(&deployment(to, 0, 0), &sets);
        assert_eq!([size_after(&actions, &a), size_after(&actions, &b)], expected, "2 -> {to}");
    }
}

#[test]
fn fractions_are_those_of_upstreams_table() {
    // Replicas, status.replicas and surge of the Deployment; size and max-replicas of the ReplicaSet.
    let cases = [
        ("an empty Deployment scales to 0", (0, 0, 0), (10, None), -10),
        ("no annotation and no status", (10, 0, 0), (5, None), 0),
        ("an annotation of 0 and no status", (10, 0, 0), (5, Some("0")), 0),
        ("no annotation: the status counts", (120, 100, 0), (50, None), 10),
        ("an annotation of 0: the status counts", (120, 100, 0), (50, Some("0")), 10),
        ("an annotation below 0 is none", (120, 100, 0), (50, Some("-7")), 10),
        ("up by a fifth", (120, 0, 0), (50, Some("100")), 10),
        ("up by a fifth with surge", (120, 0, 10), (50, Some("110")), 9),
        ("down by a sixth", (10, 0, 0), (6, Some("12")), -1),
        ("down by a sixth with surge", (100, 0, 10), (50, Some("130")), -8),
    ];
    for (name, (replicas, of_status, surge), (size, most), expected) in cases {
        let mut deployment = deployment(replicas, surge, 1);
        deployment.status = Some(DeploymentStatus { replicas: Some(of_status), ..DeploymentStatus::default() });
        let notes: Vec<_> = most.into_iter().map(|most| (MAX_REPLICAS, most.to_owned())).collect();
        assert_eq!(scale::fraction(&annotated(set("s", size, 0), &notes), &deployment), expected, "{name}");
    }
}

#[test]
fn a_scale_counts_only_by_readable_annotations_of_sets_with_replicas() {
    for (size, desired, expected) in
        [(1, "3", true), (1, "2", false), (1, "x", false), (1, "-1", false), (1, "4294967296", false), (0, "3", false)]
    {
        let set = annotated(set("s", size, 0), &[(DESIRED_REPLICAS, desired.to_owned())]);
        let sets = Sets { new: Some(Arc::new(set)), old: Vec::new() };
        assert_eq!(scale::is_wanted(&deployment(2, 0, 0), &sets), expected, "{size} {desired}");
    }
}

#[test]
fn the_new_set_grows_as_in_upstreams_tables() {
    // Replicas and surge of the Deployment; sizes of the old and the new ReplicaSet; the size afterwards.
    let cases = [
        ("can not scale up", (1, 1), (5, 5), 1),
        ("no room for the surge", (10, 0), (10, 0), 0),
        ("the surge of an empty set", (10, 2), (10, 0), 2),
        ("the rest of the surge", (10, 2), (5, 0), 7),
        ("exactly the surge", (10, 2), (10, 2), 2),
        ("down to the wanted size", (10, 2), (0, 11), 10),
        ("up to the wanted size", (6, 10), (0, 2), 6),
    ];
    for (name, (replicas, surge), (old, new), expected) in cases {
        let (new, old) = (Arc::new(set("new", new, 0)), vec![Arc::new(set("old", old, 1))]);
        let sets = Sets { new: Some(new.clone()), old };
        let resized = rollout::resize_new(&deployment(replicas, surge, 0), &sets);
        assert_eq!(resized.first().map_or(fence::size(&new), |(_, size)| *size), expected, "{name}");
    }
}

#[test]
fn old_sets_shrink_as_in_upstreams_tables() {
    // Replicas and maxUnavailable; (size, available) of the new and of the old ReplicaSets, oldest first; sizes afterwards.
    type Case = (&'static str, (i32, i32), (i32, i32), &'static [(i32, i32)], &'static [i32]);
    let cases: &[Case] = &[
        ("nothing to shrink", (10, 0), (10, 10), &[(0, 0)], &[0]),
        ("no Pod may be missing", (10, 0), (0, 0), &[(10, 10)], &[10]),
        ("as many as may be missing", (10, 2), (0, 0), &[(10, 10)], &[8]),
        ("unavailable Pods first", (10, 2), (0, 0), &[(10, 8)], &[8]),
        ("unavailable Pods of the new set count", (10, 2), (2, 0), &[(8, 8)], &[8]),
        ("replaced Pods", (10, 0), (5, 5), &[(10, 10)], &[5]),
        ("the new Pods are not available", (10, 0), (5, 0), &[(10, 10)], &[10]),
        ("unhealthy Pods of each old set", (3, 0), (0, 0), &[(2, 0), (3, 3)], &[0, 3]),
        ("healthy Pods of the oldest", (4, 1), (1, 1), &[(2, 2), (2, 2)], &[0, 2]),
    ];
    let counted = |name: &str, (size, available): (i32, i32), age| {
        let mut set = set(name, size, age);
        set.status = Some(ReplicaSetStatus { replicas: size, available_replicas: Some(available), ..ReplicaSetStatus::default() });
        Arc::new(set)
    };
    for (name, (replicas, unavailable), new, old, expected) in cases {
        let old: Vec<_> = (0_i64..).zip(*old).map(|(at, counts)| counted(&format!("old-{at}"), *counts, 10 - at)).collect();
        let sets = Sets { new: Some(counted("new", *new, 0)), old: old.clone() };
        let shrunk = rollout::shrink_old(&deployment(*replicas, 1, *unavailable), &sets);
        let size = |of: &Arc<ReplicaSet>| shrunk.iter().find(|(set, _)| Arc::ptr_eq(set, of)).map_or(fence::size(of), |(_, to)| *to);
        assert_eq!(old.iter().map(size).collect::<Vec<_>>(), *expected, "{name}");
    }
}

fn counts(replicas: i32, updated: i32, ready: i32, available: i32) -> DeploymentStatus {
    let some = |count| Some(count).filter(|count| *count != 0);
    DeploymentStatus {
        replicas: some(replicas),
        updated_replicas: some(updated),
        ready_replicas: some(ready),
        available_replicas: some(available),
        ..DeploymentStatus::default()
    }
}

#[test]
fn a_rollout_is_complete_as_in_upstreams_table() {
    for (name, wanted, (replicas, updated, available), expected) in [
        ("min but not all pods become available", 5, (5, 5, 4), false),
        ("complete", 5, (5, 5, 5), true),
        ("all pods are available but not updated", 5, (5, 4, 5), false),
        ("still running old pods", 1, (2, 1, 1), false),
        ("one replica deployment never comes up", 1, (1, 1, 0), false),
        ("nothing is wanted", 0, (0, 0, 0), true),
    ] {
        assert_eq!(status::is_complete(&deployment(wanted, 1, 1), &counts(replicas, updated, 0, available)), expected, "{name}");
    }
}

#[test]
fn a_rollout_progresses_as_in_upstreams_table() {
    for (name, before, after, expected) in [
        ("updated pods", (10, 4, 4, 4), (10, 6, 4, 4), true),
        ("not progressing", (10, 4, 4, 4), (10, 4, 4, 4), false),
        ("old pods removed", (10, 4, 6, 6), (8, 4, 6, 6), true),
        ("less new pods", (10, 7, 3, 3), (10, 6, 3, 3), false),
        ("less overall but more new pods", (10, 4, 7, 7), (8, 8, 5, 5), true),
        ("more ready pods", (10, 10, 9, 8), (10, 10, 10, 8), true),
        ("more available pods", (10, 10, 10, 9), (10, 10, 10, 10), true),
    ] {
        let status_of = |(replicas, updated, ready, available)| counts(replicas, updated, ready, available);
        let mut deployment = deployment(10, 1, 1);
        deployment.status = Some(status_of(before));
        assert_eq!(status::is_progressing(&deployment, &status_of(after)), expected, "{name}");
    }
}

const NOW: &str = "2024-01-01T01:00:00.5Z";

/// `Progressing` and the next look of a Deployment that wants 3 Pods and has 2, with this condition and deadline.
fn looked_at(reason: Option<&str>, updated: &str, deadline: Option<i32>, available: i32) -> (Option<String>, Option<u64>) {
    let mut deployment = deployment(3, 1, 0);
    deployment.spec.progress_deadline_seconds = deadline;
    let condition = |reason: &str| {
        json!({"type": "Progressing", "status": if reason == "ProgressDeadlineExceeded" {"False"} else {"True"}, "reason": reason,
            "lastUpdateTime": updated, "lastTransitionTime": updated})
    };
    let conditions: Vec<Value> = reason.map(condition).into_iter().collect();
    let before = json!({"replicas": 3, "updatedReplicas": 3, "availableReplicas": available, "conditions": conditions});
    deployment.status = Some(serde_json::from_value(before).expect("a status"));
    let mut new = set("new", 3, 0);
    new.status = Some(ReplicaSetStatus { replicas: 3, available_replicas: Some(available), ..ReplicaSetStatus::default() });
    let sets = Sets { new: Some(Arc::new(new)), old: Vec::new() };
    let (status, again) = status::of_rollout(&deployment, &sets, None, NOW.parse().expect("a time"));
    let after = status.conditions.into_iter().flatten().find(|condition| condition.type_.as_deref() == Some("Progressing"));
    (after.and_then(|condition| condition.reason), again.map(|again| again.as_secs()))
}

/// Upstream's `TestDeploymentTimedOut` and `TestRequeueStuckDeployment`.
#[test]
fn deadlines_are_checked_as_in_upstreams_tables() {
    let at =
        |seconds: i64| Timestamp::from_second(NOW.parse::<Timestamp>().expect("a time").as_second() - seconds).expect("a time").to_string();
    let (moving, exceeded, complete) = ("ReplicaSetUpdated", "ProgressDeadlineExceeded", "NewReplicaSetAvailable");
    for (name, reason, ago, deadline, available, expected) in [
        ("no deadline", Some(moving), 11, None, 2, (None, None)),
        ("an endless deadline", Some(moving), 11, Some(i32::MAX), 2, (None, None)),
        ("11 s of 10 s", Some(moving), 11, Some(10), 2, (Some(exceeded), None)),
        ("9 s of 10 s", Some(moving), 9, Some(10), 2, (Some(moving), Some(1))),
        ("half a second over", Some(moving), 10, Some(10), 2, (Some(exceeded), None)),
        ("7 minutes left", Some(moving), 180, Some(600), 2, (Some(moving), Some(420))),
        ("exceeded already", Some(exceeded), 1, Some(600), 2, (Some(exceeded), None)),
        ("complete", Some(moving), 1, Some(600), 3, (Some(complete), None)),
        ("was complete", Some(complete), 9000, Some(600), 2, (Some(complete), None)),
        ("no condition", None, 0, Some(600), 2, (Some("FoundNewReplicaSet"), Some(601))),
    ] {
        let (reason, again) = looked_at(reason, &at(ago), deadline, available);
        assert_eq!((reason.as_deref(), again), expected, "{name}");
    }
}

#[test]
fn terminating_replicas_are_unknown_when_a_set_does_not_say() {
    let with = |observed: i64, terminating: Option<i32>| {
        let mut set = set("s", 1, 0);
        set.status = Some(ReplicaSetStatus {
            observed_generation: Some(observed),
            terminating_replicas: terminating,
            ..ReplicaSetStatus::default()
        });
        Arc::new(set)
    };
    let cases = [
        (vec![with(1, Some(3))], Some(3)),
        (vec![with(1, Some(3)), with(0, Some(1))], Some(4)),
        (vec![with(0, None)], Some(0)),
        (vec![with(1, Some(3)), with(0, None)], Some(3)),
        (vec![with(1, None)], None),
        (vec![with(1, Some(3)), with(1, None)], None),
    ];
    for (at, (old, expected)) in cases.into_iter().enumerate() {
        let counted = status::counted(&deployment(1, 1, 0), &Sets { new: None, old }, NOW.parse().expect("a time"));
        assert_eq!(counted.terminating_replicas, expected, "case {at}");
    }
}

/// The condition of the ReplicaSet comes with its own times; the newest ReplicaSet's comes first.
#[test]
fn a_replica_failure_is_taken_from_the_replica_set() {
    let failing = |name: &str, message: &str| {
        let mut set = set(name, 3, 0);
        let status = json!({"replicas": 0, "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": message, "lastTransitionTime": "2023-05-05T00:00:00Z"}]});
        set.status = Some(serde_json::from_value(status).expect("a status"));
        Arc::new(set)
    };
    let now = NOW.parse().expect("a time");
    let mut deployment = deployment(3, 1, 0);
    let sets = Sets { new: Some(failing("new", "quota")), old: vec![failing("old", "other")] };
    let (status, _) = status::of_rollout(&deployment, &sets, None, now);
    let failure = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota",
        "lastTransitionTime": "2023-05-05T00:00:00Z", "lastUpdateTime": "2023-05-05T00:00:00Z"});
    let last = status.conditions.iter().flatten().last().map(|condition| serde_json::to_value(condition).expect("json"));
    assert_eq!(last, Some(failure));
    deployment.status = Some(status);
    let (status, _) = status::of_rollout(&deployment, &Sets { new: None, old: vec![Arc::new(set("old", 1, 0))] }, None, now);
    assert!(!status.conditions.iter().flatten().any(|condition| condition.type_.as_deref() == Some("ReplicaFailure")));
}

#[test]
fn revision_histories_are_bounded_as_in_upstreams_test() {
    let deployment = deployment(1, 1, 0);
    let history = |before: Option<(&str, &str)>, revision, len_max| {
        let current = before.map(|(revision, history)| {
            let mut current = std::collections::BTreeMap::from([(REVISION.to_owned(), revision.to_owned())]);
            if !history.is_empty() {
                current.insert("deployment.kubernetes.io/revision-history".to_owned(), history.to_owned());
            }
            current
        });
        let after = history::annotations(&deployment, current.as_ref(), revision, len_max);
        let get = |key: &str| after.get(key).cloned().unwrap_or_default();
        (get(REVISION), get("deployment.kubernetes.io/revision-history"))
    };
    for (name, before, revision, len_max, expected) in [
        ("a first revision", None, 1, 5, ("1", "")),
        ("an earlier one", Some(("10", "")), 11, 5, ("11", "10")),
        ("two fit", Some(("11", "10")), 12, 5, ("12", "10,11")),
        ("the oldest goes", Some(("12", "10,11")), 13, 5, ("13", "11,12")),
        ("one that does not fit", Some(("123456", "10,11")), 200_000, 5, ("200000", "10,11")),
        ("it is the newest already", Some(("12", "10")), 12, 5, ("12", "10")),
        ("an unreadable one stays", Some(("x", "10")), 12, 5, ("x", "10")),
    ] {
        let (revision, history) = history(before, revision, len_max);
        assert_eq!((revision.as_str(), history.as_str()), expected, "{name}");
    }
}

#[test]
fn long_names_leave_room_for_the_hash() {
    let (long, hash) = ("b".repeat(250), "h".repeat(252));
    for (name, hash, expected) in [
        ("my-deployment", "abcde12345", "my-deployment-abcde12345".to_owned()),
        (&long[..242], "abcde12345", format!("{}-abcde12345", "b".repeat(242))),
        (&long, "abcde12345", format!("{}-abcde12345", "b".repeat(242))),
        (&long, &hash, format!("{long}-{hash}")),
    ] {
        assert_eq!(history::set_name(name, hash), expected);
    }
}

#[test]
fn old_sets_beyond_the_history_go_as_in_upstreams_tables() {
    // Name, size, status.replicas and revision of each old ReplicaSet, oldest first; the limit; what is deleted.
    type Case = (&'static [(&'static str, i32, i32, &'static str)], i32, &'static [&'static str]);
    let cases: &[Case] = &[
        (&[("1", 0, 0, ""), ("2", 0, 0, ""), ("3", 0, 0, "")], 1, &["1", "2"]),
        (&[("1", 0, 0, ""), ("2", 0, 1, ""), ("3", 1, 0, ""), ("4", 1, 1, "")], 0, &["1"]),
        (&[("1", 0, 0, ""), ("2", 0, 0, "")], 0, &["1", "2"]),
        (&[("1", 1, 1, ""), ("2", 1, 1, "")], 0, &[]),
        (&[("1", 0, 0, ""), ("2", 0, 0, "")], i32::MAX, &[]),
        (&[("1", 0, 0, "1"), ("2", 0, 0, "2")], 1, &["1"]),
        (&[("1", 0, 0, "2"), ("2", 0, 0, "1")], 1, &["2"]),
        (&[("1", 0, 0, "1"), ("2", 0, 0, "")], 1, &["2"]),
        (&[("1", 0, 0, ""), ("2", 0, 0, "2")], 1, &["1"]),
        (&[("1", 1, 1, "1"), ("2", 0, 0, "2"), ("3", 0, 0, "3")], 1, &["2"]),
        (&[("1", 1, 1, "1"), ("2", 1, 1, "2"), ("3", 0, 0, "3")], 1, &[]),
        (&[("1", 0, 0, "3"), ("2", 0, 0, "1"), ("3", 0, 0, "4"), ("4", 0, 0, "2")], 2, &["2", "4"]),
    ];
    for (at, (old, limit, expected)) in cases.iter().enumerate() {
        let mut deployment = deployment(1, 1, 0);
        deployment.spec.revision_history_limit = Some(*limit);
        let made = |(age, (name, size, replicas, revision)): (i64, &(&str, i32, i32, &str))| {
            let notes: Vec<_> = Some((REVISION, (*revision).to_owned())).filter(|_| !revision.is_empty()).into_iter().collect();
            let mut set = annotated(set(name, *size, 10 - age), &notes);
            set.status = Some(ReplicaSetStatus { replicas: *replicas, ..ReplicaSetStatus::default() });
            Arc::new(set)
        };
        let old: Vec<_> = (0..).zip(*old).map(made).collect();
        let expired = history::expired(&deployment, &old);
        assert_eq!(expired.iter().map(|set| meta::name(&set.metadata)).collect::<Vec<_>>(), *expected, "case {at}");
    }
}
