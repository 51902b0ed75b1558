use serde_json::{Value, json};

use super::*;

fn pod(more: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [], "resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "nic", "resourceClaimName": "shared"},
        ]},
    });
    meta::overlay(&mut pod, &more);
    serde_json::from_value(pod).expect("a Pod")
}

fn claim(reserved: &[&str], more: Value) -> ResourceClaim {
    let consumer = |uid: &&str| json!({"resource": "pods", "name": uid, "uid": uid});
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "c", "finalizers": [release::FINALIZER, "example.com/other"]},
        "spec": {},
        "status": {"allocation": {}, "reservedFor": reserved.iter().map(consumer).collect::<Vec<_>>()},
    });
    meta::overlay(&mut claim, &more);
    serde_json::from_value(claim).expect("a claim")
}

/// What is tried, the claim, the states of the Pods that use it, the state of its own Pod, and the actions.
type Case = (&'static str, ResourceClaim, Vec<PodState>, Option<PodState>, Vec<Action>);

#[test]
fn a_claim_is_released_by_the_last_pod_that_ends() {
    use PodState::{Active, Done};
    let deallocated = || Action::SetStatus(json!({"reservedFor": null, "allocation": null, "devices": null}));
    let deleting = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}});
    let unallocated = json!({"status": {"allocation": null}});
    let plain = json!({"metadata": {"finalizers": null}});
    let rest = || Action::SetStatus(json!({"reservedFor": [{"resource": "pods", "name": "b", "uid": "b"}]}));
    let cases: Vec<Case> = vec![
        ("in use", claim(&["a"], json!({})), vec![Active], None, vec![]),
        ("one of two ended", claim(&["a", "b"], json!({})), vec![Done, Active], None, vec![rest()]),
        ("the last one ended", claim(&["a"], json!({})), vec![Done], None, vec![deallocated(), Action::RemoveFinalizer]),
        (
            "its own Pod ended",
            claim(&["a"], json!({})),
            vec![Done],
            Some(Done),
            vec![deallocated(), Action::RemoveFinalizer, Action::Delete],
        ),
        ("allocated for later", claim(&[], json!({})), vec![], None, vec![]),
        ("a new claim", claim(&[], unallocated.clone()), vec![], Some(Active), vec![]),
        ("its own Pod is not in the cache", claim(&[], unallocated.clone()), vec![], Some(PodState::Unknown), vec![]),
        ("its own Pod ended early", claim(&[], unallocated), vec![], Some(Done), vec![Action::Delete]),
        (
            "deleted while allocated",
            claim(&[], deleting.clone()),
            vec![],
            Some(Done),
            vec![Action::SetStatus(json!({"allocation": null, "devices": null})), Action::RemoveFinalizer],
        ),
        ("deleted while in use", claim(&["a"], deleting), vec![Active], None, vec![]),
        ("of another allocator", claim(&["a"], plain), vec![Done], None, vec![Action::SetStatus(json!({"reservedFor": null}))]),
    ];
    for (name, claim, states, owner, wanted) in cases {
        let consumers: Vec<_> = release::reserved_for(&claim).iter().cloned().zip(states).collect();
        assert_eq!(release::plan(&claim, &consumers, owner), wanted, "{name}");
    }
}

#[test]
fn a_template_makes_a_claim_for_a_pod() {
    let template: ResourceClaimTemplate = serde_json::from_value(json!({
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    }))
    .expect("a template");
    let pod = pod(json!({}));
    let made = generate::claim(&pod, &claims_of(&pod)[0], &template);
    assert_eq!(
        serde_json::to_value(&made).expect("json"),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": "ns",
                "generateName": "p-gpu-",
                "labels": {"a": "b"},
                "annotations": {"x": "y", "resource.kubernetes.io/pod-claim-name": "gpu"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true, "blockOwnerDeletion": true},
                ],
            },
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        })
    );
    assert!(generate::is_of(&made, "gpu") && !generate::is_of(&made, "nic") && generate::is_for_pod(&made, &pod));
    let long = self::pod(json!({"metadata": {"name": "p".repeat(60)}}));
    let base = generate::claim(&long, &claims_of(&long)[0], &template).metadata.generate_name.unwrap_or_default();
    assert!(base.len() <= 57 && base.ends_with("p-gp"), "{base}");
}

#[test]
fn a_change_of_a_pod_is_work_for_its_claims_when_it_ends() {
    let consumers = Consumers::default();
    let change = |old: Option<Pod>, new: Option<Pod>| {
        let change = Change { old: old.map(Arc::new), new: new.map(Arc::new) };
        pod_changed(&consumers, &change).iter().map(|key| format!("{key:?}")).collect::<Vec<_>>()
    };
    let key = |kind: &str, name: &str| format!("{kind}({:?})", ObjectKey::new("ns", name));
    let named = || pod(json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}));
    assert_eq!(change(None, Some(pod(json!({"spec": {"resourceClaims": null}})))), [""; 0]);
    assert_eq!(change(None, Some(pod(json!({})))), [key("Pod", "p")]);
    assert_eq!(consumers.of_template(&ObjectKey::new("ns", "t")), [ObjectKey::new("ns", "p")]);
    assert_eq!(change(Some(pod(json!({}))), Some(named())), [key("Pod", "p")]);
    assert_eq!(consumers.of_claim(&ObjectKey::new("ns", "p-gpu-x")), [ObjectKey::new("ns", "p")]);
    let ended = || {
        let mut ended = named();
        ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        ended
    };
    assert_eq!(change(Some(named()), Some(ended())), [key("Claim", "p-gpu-x"), key("Claim", "shared")]);
    assert_eq!(consumers.of_claim(&ObjectKey::new("ns", "shared")), []);
    assert_eq!(change(Some(named()), None), [key("Claim", "p-gpu-x"), key("Claim", "shared")]);
    // The scheduler created a claim for the extended resources of a Pod that names no claims.
    let backed = |phase: &str| {
        let status = json!({"phase": phase, "extendedResourceClaimStatus": {"resourceClaimName": "p-x", "requestMappings": []}});
        Some(pod(json!({"spec": {"resourceClaims": null}, "status": status})))
    };
    assert_eq!(change(None, backed("Running")), [key("Pod", "p")]);
    assert_eq!(consumers.of_claim(&ObjectKey::new("ns", "p-x")), [ObjectKey::new("ns", "p")]);
    assert_eq!(change(backed("Running"), backed("Failed")), [key("Claim", "p-x")]);
    assert_eq!(consumers.of_claim(&ObjectKey::new("ns", "p-x")), []);
    let mut replaced = pod(json!({}));
    replaced.metadata.uid = Some("other".to_owned());
    assert_eq!(change(Some(named()), Some(replaced)), [key("Claim", "p-gpu-x"), key("Claim", "shared"), key("Pod", "p")]);
}

#[tokio::test]
async fn a_cached_pod_of_the_same_name_does_not_stand_for_the_consumer() {
    use PodState::{Active, Done};
    let one = |uid: &str, phase: &str| pod(json!({"metadata": {"uid": uid}, "status": {"phase": phase}}));
    let cases = [
        ("cached", Some(one("u", "Running")), None, Active),
        ("cached and ended", Some(one("u", "Succeeded")), None, Done),
        ("the cache has the Pod before", Some(one("before", "Running")), Some(Some(one("u", "Pending"))), Active),
        ("the Pod after has the name", Some(one("before", "Running")), Some(Some(one("after", "Pending"))), Done),
        ("gone", Some(one("before", "Running")), Some(None), Done),
        ("new", None, Some(Some(one("u", "Pending"))), Active),
    ];
    for (name, cached, stored, wanted) in cases {
        let read = async { Ok(stored.expect("no read from the server")) };
        assert_eq!(state(cached.as_ref(), "u", read).await.expect("a state"), wanted, "{name}");
    }
}
