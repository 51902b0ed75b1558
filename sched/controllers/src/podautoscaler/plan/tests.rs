//! Passes without requests: what is decided, and what status and events say.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::podautoscaler::metrics::{PodMetric, PodMetrics};
use crate::podautoscaler::target::NoScale;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("in range")
}

fn autoscaler(spec: Value, status: Value) -> HorizontalPodAutoscaler {
    let mut object = json!({"metadata": {"name": "web", "namespace": "ns", "generation": 3},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 10}, "status": status});
    crate::meta::overlay(&mut object["spec"], &spec);
    serde_json::from_value(object).expect("an autoscaler")
}

fn cpu(percent: i32) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

fn queue(target: &Value) -> Value {
    json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}})
}

fn value(amount: &str) -> Value {
    json!({"type": "Value", "value": amount})
}

fn pods(count: usize) -> Vec<Arc<Pod>> {
    let pod = |number: usize| {
        json!({"metadata": {"name": format!("pod-{number}")}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "startTime": at(0).to_string(), "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(0).to_string()}]}})
    };
    (0..count).map(|number| Arc::new(serde_json::from_value(pod(number)).expect("a Pod"))).collect()
}

/// Each Pod uses that many thousandths of a CPU.
fn usage(count: usize, milli: i64) -> Result<Reading, MetricsError> {
    let metric = PodMetric { timestamp: at(NOW), window: SignedDuration::from_secs(30), value: milli };
    Ok(Reading::Pods((0..count).map(|number| (format!("pod-{number}"), metric)).collect::<PodMetrics>()))
}

fn away() -> Result<Reading, MetricsError> {
    Err(MetricsError::Empty("external"))
}

struct Pass {
    decision: Decision,
    draft: Draft,
    history: History,
}

/// A pass over a target with that many replicas and Pods.
fn compute(autoscaler: &HorizontalPodAutoscaler, replicas: i32, readings: Vec<Result<Reading, MetricsError>>) -> Pass {
    let settings = Autoscaling::default();
    let snapshot = Snapshot { autoscaler, replicas: Replicas { spec: replicas, status: replicas }, settings: &settings, now: at(NOW) };
    let (mut draft, mut history) = (Draft::new(autoscaler, at(NOW)), History::default());
    let pods = pods(usize::try_from(replicas).expect("few"));
    let decision = match snapshot.start() {
        Start::Disabled => {
            disabled(&mut draft);
            Decision::Stay
        }
        Start::Rescale(rescale) => Decision::Rescale(rescale),
        Start::Compute => snapshot.compute(&pods, readings, &mut history, &mut draft),
    };
    match &decision {
        Decision::Stuck => {}
        Decision::Stay => snapshot.stayed(&mut draft),
        Decision::Rescale(rescale) => snapshot.rescaled(rescale, &mut history, &mut draft),
    }
    Pass { decision, draft, history }
}

fn rescale(replicas: i32, reason: &str) -> Decision {
    Decision::Rescale(Rescale { replicas, reason: reason.to_owned() })
}

/// Status and reason of a condition.
fn says(pass: &Pass, kind: &str) -> String {
    let conditions = pass.draft.status.conditions.iter().flatten();
    let condition = conditions.into_iter().find(|condition| condition.type_ == kind);
    condition.map_or_else(String::new, |one| format!("{} {}", one.status, one.reason.as_deref().unwrap_or_default()))
}

fn notes(pass: &Pass) -> Vec<String> {
    pass.draft.notes.iter().map(|note| format!("{}: {}", note.reason, note.message)).collect()
}

#[test]
fn a_busy_target_gets_replicas_and_the_status_says_why() {
    let web = autoscaler(json!({"metrics": [cpu(50), queue(&value("100"))]}), json!({}));
    let pass = compute(&web, 3, vec![usage(3, 800), Ok(Reading::Total(120_000))]);
    assert_eq!(pass.decision, rescale(5, "cpu resource utilization (percentage of request) above target"));
    assert_eq!(notes(&pass), ["SuccessfulRescale: New size: 5; reason: cpu resource utilization (percentage of request) above target"]);
    insta::assert_json_snapshot!(pass.draft.status);
    // Nothing changes at the target.
    let status = json!({"conditions": pass.draft.status.conditions, "desiredReplicas": 5});
    let web = autoscaler(json!({"metrics": [cpu(50)]}), status);
    let pass = compute(&web, 5, vec![usage(5, 500)]);
    assert_eq!(pass.decision, Decision::Stay);
    assert_eq!(
        (says(&pass, ABLE_TO_SCALE).as_str(), says(&pass, SCALED_TO_ZERO).as_str()),
        ("True ReadyForNewScale", "False NotScaledToZero")
    );
    let fewer = compute(&web, 5, vec![usage(5, 100)]);
    assert_eq!(fewer.decision, rescale(1, "All metrics below target"));
}

#[test]
fn the_largest_proposal_counts() {
    let metrics = json!([cpu(50), queue(&value("100")), {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}}]);
    let web = autoscaler(json!({"metrics": metrics}), json!({}));
    let pass = compute(&web, 2, vec![usage(2, 500), Ok(Reading::Total(150_000)), usage(2, 20_000)]);
    assert_eq!(pass.decision, rescale(4, "pods metric rps above target"));
}

#[test]
fn beyond_a_limit_no_metric_counts() {
    let web = autoscaler(json!({"minReplicas": 2, "metrics": [cpu(50)]}), json!({}));
    assert_eq!(compute(&web, 12, vec![]).decision, rescale(10, "Current number of replicas above Spec.MaxReplicas"));
    assert_eq!(compute(&web, 1, vec![]).decision, rescale(2, "Current number of replicas below Spec.MinReplicas"));
    let pass = compute(&web, 0, vec![]);
    assert_eq!((pass.decision.clone(), says(&pass, SCALING_ACTIVE)), (Decision::Stay, "False ScalingDisabled".to_owned()));
    assert_eq!((pass.draft.status.current_replicas, pass.draft.status.desired_replicas), (None, 0));
}

#[test]
fn metrics_that_are_missing_stop_scale_downs_alone() {
    let web = autoscaler(json!({"metrics": [queue(&value("100")), cpu(50)]}), json!({"desiredReplicas": 4}));
    let up = compute(&web, 4, vec![away(), usage(4, 1000)]);
    assert_eq!(up.decision, rescale(8, "cpu resource utilization (percentage of request) above target"));
    assert_eq!(says(&up, SCALING_ACTIVE), "True ValidMetricFound");
    let down = compute(&web, 4, vec![away(), usage(4, 100)]);
    assert_eq!((down.decision.clone(), says(&down, SCALING_ACTIVE)), (Decision::Stuck, "False FailedGetExternalMetric".to_owned()));
    let why = "unable to get external metric ns/queue/nil: no metrics returned from external metrics API";
    let error = format!(
        "invalid metrics (1 invalid out of 2), first error is: failed to get queue external metric value: failed to get external metric queue: {why}"
    );
    assert_eq!(notes(&down), [format!("FailedGetExternalMetric: {why}"), format!("FailedComputeMetricsReplicas: {error}")]);
    let kinds: Vec<&str> = down.draft.status.current_metrics.iter().flatten().map(|metric| metric.type_.as_str()).collect();
    assert_eq!((kinds, down.draft.status.desired_replicas), (vec!["", "Resource"], 4));
    let none = compute(&web, 4, vec![away(), away()]);
    assert_eq!(none.decision, Decision::Stuck);
}

#[test]
fn an_idle_target_goes_to_zero_and_comes_back() {
    let spec = |min: i32| json!({"minReplicas": min, "metrics": [queue(&value("100"))]});
    let idle = compute(&autoscaler(spec(0), json!({})), 1, vec![Ok(Reading::Total(0))]);
    assert_eq!(
        (idle.decision.clone(), says(&idle, SCALED_TO_ZERO)),
        (rescale(0, "All metrics below target"), "True ScaledToZero".to_owned())
    );
    let at_zero = |min| autoscaler(spec(min), json!({"conditions": idle.draft.status.conditions}));
    let still = compute(&at_zero(0), 0, vec![Ok(Reading::Total(0))]);
    assert_eq!((still.decision.clone(), says(&still, SCALED_TO_ZERO)), (Decision::Stay, "True ScaledToZero".to_owned()));
    let back = compute(&at_zero(0), 0, vec![Ok(Reading::Total(250_000))]);
    assert_eq!(back.decision, rescale(3, "external metric queue(nil) above target"));
    assert_eq!(says(&back, SCALED_TO_ZERO), "False NotScaledToZero");
    assert_eq!(compute(&at_zero(2), 0, vec![Ok(Reading::Total(100_000))]).decision, rescale(2, "external metric queue(nil) above target"));
    // A user's zero stays, and so does one without a metric that counts without Pods.
    assert_eq!(compute(&autoscaler(spec(0), json!({})), 0, vec![Ok(Reading::Total(250_000))]).decision, Decision::Stay);
    let resources = autoscaler(json!({"minReplicas": 0, "metrics": [cpu(50)]}), json!({"conditions": idle.draft.status.conditions}));
    assert_eq!(says(&compute(&resources, 0, vec![usage(0, 0)]), SCALING_ACTIVE), "False ScalingDisabled");
}

#[test]
fn behavior_has_its_own_tolerance_and_remembers_changes() {
    let rules = |tolerance: &str| json!({"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}], "tolerance": tolerance});
    let mut up = rules("0.01");
    up["stabilizationWindowSeconds"] = 0.into();
    let web = autoscaler(json!({"metrics": [cpu(50)], "behavior": {"scaleUp": up, "scaleDown": rules("500m")}}), json!({}));
    let pass = compute(&web, 3, vec![usage(3, 530)]);
    assert_eq!(pass.decision, rescale(4, "cpu resource utilization (percentage of request) above target"));
    assert_eq!(pass.history.at_start_of(SignedDuration::from_secs(60), 4, at(NOW)), 3);
    assert_eq!(compute(&web, 3, vec![usage(3, 260)]).decision, Decision::Stay);
}

#[test]
fn every_target_has_its_entry_in_the_status() {
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"});
    let object =
        |target: Value| json!({"type": "Object", "object": {"describedObject": ingress, "metric": {"name": "rps"}, "target": target}});
    let average = |amount: &str| json!({"type": "AverageValue", "averageValue": amount});
    let labelled = json!({"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}}, "target": average("2")}});
    let resource = |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let container = json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50}}});
    for (metric, reading, wanted) in [
        (object(value("10")), Ok(Reading::Total(20_000)), (4, "Ingress metric rps", json!({"value": "20"}))),
        (object(average("2500m")), Ok(Reading::Total(9_000)), (4, "external metric rps(nil)", json!({"averageValue": "4500m"}))),
        (
            labelled,
            Ok(Reading::Total(6_000)),
            (
                3,
                "external metric queue(&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},})",
                json!({"averageValue": "3"}),
            ),
        ),
        (resource("cpu", average("200m")), usage(2, 300), (3, "cpu resource", json!({"averageValue": "300m"}))),
        (
            resource("memory", average("1Gi")),
            usage(2, 2 * 1024 * 1024 * 1024 * 1000),
            (4, "memory resource", json!({"averageValue": "2Gi"})),
        ),
        (
            container,
            usage(2, 1000),
            (4, "cpu container resource utilization (percentage of request)", json!({"averageUtilization": 100, "averageValue": "1"})),
        ),
    ] {
        let pass = compute(&autoscaler(json!({"metrics": [metric]}), json!({})), 2, vec![reading]);
        let (replicas, name, current) = wanted;
        assert_eq!(pass.decision, rescale(replicas, &format!("{name} above target")));
        let status = json!(pass.draft.status.current_metrics);
        let (kind, entry) = status[0].as_object().expect("an entry").iter().find(|(key, _)| *key != "type").expect("a source");
        assert_eq!(entry["current"], current, "{kind}");
    }
}

#[test]
fn a_failure_is_named_as_upstream_names_it() {
    let failures = |metric: &Value, read: Result<Reading, MetricsError>| {
        let pass = compute(&autoscaler(json!({"metrics": [metric]}), json!({})), 2, vec![read]);
        assert_eq!(pass.decision, Decision::Stuck);
        notes(&pass)
    };
    let empty = |api| Err(MetricsError::Empty(api));
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    assert_eq!(
        failures(&cpu(50), empty("resource")),
        [
            format!("FailedGetResourceMetric: {why}"),
            format!(
                "FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}"
            ),
        ]
    );
    let ingress = json!({"kind": "Ingress", "name": "front"});
    let object =
        |target: Value| json!({"type": "Object", "object": {"describedObject": ingress, "metric": {"name": "rps"}, "target": target}});
    let container = json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "x", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let rps = json!({"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}});
    for (metric, read, event, error) in [
        (
            &container,
            usage(2, 100),
            "FailedGetContainerResourceMetric: failed to get cpu utilization: container x not found in Pod pod-0",
            "failed to get x container metric value: failed to get cpu utilization: container x not found in Pod pod-0",
        ),
        (
            &rps,
            empty("custom"),
            "FailedGetPodsMetric: unable to get metric rps: no metrics returned from custom metrics API",
            "failed to get pods metric value: unable to get metric rps: no metrics returned from custom metrics API",
        ),
        (
            &object(value("1")),
            empty("custom"),
            "FailedGetObjectMetric: unable to get metric rps on Ingress ns/front: no metrics returned from custom metrics API",
            "failed to get object metric value: unable to get metric rps on Ingress ns/front: no metrics returned from custom metrics API",
        ),
        (
            &object(json!({"type": "Utilization"})),
            Ok(Reading::Total(1)),
            "FailedGetObjectMetric: invalid object metric source: neither a value target nor an average value target was set",
            "failed to get object metric value: invalid object metric source: neither a value target nor an average value target was set",
        ),
        (
            &json!({"type": "Odd"}),
            Ok(Reading::Total(1)),
            "InvalidMetricSourceType: unknown metric source type \"Odd\"",
            "unknown metric source type \"Odd\"",
        ),
    ] {
        let expected = format!("FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: {error}");
        assert_eq!(failures(metric, read), [event.to_owned(), expected]);
    }
}

#[test]
fn a_condition_changes_its_time_with_its_status() {
    let old = json!({"conditions": [{"type": ABLE_TO_SCALE, "status": "True", "reason": "ReadyForNewScale", "lastTransitionTime": at(5).to_string()}]});
    let web = autoscaler(json!({}), old);
    let mut draft = Draft::new(&web, at(NOW));
    let since = |draft: &Draft| draft.status.conditions.as_ref().expect("conditions")[0].last_transition_time.clone().expect("a time").0;
    scale_read(&mut draft);
    assert_eq!(since(&draft), at(5));
    no_scale(&NoScale::NoKind { kind: "Web".to_owned(), group: "x.io".to_owned() }, &mut draft);
    assert_eq!(since(&draft), at(NOW));
    assert_eq!(draft.notes.first().map(|note| note.message.as_str()), Some("no matches for kind \"Web\" in group \"x.io\""));
    assert_eq!(draft.status.observed_generation, None, "as upstream, nothing else is written");
}

#[test]
fn a_target_needs_a_selector() {
    let web = autoscaler(json!({}), json!({"desiredReplicas": 2}));
    let settings = Autoscaling::default();
    let snapshot = Snapshot { autoscaler: &web, replicas: Replicas { spec: 3, status: 3 }, settings: &settings, now: at(NOW) };
    let check = |text: &str, reason: &str, event: &str, message: &str| {
        let mut draft = Draft::new(&web, at(NOW));
        assert_eq!(snapshot.selector(text, &mut draft), None, "{text}");
        assert_eq!((draft.status.current_replicas, draft.status.desired_replicas), (Some(3), 2));
        let pass = Pass { decision: Decision::Stuck, draft, history: History::default() };
        assert_eq!(says(&pass, SCALING_ACTIVE), format!("False {reason}"));
        assert_eq!(notes(&pass), [format!("{event}: {message}"), format!("FailedComputeMetricsReplicas: {message}")]);
    };
    check("", "InvalidSelector", "SelectorRequired", "selector is required");
    let why = api_model::selector::Selector::parse("a=b,,").expect_err("no requirement between the commas");
    let message = format!("couldn't convert selector into a corresponding internal selector object: {why}");
    check("a=b,,", "InvalidSelector", "InvalidSelector", &message);
    assert!(snapshot.selector("app=web", &mut Draft::new(&web, at(NOW))).is_some());
}
