//! Tables of claims and volumes, and what the provisioner does with them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::super::testing::object;
use super::{claims, volumes};

const OURS: &str = "skiff.internal/local-path";

fn claim(more: Value) -> PersistentVolumeClaim {
    let annotations = json!({"volume.kubernetes.io/selected-node": "n1", "volume.kubernetes.io/storage-provisioner": OURS});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "local-path", "volumeMode": "Filesystem", "resources": {"requests": {"storage": "5Gi"}}});
    object(json!({"metadata": {"name": "c", "namespace": "ns", "uid": "0a1b", "annotations": annotations}, "spec": spec}), &more)
}

fn cluster(class: Value, node: Option<Value>) -> claims::Cluster {
    let base = json!({"metadata": {"name": "local-path"}, "provisioner": OURS, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"});
    let with_labels =
        |node: Value| Arc::new(object(json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "host-1"}}}), &node));
    claims::Cluster { class: Some(Arc::new(object(base, &class))), node: node.map(with_labels), volume: None }
}

fn directory() -> Value {
    json!({"metadata": {"annotations": {OURS: "/var/lib/skiff/volumes"}}})
}

#[test]
fn a_volume_is_a_directory_of_the_chosen_node() {
    let claims::Action::Create(volume) = claims::plan(&claim(json!({})), &cluster(json!({}), Some(directory()))) else {
        panic!("no volume")
    };
    insta::assert_snapshot!(serde_json::to_string_pretty(&volume).expect("JSON"));
    let retained = cluster(json!({"reclaimPolicy": "Retain"}), Some(directory()));
    let claims::Action::Create(volume) = claims::plan(&claim(json!({})), &retained) else { panic!("no volume") };
    assert_eq!(volume.metadata.finalizers, None, "nothing is to be removed");
}

#[test]
fn a_node_with_the_label_of_another_one_has_its_own_volumes_only() {
    let node =
        json!({"metadata": {"labels": {"kubernetes.io/hostname": "victim"}, "annotations": {OURS: "/var/lib/skiff/volumes/pvc-0c"}}});
    let claims::Action::Create(volume) = claims::plan(&claim(json!({})), &cluster(json!({}), Some(node))) else { panic!("no volume") };
    let required = volume.spec.and_then(|spec| spec.node_affinity?.required).expect("an affinity");
    let labels = [("kubernetes.io/hostname".to_owned(), "victim".to_owned())].into();
    let selects = |name: &str| sched_framework::selector_matches(&required, name, &labels);
    assert_eq!((selects("n1"), selects("victim")), (true, false));
}

#[test]
fn what_a_directory_cannot_do_is_refused() {
    let refused = |more: Value, class: Value, node: Option<Value>| match claims::plan(&claim(more), &cluster(class, node)) {
        claims::Action::Refuse { why, reschedule } => format!("{}{}", if reschedule { "again: " } else { "" }, why.message),
        other => panic!("not refused: {other:?}"),
    };
    let node = || Some(directory());
    let immediate = json!({"volumeBindingMode": "Immediate"});
    let unselected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    let mut unselected_block = unselected.clone();
    unselected_block["spec"] = json!({"volumeMode": "Block"});
    let lines = [
        refused(json!({"spec": {"accessModes": ["ReadWriteMany"]}}), json!({}), node()),
        refused(json!({"spec": {"volumeMode": "Block"}}), json!({}), node()),
        refused(json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}), json!({}), node()),
        refused(json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}}), json!({}), node()),
        refused(json!({}), json!({"mountOptions": ["ro"]}), node()),
        refused(json!({}), json!({"parameters": {"size": "1"}}), node()),
        refused(unselected, immediate.clone(), node()),
        refused(unselected_block, immediate, node()),
        refused(json!({}), json!({}), None),
        refused(json!({}), json!({}), Some(json!({}))),
        refused(json!({}), json!({}), Some(json!({"metadata": {"annotations": {OURS: "/a/../etc"}}}))),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn no_volume_is_made_where_none_is_wanted() {
    let plan = |more: Value, class: Value| claims::plan(&claim(more), &cluster(class, Some(directory())));
    let unselected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}});
    assert_eq!(plan(unselected, json!({})), claims::Action::Nothing, "the scheduler has not chosen yet");
    assert_eq!(plan(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), json!({})), claims::Action::Nothing);
    assert_eq!(plan(json!({}), json!({"provisioner": "example.com/other"})), claims::Action::Nothing);
    let mut made = cluster(json!({}), Some(directory()));
    made.volume = Some(Arc::default());
    assert_eq!(claims::plan(&claim(json!({})), &made), claims::Action::Nothing);
}

fn volume(more: Value) -> PersistentVolume {
    let annotations = json!({"pv.kubernetes.io/provisioned-by": OURS, "skiff.internal/local-path-node": "n1"});
    let spec = json!({"persistentVolumeReclaimPolicy": "Delete", "capacity": {"storage": "5Gi"}, "claimRef": {"namespace": "ns", "name": "c", "uid": "0a1b"}});
    let finalizers = json!(["external-provisioner.volume.kubernetes.io/finalizer"]);
    let metadata = json!({"name": "pvc-0a1b", "annotations": annotations, "finalizers": finalizers});
    object(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Released"}}), &more)
}

#[test]
fn the_directory_goes_before_the_volume() {
    let remove = volumes::Action::Remove { node: "n1".to_owned() };
    let deleted = "2026-01-01T00:00:00Z";
    for (more, wanted) in [
        (json!({}), remove.clone()),
        // Killed after the volume's deletion, before its finalizer went.
        (json!({"metadata": {"deletionTimestamp": deleted}}), remove),
        (json!({"metadata": {"deletionTimestamp": deleted, "finalizers": null}}), volumes::Action::Nothing),
        (json!({"status": {"phase": "Bound"}}), volumes::Action::Nothing),
        (json!({"status": {"phase": "Bound"}, "metadata": {"finalizers": null}}), volumes::Action::Protect),
        (json!({"status": {"phase": "Bound"}, "metadata": {"deletionTimestamp": deleted}}), volumes::Action::Nothing),
        (json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}), volumes::Action::Release),
        (json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}, "metadata": {"finalizers": null}}), volumes::Action::Nothing),
        // Offered to others; the phase follows.
        (json!({"spec": {"claimRef": null}}), volumes::Action::Nothing),
        (json!({"spec": {"claimRef": {"uid": null}}}), volumes::Action::Nothing),
        // Somebody wrote the annotation on a volume of their own.
        (json!({"metadata": {"name": ".."}}), volumes::Action::Nothing),
    ] {
        assert_eq!(volumes::plan(&volume(more.clone()), None), wanted, "{more}");
    }
}

#[test]
fn a_larger_request_grows_the_volume_then_the_claim() {
    let bound = |requested: &str, status: &str| {
        claim(json!({
            "spec": {"volumeName": "pvc-0a1b", "resources": {"requests": {"storage": requested}}},
            "status": {"phase": "Bound", "capacity": {"storage": status}},
        }))
    };
    let mut of = cluster(json!({}), None);
    of.volume = Some(Arc::new(volume(json!({"status": {"phase": "Bound"}}))));
    let plan = |requested: &str, status: &str| match claims::plan(&bound(requested, status), &of) {
        claims::Action::Nothing => "nothing".to_owned(),
        claims::Action::Grow { capacity, .. } => format!("grow {}", capacity.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(plan("5Gi", "5Gi"), "nothing");
    assert_eq!(plan("6Gi", "5Gi"), "grow 6Gi");
    assert_eq!(plan("5Gi", "4Gi"), "nothing", "the node follows");
    assert_eq!(plan("3Gi", "5Gi"), "nothing");

    let follow = |more: Value, claim: &PersistentVolumeClaim| volumes::plan(&volume(more), Some(&Arc::new(claim.clone())));
    let lags = bound("5Gi", "4Gi");
    let grow = volumes::Action::Grow { node: "n1".to_owned(), claim: Arc::new(lags.clone()), capacity: Quantity("5Gi".to_owned()) };
    let is_bound = json!({"status": {"phase": "Bound"}});
    assert_eq!(follow(is_bound.clone(), &lags), grow);
    assert_eq!(follow(is_bound.clone(), &bound("5Gi", "5Gi")), volumes::Action::Nothing);
    let retained =
        json!({"status": {"phase": "Bound"}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}, "metadata": {"finalizers": null}});
    assert_eq!(follow(retained, &lags), grow);
    let others = json!({"status": {"phase": "Bound"}, "spec": {"claimRef": {"uid": "other"}}});
    assert_eq!(follow(others, &bound("5Gi", "4Gi")), volumes::Action::Nothing);
    let elsewhere = json!({"status": {"phase": "Bound"}, "metadata": {"name": ".."}});
    assert_eq!(follow(elsewhere, &bound("5Gi", "4Gi")), volumes::Action::Nothing);
}
