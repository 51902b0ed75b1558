use std::time::Duration;

use api_client::informer::ObjectKey;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::run::tests::{scheduler, waiting_for};

fn object<K: DeserializeOwned>(name: &str, more: Value) -> Objects<K> {
    let mut object = json!({"metadata": {"name": name, "namespace": "default"}});
    crate::plugins::fixtures::merge(&mut object, more);
    let object: K = serde_json::from_value(object).expect("an object");
    vec![(ObjectKey::new("default", name), Some(Arc::new(object)))]
}

fn gone<K>(name: &str) -> Objects<K> {
    vec![(ObjectKey::new("default", name), None)]
}

/// A scheduler with an unschedulable Pod that waits for the event, and that uses the claim `data`.
fn waiting(event: ClusterEvent) -> Scheduler {
    let mut scheduler = scheduler();
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let spec = json!({"schedulerName": "default-scheduler", "containers": [{"name": "c"}], "volumes": volumes});
    let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec});
    scheduler.pod_applied(&serde_json::from_value(pod).expect("a Pod"));
    let pod = scheduler.queue.pop(api_clock::now()).expect("active");
    scheduler.add_unschedulable(&pod, waiting_for([event]));
    scheduler
}

/// Whether the last of the changes wakes the Pod, and none before it.
async fn wakes(event: ClusterEvent, changes: Vec<VolumeChanges>) -> bool {
    let mut scheduler = waiting(event);
    tokio::time::advance(Duration::from_secs(1)).await;
    let last = changes.len() - 1;
    for (index, change) in changes.into_iter().enumerate() {
        // What came first is there before the Pod waits.
        if index < last {
            let mut earlier = std::mem::replace(&mut scheduler, waiting(event));
            earlier.volumes_changed(change);
            scheduler.cache = earlier.cache;
            tokio::time::advance(Duration::from_secs(1)).await;
        } else {
            scheduler.volumes_changed(change);
        }
    }
    scheduler.queue.flush(Instant::now());
    scheduler.queue.has_active()
}

#[tokio::test(start_paused = true)]
async fn a_change_wakes_the_pods_that_it_may_help() {
    use ClusterEvent as Event;
    use VolumeChanges as Changes;
    let zone = |zone: &str| json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
    let volume = |more: Value| Changes::Volumes(object("v", more));
    let class = |more: Value| {
        let mut class = json!({"provisioner": "p"});
        crate::plugins::fixtures::merge(&mut class, more);
        Changes::Classes(object("s", class))
    };
    let topologies = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}]});
    let driver = |reports: bool| Changes::Drivers(object("d", json!({"spec": {"storageCapacity": reports}})));
    let node = |count: Value| {
        let driver = json!({"name": "d", "nodeID": "n", "allocatable": {"count": count}});
        Changes::CsiNodes(object("n", json!({"spec": {"drivers": [driver]}})))
    };
    let capacity = |size: &str| Changes::Capacities(object("x", json!({"storageClassName": "s", "capacity": size})));
    let attachment = || {
        let spec = json!({"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}});
        Changes::Attachments(object("x", json!({"spec": spec})))
    };
    for (what, event, changes, wanted) in [
        ("its claim", Event::PersistentVolumeClaim, vec![Changes::Claims(object("data", json!({})))], true),
        ("its claim is gone", Event::PersistentVolumeClaim, vec![Changes::Claims(gone("data"))], false),
        ("another claim", Event::PersistentVolumeClaim, vec![Changes::Claims(object("other", json!({})))], false),
        ("a claim, for a Pod that waits for volumes", Event::PersistentVolumeAdd, vec![Changes::Claims(object("data", json!({})))], false),
        ("a volume", Event::PersistentVolumeAdd, vec![volume(json!({}))], true),
        ("a volume that was there", Event::PersistentVolumeAdd, vec![volume(json!({})), volume(zone("a"))], false),
        ("a volume that changed", Event::PersistentVolumeUpdate, vec![volume(json!({})), volume(json!({}))], true),
        ("a volume in another zone", Event::PersistentVolumeTopology, vec![volume(zone("a")), volume(zone("b"))], true),
        ("a volume in the same zone", Event::PersistentVolumeTopology, vec![volume(zone("a")), volume(zone("a"))], false),
        ("a class", Event::StorageClassAdd, vec![class(json!({}))], true),
        ("a class with other topologies", Event::StorageClassTopologies, vec![class(json!({})), class(topologies)], true),
        ("a class that changed", Event::StorageClassTopologies, vec![class(json!({})), class(json!({"mountOptions": ["ro"]}))], false),
        ("a driver that does not report any more", Event::CsiDriver, vec![driver(true), driver(false)], true),
        ("a driver that reports", Event::CsiDriver, vec![driver(false), driver(true)], false),
        ("a node's drivers", Event::CsiNode, vec![node(json!(1))], true),
        ("a higher limit", Event::CsiNode, vec![node(json!(1)), node(json!(2))], true),
        ("no limit any more", Event::CsiNode, vec![node(json!(1)), node(json!(null))], true),
        ("a lower limit", Event::CsiNode, vec![node(json!(2)), node(json!(1))], false),
        ("free storage", Event::CsiStorageCapacity, vec![capacity("1Gi")], true),
        ("more of it", Event::CsiStorageCapacity, vec![capacity("1Gi"), capacity("2Gi")], true),
        ("less of it", Event::CsiStorageCapacity, vec![capacity("2Gi"), capacity("1Gi")], false),
        ("an attachment", Event::VolumeAttachmentDelete, vec![attachment()], false),
        ("an attachment less", Event::VolumeAttachmentDelete, vec![attachment(), Changes::Attachments(gone("x"))], true),
    ] {
        assert_eq!(wakes(event, changes).await, wanted, "{what}");
    }
}

#[tokio::test]
async fn each_change_wakes_the_work_of_pre_bind() {
    let mut scheduler = scheduler();
    let mut changes = scheduler.pre_bind_changes.subscribe();
    changes.borrow_and_update();
    scheduler.volumes_changed(VolumeChanges::Claims(object("data", json!({}))));
    assert!(changes.has_changed().expect("a scheduler"));
}

#[test]
fn only_drivers_and_their_volumes_start_the_watches_of_what_drivers_report() {
    let csi = json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}});
    assert!(VolumeChanges::Volumes(object("v", csi)).are_of_csi());
    assert!(VolumeChanges::Drivers(object("d", json!({"spec": {}}))).are_of_csi());
    assert!(!VolumeChanges::Volumes(object("v", json!({"spec": {"local": {"path": "/d"}}}))).are_of_csi());
    assert!(!VolumeChanges::Drivers(gone("d")).are_of_csi());
}
