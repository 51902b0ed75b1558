use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use serde_json::json;

use super::*;
use crate::cycle::{Progress, schedule_pod};
use crate::plugins::Profile;
use crate::plugins::fixtures::{node, pod, snapshot};
use crate::plugins::volume_fixtures::{bound, claim, claiming, reasons, store, text, volume};

const DRIVER: &str = "csi.example.com";

/// Node `a` attaches `count` volumes of the driver, node `b` has the driver without a limit, node `c` has no driver. The Pods are on `a`.
fn cluster(count: i32, on_a: Vec<PodInfo>) -> Snapshot {
    let mut a = node("a", json!({}));
    on_a.into_iter().for_each(|pod| a.add_pod(Arc::new(pod)));
    let mut all = snapshot(vec![a, node("b", json!({})), node("c", json!({}))]);
    let csi = |name: &str| volume(name, json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": name}}}));
    let mut claims: Vec<_> = ["v1", "v2", "v3"].iter().map(|name| bound(name, name)).collect();
    claims.push(claim("unbound", json!({"spec": {"storageClassName": "csi"}})));
    claims.push(bound("local", "local"));
    store(&mut all, claims, ["v1", "v2", "v3", "v4"].map(csi).into_iter().chain([volume("local", json!({}))]).collect());
    let class = json!({"metadata": {"name": "csi"}, "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"});
    Arc::make_mut(&mut all.volumes)
        .classes
        .insert("csi".to_owned(), Arc::new(serde_json::from_value::<StorageClass>(class).expect("a class")));
    for (name, allocatable) in [("a", json!({"count": count})), ("b", json!(null))] {
        let driver = json!({"name": DRIVER, "nodeID": name, "allocatable": allocatable});
        let csi_node = json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}});
        Arc::make_mut(&mut all.volumes)
            .csi_nodes
            .insert(name.to_owned(), Arc::new(serde_json::from_value::<CSINode>(csi_node).expect("a CSINode")));
    }
    all
}

/// A name, the limit, the Pod's claims, the Pods on the node, and the reason.
type Case = (&'static str, i32, &'static [&'static str], Vec<PodInfo>, &'static str);

#[test]
fn each_volume_counts_once_up_to_the_limit_of_the_node() {
    let cases: [Case; 10] = [
        ("no volumes", 0, &[], vec![], ""),
        ("one fits", 1, &["v1"], vec![], ""),
        ("none fits", 0, &["v1"], vec![], LIMIT_EXCEEDED),
        ("two do not fit", 1, &["v1", "v2"], vec![], LIMIT_EXCEEDED),
        ("a second one does not fit", 1, &["v1"], vec![claiming("x", &["v2"])], LIMIT_EXCEEDED),
        ("the same one fits", 1, &["v1"], vec![claiming("x", &["v1"]), claiming("y", &["v1"])], ""),
        ("one that is to be provisioned counts", 1, &["unbound"], vec![claiming("x", &["v2"])], LIMIT_EXCEEDED),
        ("one that is to be provisioned fits", 2, &["unbound"], vec![claiming("x", &["v2"])], ""),
        ("volumes without a driver do not count", 1, &["v1", "local"], vec![claiming("x", &["local"])], ""),
        ("claims that are gone do not count", 1, &["v1"], vec![claiming("x", &["gone"])], ""),
    ];
    for (what, count, claims, on_a, wanted) in cases {
        assert_eq!(reasons(&NodeVolumeLimits, &claiming("p", claims), &cluster(count, on_a)), [wanted, "", ""], "{what}");
    }
}

#[test]
fn volumes_that_are_attached_without_a_pod_count() {
    let attachment = |volume: &str, node: &str| {
        let spec = json!({"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}});
        Arc::new(serde_json::from_value::<VolumeAttachment>(json!({"metadata": {"name": "x"}, "spec": spec})).expect("an attachment"))
    };
    for (volume, node, wanted) in [("v4", "a", LIMIT_EXCEEDED), ("v4", "b", ""), ("v2", "a", "")] {
        let mut all = cluster(2, vec![claiming("x", &["v2"])]);
        Arc::make_mut(&mut all.volumes).set_attachment("x", Some(attachment(volume, node)));
        assert_eq!(reasons(&NodeVolumeLimits, &claiming("p", &["v1"]), &all), [wanted, "", ""], "{volume} on {node}");
    }
}

#[test]
fn a_preemption_frees_the_volumes_of_its_victims() {
    let victim = claiming("x", &["v2"]);
    let (all, pod) = (cluster(1, vec![victim]), claiming("p", &["v1"]));
    let mut state = CycleState::default();
    assert_eq!(NodeVolumeLimits.pre_filter(&mut state, &pod, &all), Status::Success);
    let mut a = NodeInfo::clone(&all.nodes[0]);
    assert_eq!(text(&NodeVolumeLimits.filter(&state, &pod, &a)), LIMIT_EXCEEDED);
    a.remove_pod("x");
    assert_eq!(NodeVolumeLimits.filter(&state, &pod, &a), Status::Success);
}

#[test]
fn a_driver_may_ask_for_nodes_where_it_is_installed() {
    let mut all = cluster(9, vec![]);
    let driver = json!({"metadata": {"name": DRIVER}, "spec": {"preventPodSchedulingIfMissing": true}});
    Arc::make_mut(&mut all.volumes)
        .csi_drivers
        .insert(DRIVER.to_owned(), Arc::new(serde_json::from_value::<CSIDriver>(driver).expect("a driver")));
    let missing = "csi.example.com CSI driver is not installed on the node";
    assert_eq!(reasons(&NodeVolumeLimits, &claiming("p", &["v1"]), &all), ["", "", missing]);
    assert_eq!(reasons(&NodeVolumeLimits, &claiming("p", &["local"]), &all), ["", "", ""]);
}

#[test]
fn a_pod_that_no_limit_concerns_is_skipped() {
    for pod in [pod("p", json!({})), claiming("p", &["local"])] {
        let mut state = CycleState::default();
        assert_eq!(NodeVolumeLimits.pre_filter(&mut state, &pod, &cluster(0, vec![])), Status::Success);
        assert!(!NodeVolumeLimits.may_reject(&state, &pod));
    }
}

/// Otherwise the next change of a volume would copy all of them.
#[test]
fn no_cycle_shares_the_volumes_after_its_end() {
    let all = cluster(1, vec![]);
    for claim in ["v1", "missing"] {
        let (pod, mut progress) = (Arc::new(claiming("p", &[claim])), Progress::default());
        let result = schedule_pod(&Profile::default(), &pod, &all, &mut progress);
        assert_eq!(result.is_ok(), claim == "v1", "{result:?}");
        assert_eq!(Arc::strong_count(&all.volumes), 1);
        drop(progress);
    }
}
