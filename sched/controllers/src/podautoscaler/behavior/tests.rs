use serde_json::{Value, json};

use super::*;

const WINDOW: SignedDuration = SignedDuration::from_mins(5);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).expect("in range")
}

/// A history of proposals and changes, each with its time: seconds before now are negative.
fn history(proposals: &[(i64, i32)], changes: &[(i64, i32)]) -> History {
    let mut history = History::default();
    proposals.iter().for_each(|(second, replicas)| history.propose(*replicas, SignedDuration::MAX, at(*second)));
    changes.iter().for_each(|(second, change)| history.scale(100, 100 + change, SignedDuration::MAX, at(*second)));
    history
}

fn bounds(current: i32, min: i32, max: i32) -> Bounds {
    Bounds { current, min, max }
}

fn with(behavior: Option<Value>, history: &mut History, bounds: Bounds, proposal: i32) -> (i32, &'static str, &'static str) {
    let behavior: Option<HorizontalPodAutoscalerBehavior> = behavior.map(|value| serde_json::from_value(value).expect("a behavior"));
    let normalized = normalize(behavior.as_ref(), history, bounds, proposal, WINDOW, at(0));
    (normalized.replicas, normalized.able.reason, normalized.limited.reason)
}

fn policy(kind: &str, value: i32, period: i32) -> Value {
    json!({"type": kind, "value": value, "periodSeconds": period})
}

/// Both directions have these policies and no stabilization.
fn both(select: &str, policies: &[Value]) -> Value {
    let rules = json!({"selectPolicy": select, "policies": policies, "stabilizationWindowSeconds": 0});
    json!({"scaleUp": rules, "scaleDown": rules})
}

#[test]
fn without_behavior_the_highest_proposal_of_five_minutes_counts() {
    for (name, proposals, bounds, proposal, wanted) in [
        ("nothing else", &[][..], bounds(3, 1, 10), 5, (5, "ReadyForNewScale", "DesiredWithinRange")),
        ("a higher one", &[(-100, 8)], bounds(8, 1, 10), 2, (8, "ScaleDownStabilized", "DesiredWithinRange")),
        ("at the edge", &[(-300, 8)], bounds(8, 1, 10), 2, (8, "ScaleDownStabilized", "DesiredWithinRange")),
        ("too old", &[(-301, 8)], bounds(8, 1, 10), 2, (2, "ReadyForNewScale", "DesiredWithinRange")),
        ("a lower one", &[(-100, 2)], bounds(3, 1, 10), 5, (5, "ReadyForNewScale", "DesiredWithinRange")),
        ("too few", &[], bounds(3, 2, 10), 1, (2, "ReadyForNewScale", "TooFewReplicas")),
        ("to zero", &[], bounds(3, 0, 10), 0, (0, "ReadyForNewScale", "DesiredWithinRange")),
        ("too many", &[], bounds(8, 2, 10), 12, (10, "ReadyForNewScale", "TooManyReplicas")),
        ("too fast", &[], bounds(3, 2, 100), 12, (6, "ReadyForNewScale", "ScaleUpLimit")),
        ("up to four at once", &[], bounds(1, 1, 100), 12, (4, "ReadyForNewScale", "ScaleUpLimit")),
    ] {
        assert_eq!(with(None, &mut history(proposals, &[]), bounds, proposal), wanted, "{name}");
    }
}

#[test]
fn a_proposal_counts_for_the_window() {
    let mut history = history(&[(-301, 1)], &[]);
    assert_eq!(with(None, &mut history, bounds(3, 1, 10), 5).0, 5);
    let remembered: Vec<(i64, i32)> = history.proposals(at(10)).map(|(age, replicas)| (age.as_secs(), replicas)).collect();
    assert_eq!(remembered, [(10, 5)], "what is older than the window is dropped");
}

#[test]
fn policies_limit_what_changes_in_their_period() {
    let (four, double) = (policy("Pods", 4, 15), policy("Percent", 100, 15));
    let minute = |kind, value| policy(kind, value, 60);
    let all = bounds(0, 0, 1_000);
    for (name, select, policies, changes, current, proposal, wanted) in [
        ("the default adds four", "Max", vec![four.clone(), double.clone()], &[][..], 1, 900, (5, "ScaleUpLimit")),
        ("or doubles", "Max", vec![four.clone(), double.clone()], &[], 10, 900, (20, "ScaleUpLimit")),
        ("the smaller one", "Min", vec![four.clone(), double.clone()], &[], 10, 900, (14, "ScaleUpLimit")),
        ("nothing", "Disabled", vec![four.clone()], &[], 10, 900, (10, "ScaleUpLimit")),
        ("less than it allows", "Max", vec![four.clone()], &[], 10, 12, (12, "DesiredWithinRange")),
        ("a share is rounded up", "Max", vec![minute("Percent", 10)], &[], 1, 900, (2, "ScaleUpLimit")),
        ("of zero it is zero", "Max", vec![minute("Percent", 100)], &[], 0, 900, (0, "ScaleUpLimit")),
        ("three were added", "Max", vec![minute("Pods", 4)], &[(-30, 3)], 13, 900, (14, "ScaleUpLimit")),
        ("more were added", "Max", vec![minute("Pods", 4)], &[(-30, 6)], 16, 900, (16, "ScaleUpLimit")),
        ("they were added before", "Max", vec![minute("Pods", 4)], &[(-60, 3)], 13, 900, (17, "ScaleUpLimit")),
        ("some were removed", "Max", vec![minute("Pods", 4)], &[(-30, -3)], 13, 900, (20, "ScaleUpLimit")),
        ("the default removes all", "Max", vec![double.clone()], &[], 10, 0, (0, "DesiredWithinRange")),
        ("the greater share", "Max", vec![minute("Pods", 2), minute("Percent", 10)], &[], 100, 0, (90, "ScaleDownLimit")),
        ("the smaller share", "Min", vec![minute("Pods", 2), minute("Percent", 10)], &[], 100, 0, (98, "ScaleDownLimit")),
        ("none", "Disabled", vec![minute("Pods", 2)], &[], 100, 0, (100, "ScaleDownLimit")),
        ("one was removed", "Max", vec![minute("Pods", 2)], &[(-30, -1)], 9, 0, (8, "ScaleDownLimit")),
        ("more were removed", "Max", vec![minute("Pods", 2)], &[(-30, -4)], 6, 0, (6, "ScaleDownLimit")),
    ] {
        let result = with(Some(both(select, &policies)), &mut history(&[], changes), Bounds { current, ..all }, proposal);
        assert_eq!((result.0, result.2), wanted, "{name}");
    }
    let one = both("Max", &[policy("Pods", 1, 60)]);
    for (name, bounds, proposal, wanted) in [
        ("the maximum is nearer", bounds(10, 1, 10), 12, (10, "TooManyReplicas")),
        ("the minimum is nearer", bounds(10, 10, 20), 1, (10, "TooFewReplicas")),
    ] {
        let result = with(Some(one.clone()), &mut History::default(), bounds, proposal);
        assert_eq!((result.0, result.2), wanted, "{name}");
    }
}

#[test]
fn windows_hold_back_a_change_that_not_all_proposals_want() {
    let rules =
        |window: i64| json!({"selectPolicy": "Max", "policies": [policy("Percent", 1_000, 15)], "stabilizationWindowSeconds": window});
    let windows = |up: i64, down: i64| json!({"scaleUp": rules(up), "scaleDown": rules(down)});
    for (name, behavior, proposals, current, proposal, wanted) in [
        ("up at once", windows(0, 0), &[(-1, 1)][..], 3, 9, (9, "ReadyForNewScale")),
        ("up to the lowest", windows(60, 0), &[(-30, 5)], 3, 9, (5, "ScaleUpStabilized")),
        ("not down by a window up", windows(60, 0), &[(-30, 1)], 3, 9, (3, "ScaleUpStabilized")),
        ("at the window's edge", windows(60, 0), &[(-60, 5)], 3, 9, (9, "ReadyForNewScale")),
        ("down at once", windows(0, 0), &[(-1, 9)], 9, 3, (3, "ReadyForNewScale")),
        ("down to the highest", windows(0, 60), &[(-30, 6)], 9, 3, (6, "ScaleDownStabilized")),
        ("not up by a window down", windows(0, 60), &[(-30, 20)], 9, 3, (9, "ScaleDownStabilized")),
        ("the same", windows(60, 60), &[(-30, 3)], 3, 3, (3, "ReadyForNewScale")),
    ] {
        let result = with(Some(behavior), &mut history(proposals, &[]), bounds(current, 1, 100), proposal);
        assert_eq!((result.0, result.1), wanted, "{name}");
    }
    // Without a window of its own, a scale-down has the controller's.
    let mut down = rules(0);
    down.as_object_mut().expect("rules").remove("stabilizationWindowSeconds");
    let result = with(Some(json!({"scaleUp": rules(0), "scaleDown": down})), &mut history(&[(-299, 7)], &[]), bounds(7, 1, 10), 2);
    assert_eq!(result, (7, "ScaleDownStabilized", "DesiredWithinRange"));
}

#[test]
fn changes_matter_for_the_longest_period() {
    let periods = |up, down| {
        let behavior = json!({"scaleUp": {"policies": [policy("Pods", 1, up), policy("Pods", 1, 10)]}, "scaleDown": {"policies": [policy("Pods", 1, down)]}});
        longest_period(&serde_json::from_value(behavior).expect("a behavior")).as_secs()
    };
    assert_eq!((periods(60, 30), periods(15, 1_800)), (60, 1_800));
    let mut history = history(&[], &[(-100, 3), (-20, 2)]);
    history.scale(10, 8, SignedDuration::from_secs(60), at(0));
    assert_eq!(history.at_start_of(SignedDuration::MAX, 8, at(0)), 8, "the change of 100 seconds ago is dropped");
}
