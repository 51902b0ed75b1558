use super::*;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use serde_json::{Value, json};

fn set(replicas: i32, extra: Value) -> ReplicaSet {
    let mut value = json!({
        "metadata": {"name": "web-1", "namespace": "default", "uid": "u", "generation": 4},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web", "tier": "front"}, "annotations": {"note": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    for (key, extra) in extra.as_object().expect("an object") {
        value[key] = extra.clone();
    }
    serde_json::from_value(value).expect("a ReplicaSet")
}

fn pod_named(name: &str, labels: Value, ready: bool) -> Arc<Pod> {
    let ready = if ready { "True" } else { "False" };
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2024-01-01T00:00:00Z"}]},
        }))
        .expect("a Pod"),
    )
}

fn now() -> Timestamp {
    "2024-01-01T00:00:10Z".parse().expect("a time")
}

#[test]
fn missing_pods_are_created_and_surplus_deleted() {
    let pods = [pod_named("a", json!({}), true), pod_named("b", json!({}), false), pod_named("c", json!({}), true)];
    let manage = |replicas: i32| manage(&set(replicas, json!({})), &pods, Vec::new, now());
    assert_eq!(manage(5), Manage::Create(2));
    assert_eq!(manage(3), Manage::Nothing);
    let Manage::Delete(gone) = manage(2) else { panic!("one too many") };
    assert_eq!(gone.iter().map(|p| meta::name(&p.metadata)).collect::<Vec<_>>(), ["b"], "the unready one goes");
    assert_eq!(manage(10_000), Manage::Create(500), "at most a burst");
}

#[test]
fn a_pod_carries_the_template_and_its_controller() {
    let pod = pod(&set(1, json!({})));
    insta::assert_json_snapshot!(serde_json::to_value(&pod).expect("json"), @r#"
    {
      "apiVersion": "v1",
      "kind": "Pod",
      "metadata": {
        "annotations": {
          "note": "x"
        },
        "generateName": "web-1-",
        "labels": {
          "app": "web",
          "tier": "front"
        },
        "namespace": "default",
        "ownerReferences": [
          {
            "apiVersion": "apps/v1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "ReplicaSet",
            "name": "web-1",
            "uid": "u"
          }
        ]
      },
      "spec": {
        "containers": [
          {
            "image": "i",
            "name": "c"
          }
        ]
      }
    }
    "#);
}

#[test]
fn status_counts_ready_available_and_labelled_pods() {
    let pods = [
        pod_named("a", json!({"app": "web", "tier": "front"}), true),
        pod_named("b", json!({"app": "web"}), true),
        pod_named("c", json!({"app": "web"}), false),
    ];
    let set = set(3, json!({}));
    let status = status(&set, &Counted { active: &pods, terminating: 1, failure: None }, now());
    insta::assert_json_snapshot!(status, @r#"
    {
      "availableReplicas": 2,
      "fullyLabeledReplicas": 1,
      "observedGeneration": 4,
      "readyReplicas": 2,
      "replicas": 3,
      "terminatingReplicas": 1
    }
    "#);
}

#[test]
fn a_failure_is_a_condition_until_it_is_over() {
    let failing = Counted { active: &[], terminating: 0, failure: Some("exceeded quota".to_owned()) };
    let failed = status(&set(1, json!({})), &failing, now());
    insta::assert_json_snapshot!(failed.conditions, @r#"
    [
      {
        "lastTransitionTime": "2024-01-01T00:00:10Z",
        "message": "exceeded quota",
        "reason": "FailedCreate",
        "status": "True",
        "type": "ReplicaFailure"
      }
    ]
    "#);
    let before = set(1, json!({"status": failed}));
    let later = status(&before, &Counted { active: &[], terminating: 0, failure: None }, now());
    assert_eq!(later.conditions, None);
}

#[test]
fn a_replication_controller_has_the_same_status() {
    let value = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 4},
        "spec": {"replicas": 3, "selector": {"app": "web"}, "template": {"metadata": {"labels": {"app": "web"}}}},
    });
    let controller: ReplicationController = serde_json::from_value(value.clone()).expect("a ReplicationController");
    assert_eq!(manage(&controller, &[], Vec::new, now()), Manage::Create(3));
    let pods = [pod_named("a", json!({"app": "web"}), true)];
    let failing = Counted { active: &pods, terminating: 1, failure: Some("exceeded quota".to_owned()) };
    let status = status(&controller, &failing, now());
    insta::assert_json_snapshot!(status, @r#"
    {
      "availableReplicas": 1,
      "conditions": [
        {
          "lastTransitionTime": "2024-01-01T00:00:10Z",
          "message": "exceeded quota",
          "reason": "FailedCreate",
          "status": "True",
          "type": "ReplicaFailure"
        }
      ],
      "fullyLabeledReplicas": 1,
      "observedGeneration": 4,
      "readyReplicas": 1,
      "replicas": 1
    }
    "#);
    let mut failed = value;
    failed["status"] = json!(status);
    let failed: ReplicationController = serde_json::from_value(failed).expect("a ReplicationController");
    let later = super::status(&failed, &Counted { active: &pods, terminating: 0, failure: None }, now());
    assert_eq!(later.conditions, None, "the failure is over");
    let without: ReplicationController = serde_json::from_value(json!({"spec": {}})).expect("a ReplicationController");
    assert!(!meta::matches(&without.selector(), Some(&std::collections::BTreeMap::from([("app".to_owned(), "web".to_owned())]))));
}

#[test]
fn deleted_pods_are_compared_with_the_youngest() {
    let aged = |name: &str, seconds: i64, ready: bool| {
        let mut pod = Pod::clone(&pod_named(name, json!({}), ready));
        pod.metadata.creation_timestamp = Some(meta::whole_seconds(now() - jiff::SignedDuration::from_secs(seconds)));
        Arc::new(pod)
    };
    let pods = [aged("old", 40, true), aged("young", 10, true), aged("newest", 1, false)];
    assert_eq!(age_ratios(&pods, &pods[..2], now()), [4.0, 1.0]);
    assert_eq!(age_ratios(&pods, &pods[2..], now()), [] as [f64; 0], "a Pod that is not ready has no part");
    assert_eq!(age_ratios(&pods, &pods, now()), [] as [f64; 0], "all are deleted: nothing was chosen");
}
