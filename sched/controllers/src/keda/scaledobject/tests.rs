//! Tables of the rules, the state of the triggers, the decisions and the autoscaler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Value, json};

use super::annotations::Pauses;
use super::assess::{Reading, State, assess};
use super::decide::{Scale, Snapshot};
use super::fallback::{self, Present};
use super::poll::latest;
use super::{Draft, autoscaler, rules};
use crate::external::{Latest, LatestValues, NoValue, ScaledObjectMetrics};
use crate::keda::VERSION;
use crate::keda::kinds::ScaledObject;
use crate::keda::loops::Begun;
use crate::keda::spec::{ScaledObjectSpec, check_triggers};
use crate::keda::status::{ACTIVE, READY, ScaledObjectStatus, TargetKind};
use crate::keda::triggers::{Config, Sample, Trigger};
use crate::meta;

fn spec(value: Value) -> ScaledObjectSpec {
    serde_json::from_value(value).expect("a spec")
}

fn object(name: &str, metadata: Value, spec: &Value) -> Arc<ScaledObject> {
    let mut whole =
        json!({"metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
    meta::overlay(&mut whole, &json!({"metadata": metadata}));
    Arc::new(serde_json::from_value(whole).expect("a ScaledObject"))
}

fn deployment() -> TargetKind {
    let [group, version, kind, resource] = ["apps", "v1", "Deployment", "deployments"].map(str::to_owned);
    TargetKind { group, version, kind, resource }
}

fn workload(index: usize, metric_type: &str) -> Trigger {
    let spec = json!({"type": "kubernetes-workload", "metadata": {"podSelector": "a", "value": "2"}, "metricType": metric_type});
    let spec = serde_json::from_value(spec).expect("a trigger");
    Trigger::build(&Config { index, namespace: "default", spec: &spec, credentials: BTreeMap::new() }).expect("a trigger")
}

#[test]
fn wrong_specs_have_upstreams_words() {
    let cpu = || json!([{"type": "cpu", "metadata": {}}]);
    let cron = || json!([{"type": "cron", "metadata": {}}]);
    let all = |spec: &ScaledObjectSpec| {
        rules::check_bounds(spec)
            .and_then(|()| check_triggers(&spec.triggers))
            .and_then(|()| rules::check_fallback(spec))
            .and_then(|()| rules::check_scale_to_zero(spec))
    };
    for (value, wanted) in [
        (json!({"triggers": cron()}), ""),
        (json!({"triggers": cron(), "minReplicaCount": 3, "maxReplicaCount": 2}), "MinReplicaCount=3 must be less than MaxReplicaCount=2"),
        (
            json!({"triggers": cron(), "minReplicaCount": 2, "idleReplicaCount": 2}),
            "IdleReplicaCount=2 must be less than MinReplicaCount=2",
        ),
        (json!({"triggers": cron(), "idleReplicaCount": 0}), "IdleReplicaCount=0 must be less than MinReplicaCount=0"),
        (json!({"triggers": cron(), "idleReplicaCount": 0, "minReplicaCount": 1}), ""),
        (json!({"triggers": []}), "no triggers defined in the ScaledObject/ScaledJob"),
        (
            json!({"triggers": [{"type": "cron", "name": "a", "metadata": {}}, {"type": "cron", "name": "a", "metadata": {}}]}),
            "triggerName \"a\" is defined multiple times in the ScaledObject/ScaledJob, but it must be unique",
        ),
        (
            json!({"triggers": [{"type": "cron", "useCachedMetrics": true}]}),
            "property \"useCachedMetrics\" is not supported for \"cron\" scaler",
        ),
        (
            json!({"triggers": cpu()}),
            "scaledobject has only cpu/memory triggers AND minReplica is 0 (scale to zero doesn't work in this case)",
        ),
        (json!({"triggers": cpu(), "minReplicaCount": 1}), ""),
        (
            json!({"triggers": cpu(), "minReplicaCount": 1, "fallback": {"failureThreshold": 1, "replicas": 1}}),
            "at least one trigger (that is not cpu or memory) has to have the `AverageValue` type for the fallback to be enabled",
        ),
        (
            json!({"triggers": cron(), "fallback": {"failureThreshold": 1, "replicas": 1, "behavior": "scalingModifiers"}}),
            "scalingModifiers fallback behavior requires scalingModifiers.formula to be defined",
        ),
        (
            json!({"triggers": cron(), "advanced": {"scalingModifiers": {"formula": "a + b", "target": "1"}}}),
            "error validating formula in ScalingModifiers: scalingModifiers is not supported",
        ),
    ] {
        let found = all(&spec(value.clone())).err().map(String::from).unwrap_or_default();
        assert_eq!(found, wanted, "{value}");
    }
    let long = "a".repeat(64);
    assert!(rules::check_names(&long, "short").expect_err("too long").contains("is 64 characters long"));
    assert!(rules::check_names("short", &long).expect_err("too long").starts_with("HPA name"));
}

#[test]
fn a_workload_has_one_scaled_object() {
    let of = |name: &str| json!({"scaleTargetRef": {"name": name}, "triggers": [{"type": "cron", "metadata": {}}]});
    let mut renamed = of("other");
    meta::overlay(&mut renamed, &json!({"advanced": {"horizontalPodAutoscalerConfig": {"name": "keda-hpa-b"}}}));
    let own = object("b", json!({}), &of("web"));
    let check = |other: &Arc<ScaledObject>| {
        let found = rules::check_rivals(&own, &spec(of("web")), &deployment(), &[Arc::clone(other), Arc::clone(&own)]);
        found.err().map(String::from).unwrap_or_default()
    };
    assert_eq!(
        check(&object("a", json!({}), &of("web"))),
        "the workload 'web' of type 'apps/v1.Deployment' is already managed by the ScaledObject 'a'"
    );
    assert_eq!(check(&object("c", json!({}), &of("web"))), "", "the first one by name has the right");
    assert_eq!(check(&object("a", json!({"creationTimestamp": "2026-01-02T00:00:00Z"}), &of("web"))), "", "the older one has the right");
    assert_eq!(check(&object("a", json!({}), &of("api"))), "");
    assert_eq!(check(&object("a", json!({}), &renamed)), "the HPA 'keda-hpa-b' is already managed by the ScaledObject 'a'");
}

#[test]
fn a_workload_has_one_autoscaler() {
    let autoscaler = |annotations: Value, owner: &str| -> Arc<HorizontalPodAutoscaler> {
        let owner = json!([{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "b", "uid": owner, "controller": true}]);
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let whole = json!({"metadata": {"name": "hand-made", "annotations": annotations, "ownerReferences": owner},
            "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
        Arc::new(serde_json::from_value(whole).expect("an autoscaler"))
    };
    let of = |advanced: Value| json!({"scaleTargetRef": {"name": "web"}, "advanced": advanced});
    let transfer = || json!({"annotations": {"scaledobject.keda.sh/transfer-hpa-ownership": "true"}});
    let named = || json!({"horizontalPodAutoscalerConfig": {"name": "hand-made"}});
    for (metadata, advanced, stored, wanted) in [
        (
            json!({}),
            json!({}),
            autoscaler(json!({}), "z"),
            "the workload 'web' of type 'apps/v1.Deployment' is already managed by the hpa 'hand-made'",
        ),
        (json!({}), json!({}), autoscaler(json!({}), "b"), ""),
        (json!({}), json!({}), autoscaler(json!({"validations.keda.sh/hpa-ownership": "false"}), "z"), ""),
        (
            transfer(),
            json!({}),
            autoscaler(json!({}), "z"),
            "the existing hpa 'hand-made' for workload 'web' of type 'apps/v1.Deployment' must be specified by name in advanced settings to enable ownership transfer",
        ),
        (transfer(), named(), autoscaler(json!({}), "z"), ""),
    ] {
        let spec_value = of(advanced);
        let own = object("b", metadata, &spec_value);
        let found = rules::check_autoscalers(&own, &spec(spec_value), &deployment(), &[stored]);
        assert_eq!(found.err().map(String::from).unwrap_or_default(), wanted);
    }
}

#[test]
fn a_trigger_error_stays_until_the_next_look() {
    let begin = |reason: &str, status: &str| Draft::new(&json!({"conditions": [{"type": "Ready", "status": status, "reason": reason}]}));
    for (mut draft, begun, status, events) in [
        (begin("", "Unknown"), Begun::New, "True", 1),
        (begin("ScaledObjectCheckFailed", "False"), Begun::Waiting(Duration::ZERO), "True", 1),
        (begin("ScaledObjectReady", "True"), Begun::Due, "True", 0),
        (begin("TriggerError", "False"), Begun::Waiting(Duration::ZERO), "False", 0),
        (begin("TriggerError", "False"), Begun::Due, "False", 0),
        (begin("PartialTriggerError", "Unknown"), Begun::New, "Unknown", 0),
        (begin("TriggerError", "False"), Begun::Changed, "True", 1),
    ] {
        draft.checked(begun);
        assert!(draft.status.conditions.is(READY, status), "{begun:?}: {:?}", draft.status);
        assert_eq!(draft.notes.len(), events, "{begun:?}: {:?}", draft.status);
    }
    let mut draft = begin("TriggerError", "False");
    draft.recovered();
    assert!(draft.status.conditions.is(READY, "True") && draft.notes.is_empty());
}

#[test]
fn a_look_replaces_the_values_of_the_one_before() {
    let (metrics, key, at) = (ScaledObjectMetrics::default(), ObjectKey::new("a", "b"), Timestamp::UNIX_EPOCH);
    assert_eq!(metrics.latest("a", "b", "s0-a"), Err(NoValue::NotLeading));
    let values = Arc::new(LatestValues::default());
    metrics.publish(&values);
    let of = |names: &[&str], served| names.iter().map(|name| ((*name).to_owned(), Latest { read: Some(7), served })).collect();
    values.put(&key, at, of(&["s0-a", "s1-b"], Some(7)));
    values.put(&key, at, of(&["s0-c"], Some(8)));
    assert_eq!(["s0-a", "s1-b", "s0-c"].map(|name| values.read(&key, name)), [None, None, Some(Some(7))]);
    assert_eq!(["s0-a", "s0-c"].map(|name| metrics.latest("a", "b", name)), [Err(NoValue::Unknown), Ok((8, at))]);
    values.put(&key, at, of(&["s0-c"], None));
    assert_eq!(metrics.latest("a", "b", "s0-c"), Err(NoValue::Failed));
    values.remove(&key);
    assert_eq!(metrics.latest("a", "b", "s0-c"), Err(NoValue::Unknown));
    drop(values);
    assert_eq!(metrics.latest("a", "b", "s0-c"), Err(NoValue::NotLeading), "the controllers have ended");
}

fn sample(value: i64, is_active: bool) -> Result<Sample, api_model::message::Message> {
    Ok(Sample { milli: value * 1_000, is_active })
}

#[test]
fn failures_are_counted_until_the_fallback_counts() {
    let spec = spec(json!({"triggers": [{"type": "kubernetes-workload"}], "fallback": {"failureThreshold": 2, "replicas": 6}}));
    let trigger = workload(0, "");
    let present = Present { replicas: 3, ready: 0 };
    let name = "s0-workload-default".to_owned();
    let mut status = ScaledObjectStatus { external_metric_names: vec![name.clone()], ..ScaledObjectStatus::default() };
    let served = |result, status: &ScaledObjectStatus| latest(&Reading { trigger: &trigger, result }, &spec, present, status);
    let value = |read, served| Some((name.clone(), Latest { read, served }));
    assert_eq!(served(Err("broken".into()), &status), value(None, None));
    assert_eq!(served(sample(2, true), &status), value(Some(2_000), Some(2_000)));
    let mut look = |result| assess(&spec, &[Reading { trigger: &trigger, result }], present, &mut status);
    assert_eq!(look(sample(1, true)), State { is_active: true, active: vec![name.clone()], ..State::default() });
    for _ in 0..2 {
        let failed = look(Err("broken".into()));
        assert_eq!(failed, State { is_error: true, problems: vec!["broken".into()], ..State::default() });
    }
    assert_eq!(look(Err("broken".into())), State { is_active: true, is_fallback: true, active: vec![name.clone()], ..State::default() });
    assert_eq!(served(Err("broken".into()), &status), value(None, Some(12_000)), "six replicas, each for a value of two");
    let mut look = |result| assess(&spec, &[Reading { trigger: &trigger, result }], present, &mut status);
    assert_eq!(look(sample(0, false)), State::default(), "a success ends it");
    let health = &status.health[&name];
    assert_eq!((health.number_of_failures, health.status.as_str()), (Some(0), "Happy"));
}

#[test]
fn without_a_fallback_nothing_is_counted() {
    let spec = spec(json!({"triggers": [{"type": "kubernetes-workload"}]}));
    let (trigger, mut status) = (workload(0, ""), ScaledObjectStatus::default());
    let present = Present { replicas: 0, ready: 0 };
    let state = assess(&spec, &[Reading { trigger: &trigger, result: Err("broken".into()) }], present, &mut status);
    assert!(state.is_error && !state.is_active && status.health.is_empty());
}

#[test]
fn the_fallback_is_the_value_of_its_replicas() {
    let fallback =
        |behavior: &str| serde_json::from_value(json!({"failureThreshold": 1, "replicas": 6, "behavior": behavior})).expect("a fallback");
    for (behavior, replicas, ready, type_, wanted) in [
        ("", 3, 0, "AverageValue", Some(12_000)),
        ("static", 3, 0, "AverageValue", Some(12_000)),
        ("currentReplicas", 3, 0, "AverageValue", Some(6_000)),
        ("currentReplicasIfHigher", 3, 0, "AverageValue", Some(12_000)),
        ("currentReplicasIfHigher", 9, 0, "AverageValue", Some(18_000)),
        ("currentReplicasIfLower", 3, 0, "AverageValue", Some(6_000)),
        ("currentReplicasIfLower", 9, 0, "AverageValue", Some(12_000)),
        ("static", 3, 2, "Value", Some(6_000)),
        ("static", 3, 0, "Value", None),
    ] {
        assert_eq!(
            fallback::value(&fallback(behavior), Present { replicas, ready }, (type_, 2_000)),
            wanted,
            "{behavior} {replicas} {type_}"
        );
    }
}

struct Case {
    spec: Value,
    annotations: Value,
    replicas: i32,
    state: State,
    /// Seconds since a trigger was last active.
    last_active: Option<i64>,
}

fn decide(case: Case) -> (Scale, ScaledObjectStatus) {
    let Case { spec: value, annotations, replicas, state, last_active } = case;
    let object = object("web", json!({"annotations": annotations}), &value);
    let now: jiff::Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
    let since = |seconds| meta::whole_seconds(now.checked_sub(jiff::SignedDuration::from_secs(seconds)).expect("in range"));
    let mut status = ScaledObjectStatus { last_active_time: last_active.map(since), ..ScaledObjectStatus::default() };
    let created = meta::instant(object.metadata.creation_timestamp.as_ref()).expect("a time");
    let spec = spec(value);
    let snapshot = Snapshot { spec: &spec, pauses: Pauses::of(&object.metadata), created, replicas, now };
    let scale = snapshot.decide(&state, &mut status);
    (scale, status)
}

#[test]
fn a_target_goes_to_zero_and_comes_back() {
    let active = || State { is_active: true, ..State::default() };
    let idle = State::default;
    let (min, with_idle) = (json!({"minReplicaCount": 2}), json!({"minReplicaCount": 3, "idleReplicaCount": 1}));
    for (spec, annotations, replicas, state, last_active, wanted, reason) in [
        (json!({}), json!({}), 0, active(), None, Scale::Activate(1), "ScalerActive"),
        (min.clone(), json!({}), 0, active(), None, Scale::Activate(2), "ScalerActive"),
        (json!({}), json!({}), 4, active(), None, Scale::Stay, "ScalerActive"),
        (json!({}), json!({}), 4, idle(), Some(301), Scale::Deactivate(0), "ScalerNotActive"),
        (json!({}), json!({}), 4, idle(), Some(300), Scale::Stay, "ScalerCooldown"),
        (json!({"cooldownPeriod": 10}), json!({}), 4, idle(), Some(11), Scale::Deactivate(0), "ScalerNotActive"),
        // Created a minute ago, never active.
        (json!({}), json!({}), 4, idle(), None, Scale::Deactivate(0), "ScalerNotActive"),
        (json!({"initialCooldownPeriod": 120}), json!({}), 4, idle(), None, Scale::Stay, "ScalerCooldown"),
        (json!({}), json!({}), 0, idle(), None, Scale::Stay, "ScalerNotActive"),
        (min.clone(), json!({}), 5, idle(), None, Scale::Stay, "ScalerNotActive"),
        (min, json!({}), 1, idle(), None, Scale::Minimum(2), "ScalerNotActive"),
        (with_idle.clone(), json!({}), 3, idle(), None, Scale::Deactivate(1), "ScalerNotActive"),
        (with_idle.clone(), json!({}), 1, idle(), None, Scale::Stay, "ScalerNotActive"),
        (with_idle.clone(), json!({}), 0, idle(), None, Scale::Stay, "ScalerNotActive"),
        (with_idle, json!({}), 1, active(), None, Scale::Activate(3), "ScalerActive"),
        (json!({}), json!({"autoscaling.keda.sh/paused-scale-in": "true"}), 4, idle(), None, Scale::Stay, "ScalerNotActive"),
        (json!({}), json!({"autoscaling.keda.sh/paused-scale-in": "false"}), 4, idle(), None, Scale::Deactivate(0), "ScalerNotActive"),
        (json!({}), json!({"autoscaling.keda.sh/paused-scale-out": "yes"}), 0, active(), None, Scale::Stay, "ScalerActive"),
        (json!({}), json!({"autoscaling.keda.sh/force-activation": "true"}), 0, idle(), None, Scale::Activate(1), "ScalerActive"),
    ] {
        let text = format!("{spec} {annotations} {replicas} {state:?} {last_active:?}");
        let (scale, status) = decide(Case { spec, annotations, replicas, state, last_active });
        assert_eq!(scale, wanted, "{text}");
        assert_eq!(status.conditions.get(ACTIVE).map(|condition| condition.reason.as_str()), Some(reason), "{text}");
    }
}

#[test]
fn errors_keep_a_target_as_it_is() {
    let broken = |is_active| State { is_error: true, is_active, ..State::default() };
    let with_fallback = json!({"fallback": {"failureThreshold": 3, "replicas": 6}});
    for (spec, state, wanted, reason) in [
        (json!({}), broken(false), Scale::Stay, Some("TriggerError")),
        (json!({}), broken(true), Scale::Stay, Some("PartialTriggerError")),
        (with_fallback, broken(false), Scale::Stay, None),
        (json!({"fallback": {"failureThreshold": 3, "replicas": 0}}), broken(false), Scale::Deactivate(0), None),
    ] {
        let text = format!("{spec} {state:?}");
        let (scale, status) = decide(Case { spec, annotations: json!({}), replicas: 4, state, last_active: None });
        assert_eq!((scale, status.conditions.get(READY).map(|condition| condition.reason.as_str())), (wanted, reason), "{text}");
    }
}

#[test]
fn the_autoscaler_is_upstreams() {
    let value = json!({"scaleTargetRef": {"name": "web"}, "maxReplicaCount": 7, "triggers": [{"type": "kubernetes-workload"}],
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}}});
    let annotations = json!({"note": "x", "autoscaling.keda.sh/paused-scale-out": "true", "scaledobject.keda.sh/hpa-excluded-labels": "secret",
        "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let own = object("web", json!({"labels": {"team": "a", "secret": "b"}, "annotations": annotations}), &value);
    let triggers = [Arc::new(workload(0, ""))];
    let (metrics, [externals, resources]) = autoscaler::metrics("web", &triggers).expect("metrics");
    assert_eq!((externals, resources), (vec!["s0-workload-default".to_owned()], Vec::new()));
    let wanted = autoscaler::wanted(&own, &spec(value), &deployment(), metrics);
    assert_eq!(
        json!(wanted),
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": "keda-hpa-web", "namespace": "default",
                "labels": {"app.kubernetes.io/managed-by": "keda-operator", "app.kubernetes.io/name": "keda-hpa-web",
                    "app.kubernetes.io/part-of": "web", "app.kubernetes.io/version": VERSION, "team": "a"},
                "annotations": {"note": "x", "autoscaling.keda.sh/paused-scale-out": "true",
                    "scaledobject.keda.sh/hpa-excluded-labels": "secret"},
                "ownerReferences": [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "web",
                    "controller": true, "blockOwnerDeletion": true}],
            },
            "spec": {
                "minReplicas": 1, "maxReplicas": 7,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}, "scaleUp": {"selectPolicy": "Disabled"}},
                "metrics": [{"type": "External", "external": {
                    "metric": {"name": "s0-workload-default", "selector": {"matchLabels": {"scaledobject.keda.sh/name": "web"}}},
                    "target": {"type": "AverageValue", "averageValue": "2"},
                }}],
            },
        })
    );
    let patch = autoscaler::patch(&wanted);
    assert_eq!(
        patch["spec"]["behavior"]["scaleDown"],
        json!({"selectPolicy": null, "stabilizationWindowSeconds": 5, "tolerance": null, "policies": null})
    );
    assert!(autoscaler::has(&wanted, &patch));
    let mut other = wanted.clone();
    other.spec.max_replicas = 8;
    assert!(!autoscaler::has(&other, &patch));
    let twice = [Arc::new(workload(0, "")), Arc::new(workload(0, ""))];
    let error = autoscaler::metrics("web", &twice).expect_err("the same name");
    assert_eq!(error, "metricName s0-workload-default defined multiple times in ScaledObject web");
}
