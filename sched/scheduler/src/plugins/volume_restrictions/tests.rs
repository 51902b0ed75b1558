use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::plugins::fixtures::{node, pod, snapshot};
use crate::plugins::volume_fixtures::{claim, claiming, reasons, store};

fn cluster(on_a: Vec<PodInfo>) -> Snapshot {
    let mut a = node("a", json!({}));
    on_a.into_iter().for_each(|pod| a.add_pod(Arc::new(pod)));
    let mut all = snapshot(vec![a, node("b", json!({}))]);
    let one_pod = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
    store(&mut all, vec![claim("one", one_pod.clone()), claim("two", one_pod), claim("many", json!({}))], vec![]);
    all
}

#[test]
fn a_claim_of_one_pod_has_one_pod_in_the_cluster() {
    let cases: [(&str, PodInfo, Vec<PodInfo>, &[&str]); 6] = [
        ("no volumes", pod("p", json!({})), vec![claiming("x", &["one"])], &["", ""]),
        ("nobody has it", claiming("p", &["one"]), vec![claiming("x", &["many", "two"])], &["", ""]),
        ("another Pod has it", claiming("p", &["one"]), vec![claiming("x", &["one"])], &[READ_WRITE_ONCE_POD_CONFLICT; 2]),
        ("one of two", claiming("p", &["two", "one"]), vec![claiming("x", &["one"])], &[READ_WRITE_ONCE_POD_CONFLICT; 2]),
        ("a claim of many Pods", claiming("p", &["many"]), vec![claiming("x", &["many"])], &["", ""]),
        ("no such claim", claiming("p", &["none"]), vec![], &["persistentvolumeclaim \"none\" not found"]),
    ];
    for (what, pod, on_a, wanted) in cases {
        assert_eq!(reasons(&VolumeRestrictions, &pod, &cluster(on_a)), wanted, "{what}");
    }
    let elsewhere = PodInfo { namespace: "other".to_owned(), ..claiming("x", &["one"]) };
    assert_eq!(reasons(&VolumeRestrictions, &claiming("p", &["one"]), &cluster(vec![elsewhere])), ["", ""], "another namespace");
}

#[test]
fn a_preemption_of_the_pod_that_has_the_claim_makes_room() {
    let (all, victim) = (cluster(vec![claiming("x", &["one"])]), claiming("x", &["one"]));
    let (mut state, pod) = (CycleState::default(), claiming("p", &["one"]));
    assert_eq!(VolumeRestrictions.pre_filter(&mut state, &pod, &all), Status::Success);
    let b = &all.nodes[1];
    VolumeRestrictions.pod_changed(&mut state, &pod, &all, PodChange::removed(&victim, b));
    assert_eq!(VolumeRestrictions.filter(&state, &pod, b), Status::Success);
    VolumeRestrictions.pod_changed(&mut state, &pod, &all, PodChange::added(&victim, b));
    assert_eq!(VolumeRestrictions.filter(&state, &pod, b), Status::Unschedulable(vec![READ_WRITE_ONCE_POD_CONFLICT.into()]));
}

#[test]
fn disks_have_one_pod_on_a_node_that_writes() {
    let with = |name: &str, volume: serde_json::Value| pod(name, json!({"volumes": [volume]}));
    let gce = |read_only| json!({"name": "v", "gcePersistentDisk": {"pdName": "d", "readOnly": read_only}});
    let iscsi = |iqn: &str, read_only| json!({"name": "v", "iscsi": {"iqn": iqn, "lun": 0, "targetPortal": "t", "readOnly": read_only}});
    let rbd = |monitor: &str, image: &str| json!({"name": "v", "rbd": {"monitors": [monitor, "m"], "image": image, "pool": "p", "readOnly": false}});
    let aws = |id: &str| json!({"name": "v", "awsElasticBlockStore": {"volumeID": id}});
    for (what, wanted, present, conflicts) in [
        ("the same GCE disk", gce(false), gce(true), true),
        ("the same GCE disk, read", gce(true), gce(true), false),
        ("the same EBS volume", aws("a"), aws("a"), true),
        ("another EBS volume", aws("a"), aws("b"), false),
        ("the same iSCSI target", iscsi("a", false), iscsi("a", true), true),
        ("the same iSCSI target, read", iscsi("a", true), iscsi("a", true), false),
        ("another iSCSI target", iscsi("a", false), iscsi("b", false), false),
        ("the same RBD image", rbd("x", "i"), rbd("y", "i"), true),
        ("another RBD image", rbd("x", "i"), rbd("x", "j"), false),
        ("other kinds", gce(false), aws("d"), false),
    ] {
        let all = cluster(vec![with("x", present)]);
        let on_a = if conflicts { DISK_CONFLICT } else { "" };
        assert_eq!(reasons(&VolumeRestrictions, &with("p", wanted), &all), [on_a, ""], "{what}");
    }
}
