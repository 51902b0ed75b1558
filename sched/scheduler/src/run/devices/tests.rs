use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::plugins::DYNAMIC_RESOURCES;
use crate::plugins::device_fixtures::{claim, devices_of, exactly, parsed, set_class, set_slice};
use crate::run::tests::scheduler;
use crate::run::{Finished, Next};

/// A Pod with a claim: of that name, or one that a template makes.
fn pod(name: &str, claim: Option<&str>, generated: Option<&str>) -> Pod {
    let claim = match claim {
        Some(claim) => json!({"name": "gpu", "resourceClaimName": claim}),
        None => json!({"name": "gpu", "resourceClaimTemplateName": "t"}),
    };
    let spec = json!({"schedulerName": "default-scheduler", "containers": [{"name": "c"}], "resourceClaims": [claim]});
    let statuses: Vec<Value> = generated.iter().map(|claim| json!({"name": "gpu", "resourceClaimName": claim})).collect();
    let metadata = json!({"name": name, "namespace": "default", "uid": name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"resourceClaimStatuses": statuses}})).expect("a Pod")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// The names of the Pods that wait for a claim, with what they wait for.
fn waits(scheduler: &Scheduler) -> Vec<(String, String)> {
    let mut waits: Vec<_> = scheduler.claim_waits.of_pod.iter().map(|(pod, claim)| (pod.name.clone(), claim.clone())).collect();
    waits.sort();
    waits
}

#[tokio::test]
async fn pods_with_claims_wait_for_the_first_lists() {
    let (mut scheduler, pods) = (scheduler(), Informer::detached());
    pods.put(pod("p", Some("c"), None));
    scheduler.pod_applied(&pod("p", Some("c"), None));
    scheduler.pod_applied(&crate::run::tests::pod(Value::Null));
    assert_eq!(waits(&scheduler), [("p".to_owned(), String::new())]);
    assert!(scheduler.queue.contains("u") && !scheduler.queue.contains("p"), "a Pod without claims does not wait");
    scheduler.devices_synced(&pods);
    assert!(waits(&scheduler).is_empty() && scheduler.queue.contains("p"), "its cycle says what is wrong with the claim");
    scheduler.devices_synced(&pods);
    assert_eq!(scheduler.queue.counts(), [2, 0, 0]);
}

#[tokio::test]
async fn a_pod_waits_for_the_claim_that_is_made_for_it() {
    let (mut scheduler, pods) = (scheduler(), Informer::detached());
    scheduler.devices_synced(&pods);
    scheduler.pod_changed(&key("p"), Some(&pod("p", None, None)));
    assert_eq!(waits(&scheduler), [("p".to_owned(), String::new())], "its status will name the claim");
    scheduler.pod_changed(&key("p"), Some(&pod("p", None, Some("p-gpu"))));
    pods.put(pod("p", None, Some("p-gpu")));
    assert_eq!(waits(&scheduler), [("p".to_owned(), "default/p-gpu".to_owned())]);
    let made = |name: &str| Some(parsed(&claim(name, json!([exactly("r", json!({}))]))));
    scheduler.claim_changed(&key("other"), made("other"), &pods);
    assert!(!scheduler.queue.contains("p"));
    scheduler.claim_changed(&key("p-gpu"), made("p-gpu"), &pods);
    assert!(scheduler.queue.contains("p") && waits(&scheduler).is_empty());

    scheduler.pod_changed(&key("q"), Some(&pod("q", None, Some("q-gpu"))));
    scheduler.pod_changed(&key("q"), None);
    assert!(waits(&scheduler).is_empty() && scheduler.claim_waits.by_claim.is_empty(), "a Pod that is gone waits for nothing");
}

/// A write that failed after its Pod was refused: no object changes, and other Pods wait for its devices.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_write_that_failed_wakes_the_pods_that_wait_for_its_devices() {
    let mut scheduler = scheduler();
    scheduler.devices_synced(&Informer::detached());
    scheduler.node_changed(&ObjectKey::new("", "n"), Some(&crate::run::tests::node()));
    let dra = scheduler.cache.dra_mut();
    set_class(dra, "gpu", json!({}));
    set_slice(dra, &devices_of("n", &["a"]));
    let [first, second] = ["c", "d"].map(|name| parsed(&claim(name, json!([exactly("r", json!({}))]))));
    dra.set_claim("default/c", Some(Arc::clone(&first)));
    dra.set_claim("default/d", Some(second));
    let result = json!({"request": "r", "driver": crate::plugins::device_fixtures::DRIVER, "pool": "n", "device": "a"});
    let allocation = serde_json::from_value(json!({"devices": {"results": [result]}})).expect("an allocation");
    let write = dra.signal_claim_pending_allocation(&first, &allocation).expect("the only one");
    write.start();
    assert!(!dra.remove_claim_pending_allocation("uid-c", &write));

    let (finished, mut results) = tokio::sync::mpsc::channel(4);
    scheduler.finished = finished;
    scheduler.pod_applied(&pod("q", Some("d"), None));
    scheduler.schedule_one();
    let Some(Finished::Status(pod, Next::Unschedulable(rejectors))) = results.recv().await else { panic!("another result") };
    let events = &rejectors.events;
    assert!(events.contains(&ClusterEvent::ResourceClaimUpdate) && !events.contains(&ClusterEvent::AssignedPodDelete), "{events:?}");
    assert_eq!(rejectors.plugins, [DYNAMIC_RESOURCES].into());
    scheduler.status_written(&pod, Next::Unschedulable(rejectors));
    tokio::time::advance(Duration::from_secs(1)).await;
    write.failed();
    assert_eq!(scheduler.queue.counts(), [0, 0, 1]);
    scheduler.reservations.writes.spawn(async {});
    let ended = scheduler.reservations.ended().await;
    scheduler.reservation_ended(ended);
    scheduler.queue.flush(Instant::now());
    assert_eq!(scheduler.queue.counts(), [1, 0, 0]);
}

#[tokio::test]
async fn a_change_of_a_claim_wakes_pods_that_may_wait_for_its_devices() {
    let (mut scheduler, pods) = (scheduler(), Informer::detached());
    let mut changes = scheduler.pre_bind_changes.subscribe();
    let allocated = |conditions: Value| {
        let mut claim = claim("c", json!([exactly("r", json!({}))]));
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "a", "bindingConditions": conditions});
        claim["status"] = json!({"allocation": {"devices": {"results": [result]}}});
        claim
    };
    for (what, claim, is_awaited) in [
        ("not allocated", Some(claim("c", json!([exactly("r", json!({}))]))), false),
        ("allocated without conditions", Some(allocated(json!([]))), false),
        ("with conditions", Some(allocated(json!(["x"]))), true),
        ("gone", None, true),
    ] {
        scheduler.claim_changed(&key("c"), claim.as_ref().map(parsed), &pods);
        assert_eq!(changes.has_changed().expect("a sender"), is_awaited, "{what}");
        changes.borrow_and_update();
    }
}
