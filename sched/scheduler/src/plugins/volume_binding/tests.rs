use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};
use serde_json::{Value, json};

use super::*;
use crate::plugins::fixtures::{node, pod, snapshot};
use crate::plugins::volume_fixtures::{bound, claim, claiming, on_node, reasons, store, volume};

fn class(all: &mut Snapshot, name: &str, more: Value) {
    let mut object = json!({"metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner"});
    crate::plugins::fixtures::merge(&mut object, more);
    let class: StorageClass = serde_json::from_value(object).expect("a class");
    Arc::make_mut(&mut all.volumes).classes.insert(name.to_owned(), Arc::new(class));
}

/// Nodes `a` and `b`, and classes: `now` binds at once, `late` waits and has no provisioner, `made` waits and has one, `on-b` has one for
/// node `b` alone.
fn cluster(claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>) -> Snapshot {
    let mut all = snapshot(vec![node("a", json!({})), node("b", json!({}))]);
    store(&mut all, claims, volumes);
    let late = "WaitForFirstConsumer";
    let on_b = json!([{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["b", "c"]}]}]);
    class(&mut all, "now", json!({"volumeBindingMode": "Immediate"}));
    class(&mut all, "late", json!({"volumeBindingMode": late}));
    class(&mut all, "made", json!({"volumeBindingMode": late, "provisioner": "csi.example.com"}));
    class(&mut all, "on-b", json!({"volumeBindingMode": late, "provisioner": "csi.example.com", "allowedTopologies": on_b}));
    all
}

fn of_class(name: &str, class: &str) -> PersistentVolumeClaim {
    claim(name, json!({"spec": {"storageClassName": class}}))
}

/// A free volume of the class on the node.
fn local(name: &str, class: &str, node: &str, more: Value) -> PersistentVolume {
    let mut merged = json!({"spec": {"storageClassName": class, "nodeAffinity": on_node(node)}});
    crate::plugins::fixtures::merge(&mut merged, more);
    volume(name, merged)
}

#[test]
fn a_pod_waits_for_claims_that_it_cannot_use_yet() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let claims = || {
        vec![
            of_class("now", "now"),
            of_class("no-class", "gone"),
            claim("classless", json!({})),
            claim("prebound", json!({"spec": {"storageClassName": "late", "volumeName": "v"}})),
            claim("deleting", deleting.clone()),
            claim("lost", json!({"spec": {"volumeName": "gone"}, "status": {"phase": "Lost"}})),
            of_class("late", "late"),
        ]
    };
    let immediate = "pod has unbound immediate PersistentVolumeClaims";
    for (names, wanted) in [
        (vec!["none"], "persistentvolumeclaim \"none\" not found"),
        (vec!["now"], immediate),
        (vec!["late", "now"], immediate),
        (vec!["no-class"], immediate),
        (vec!["classless"], immediate),
        (vec!["prebound"], immediate),
        (vec!["deleting"], "persistentvolumeclaim \"deleting\" is being deleted"),
        (vec!["lost"], "persistentvolumeclaim \"lost\" bound to non-existent persistentvolume \"gone\""),
    ] {
        assert_eq!(reasons(&VolumeBinding, &claiming("p", &names), &cluster(claims(), vec![])), [wanted], "{names:?}");
    }
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_the_pods_own() {
    let pod = pod("p", json!({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}));
    let of = |uid: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
        let mut claim = bound("p-scratch", "v");
        claim.metadata.owner_references = serde_json::from_value(json!([owner])).expect("an owner");
        vec![claim]
    };
    for (claims, wanted) in [
        (vec![], vec!["waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-scratch\""]),
        (of("other"), vec!["PVC default/p-scratch was not created for pod default/p (pod is not owner)"]),
        (of("p"), vec!["", ""]),
    ] {
        assert_eq!(reasons(&VolumeBinding, &pod, &cluster(claims, vec![volume("v", json!({}))])), wanted);
    }
}

#[test]
fn a_pod_goes_where_its_volumes_are() {
    let claims = || vec![bound("on-a", "va"), bound("on-b", "vb"), bound("anywhere", "v"), bound("lost", "gone")];
    let volumes = || vec![local("va", "x", "a", json!({})), local("vb", "x", "b", json!({})), volume("v", json!({}))];
    for (names, wanted) in [
        (vec!["anywhere"], ["", ""]),
        (vec!["on-a"], ["", NODE_CONFLICT]),
        (vec!["on-b", "anywhere"], [NODE_CONFLICT, ""]),
        (vec!["on-a", "on-b"], [NODE_CONFLICT, NODE_CONFLICT]),
        (vec!["lost"], [NO_VOLUME, NO_VOLUME]),
        (vec!["on-a", "lost"], [NO_VOLUME, NODE_CONFLICT]),
    ] {
        assert_eq!(reasons(&VolumeBinding, &claiming("p", &names), &cluster(claims(), volumes())), wanted, "{names:?}");
    }
}

#[test]
fn a_claim_that_waits_gets_a_volume_that_has_what_it_asks_for() {
    let reference = |name: &str, uid: Option<&str>| json!({"spec": {"claimRef": {"namespace": "default", "name": name, "uid": uid}}});
    let labelled = json!({"metadata": {"labels": {"disk": "fast"}}});
    let selecting = json!({"spec": {"storageClassName": "late", "selector": {"matchLabels": {"disk": "fast"}}}});
    let plain = || of_class("c", "late");
    for (what, claim, volumes, wanted) in [
        ("no volume", plain(), vec![], ["", ""]),
        ("one on a", plain(), vec![("v", "a", json!({}))], ["v", ""]),
        ("one on each", plain(), vec![("v", "a", json!({})), ("w", "b", json!({}))], ["v", "w"]),
        ("the smallest", plain(), vec![("v", "a", json!({"spec": {"capacity": {"storage": "3Gi"}}})), ("w", "a", json!({}))], ["w", ""]),
        ("too small", plain(), vec![("v", "a", json!({"spec": {"capacity": {"storage": "1023Mi"}}}))], ["", ""]),
        ("another mode", plain(), vec![("v", "a", json!({"spec": {"volumeMode": "Block"}}))], ["", ""]),
        ("other access", plain(), vec![("v", "a", json!({"spec": {"accessModes": ["ReadOnlyMany"]}}))], ["", ""]),
        ("another class", plain(), vec![("v", "a", json!({"spec": {"storageClassName": "made"}}))], ["", ""]),
        ("other attributes", plain(), vec![("v", "a", json!({"spec": {"volumeAttributesClassName": "gold"}}))], ["", ""]),
        ("not available", plain(), vec![("v", "a", json!({"status": {"phase": "Released"}}))], ["", ""]),
        ("being deleted", plain(), vec![("v", "a", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))], ["", ""]),
        ("labels", claim("c", selecting), vec![("v", "a", json!({})), ("w", "b", labelled)], ["", "w"]),
        ("reserved for another", plain(), vec![("v", "a", reference("d", None))], ["", ""]),
        ("reserved by name", plain(), vec![("v", "a", reference("c", None)), ("w", "b", json!({}))], ["v", ""]),
        ("bound to it", plain(), vec![("v", "a", reference("c", Some("uid-c")))], ["v", ""]),
        ("bound to one before", plain(), vec![("v", "a", reference("c", Some("older")))], ["", ""]),
    ] {
        let volumes = volumes.into_iter().map(|(name, node, more)| local(name, "late", node, more)).collect();
        let all = cluster(vec![claim], volumes);
        let claims = PodClaims::of_pod(&claiming("p", &["c"]), &all.volumes).unwrap_or_else(|reason| panic!("{what}: {reason}"));
        let matching = |node: &Arc<NodeInfo>| match find(&claims, node) {
            Ok(found) => found.bindings.iter().filter_map(|(_, volume)| volume.metadata.name.clone()).collect::<String>(),
            Err(reasons) => {
                assert_eq!(reasons, [BIND_CONFLICT], "{what}");
                String::new()
            }
        };
        assert_eq!(all.nodes.iter().map(matching).collect::<Vec<_>>(), wanted, "{what}");
    }
}

#[test]
fn two_claims_get_two_volumes_and_the_larger_claim_the_larger_one() {
    let large = claim("large", json!({"spec": {"storageClassName": "late", "resources": {"requests": {"storage": "2Gi"}}}}));
    let of_size = |name: &str, size: &str| local(name, "late", "a", json!({"spec": {"capacity": {"storage": size}}}));
    let all = cluster(vec![large, of_class("small", "late")], vec![of_size("big", "5Gi"), of_size("little", "1Gi")]);
    let claims = PodClaims::of_pod(&claiming("p", &["large", "small"]), &all.volumes).expect("usable claims");
    let found = find(&claims, &all.nodes[0]).expect("both");
    let names = found
        .bindings
        .iter()
        .map(|(claim, volume)| format!("{}={}", ObjectKey::from(&claim.metadata), volume.metadata.name.clone().expect("a name")));
    assert_eq!(names.collect::<Vec<_>>(), ["default/small=little", "default/large=big"]);
    let all = cluster(vec![of_class("c", "late"), of_class("d", "late")], vec![of_size("only", "5Gi")]);
    assert_eq!(reasons(&VolumeBinding, &claiming("p", &["c", "d"]), &all), [BIND_CONFLICT, BIND_CONFLICT], "one volume for two");
}

#[test]
fn volumes_are_provisioned_where_the_class_and_the_free_storage_allow() {
    let selected = |node: &str| {
        let mut claim = of_class("selected", "made");
        claim.metadata.annotations = Some([(SELECTED_NODE.to_owned(), node.to_owned())].into());
        claim
    };
    for (claim, wanted) in [
        (of_class("c", "made"), ["", ""]),
        (of_class("c", "on-b"), [BIND_CONFLICT, ""]),
        (of_class("c", "late"), [BIND_CONFLICT, BIND_CONFLICT]),
        (selected("a"), ["", BIND_CONFLICT]),
    ] {
        let name = claim.metadata.name.clone().expect("a name");
        assert_eq!(reasons(&VolumeBinding, &claiming("p", &[&name]), &cluster(vec![claim], vec![])), wanted, "{name}");
    }
    let free = |node: Value, class: &str, capacity: Value| {
        let mut object = json!({"metadata": {"name": "x"}, "storageClassName": class, "nodeTopology": node});
        crate::plugins::fixtures::merge(&mut object, capacity);
        vec![serde_json::from_value::<CSIStorageCapacity>(object).expect("a capacity")]
    };
    let a = || json!({"matchLabels": {"kubernetes.io/hostname": "a"}});
    for (what, reports, capacities, wanted) in [
        ("nobody reports", false, vec![], ["", ""]),
        ("nothing is free", true, vec![], [NOT_ENOUGH_SPACE, NOT_ENOUGH_SPACE]),
        ("enough on a", true, free(a(), "made", json!({"capacity": "1Gi"})), ["", NOT_ENOUGH_SPACE]),
        ("too little", true, free(a(), "made", json!({"capacity": "1Mi"})), [NOT_ENOUGH_SPACE; 2]),
        ("too small volumes", true, free(a(), "made", json!({"capacity": "9Gi", "maximumVolumeSize": "1Mi"})), [NOT_ENOUGH_SPACE; 2]),
        ("of another class", true, free(a(), "on-b", json!({"capacity": "9Gi"})), [NOT_ENOUGH_SPACE; 2]),
        ("for all nodes", true, free(json!({}), "made", json!({"capacity": "9Gi"})), ["", ""]),
        ("for no node", true, free(json!(null), "made", json!({"capacity": "9Gi"})), [NOT_ENOUGH_SPACE; 2]),
    ] {
        let mut all = cluster(vec![of_class("c", "made")], vec![]);
        let driver = json!({"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": reports}});
        let driver: CSIDriver = serde_json::from_value(driver).expect("a driver");
        Arc::make_mut(&mut all.volumes).csi_drivers.insert("csi.example.com".to_owned(), Arc::new(driver));
        Arc::make_mut(&mut all.volumes).capacities.extend(capacities.into_iter().map(|capacity| ("x/x".to_owned(), Arc::new(capacity))));
        assert_eq!(reasons(&VolumeBinding, &claiming("p", &["c"]), &all), wanted, "{what}");
    }
}

/// Reserves the volumes of the Pod on node `a`.
fn reserve(all: &mut Snapshot, pod: &PodInfo) -> CycleState {
    let mut state = CycleState::default();
    assert_eq!(VolumeBinding.pre_filter(&mut state, pod, all), Status::Success);
    VolumeBinding.reserve(&mut state, pod, "a", all).expect("room");
    state
}

#[test]
fn what_is_reserved_is_not_given_to_another_pod_until_it_is_given_back() {
    let claims = vec![of_class("c", "late"), of_class("d", "late"), of_class("made", "made")];
    let mut all = cluster(claims, vec![local("v", "late", "a", json!({}))]);
    let (first, second) = (claiming("first", &["c", "made"]), claiming("second", &["d"]));
    assert_eq!(reasons(&VolumeBinding, &second, &all), ["", BIND_CONFLICT]);
    let mut state = reserve(&mut all, &first);
    assert_eq!(reasons(&VolumeBinding, &second, &all), [BIND_CONFLICT; 2], "the only volume is taken");
    assert_eq!(reasons(&VolumeBinding, &claiming("third", &["made"]), &all), ["", BIND_CONFLICT], "provisioned for a");
    let Some(Reserved(PodVolumes { bindings, provisions })) = state.read(NAME) else { panic!("nothing is reserved") };
    let bound = &bindings[0].1;
    let reference = bound.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).expect("a reference");
    assert_eq!((reference.name.as_deref(), reference.uid.as_deref()), (Some("c"), Some("uid-c")));
    assert_eq!(annotation(&bound.metadata, BOUND_BY_CONTROLLER), Some("yes"));
    assert_eq!(annotation(&provisions[0].metadata, SELECTED_NODE), Some("a"));
    let events = VolumeBinding.unreserve(&mut state, &first, "a", &mut all);
    assert_eq!(events, [ClusterEvent::PersistentVolumeUpdate, ClusterEvent::PersistentVolumeClaim]);
    assert_eq!(VolumeBinding.unreserve(&mut state, &first, "a", &mut all), [], "nothing is left");
    assert_eq!(reasons(&VolumeBinding, &second, &all), ["", BIND_CONFLICT]);
    assert_eq!(reasons(&VolumeBinding, &claiming("third", &["made"]), &all), ["", ""]);
}

/// A Pod may mount a claim in several of its volumes.
#[test]
fn a_claim_of_two_volumes_gets_one_persistent_volume() {
    let mut all = cluster(vec![of_class("c", "late")], vec![local("v", "late", "a", json!({})), local("w", "late", "a", json!({}))]);
    let mount = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "c"}});
    let state = reserve(&mut all, &pod("p", json!({"volumes": [mount("one"), mount("two")]})));
    let Some(Reserved(volumes)) = state.read(NAME) else { panic!("nothing is reserved") };
    assert_eq!(volumes.bindings.len(), 1);
}

#[test]
fn a_volume_that_its_maker_reserved_is_not_said_to_be_bound_by_a_controller() {
    let reference = json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}}});
    let mut all = cluster(vec![of_class("c", "late")], vec![local("v", "late", "a", reference)]);
    let state = reserve(&mut all, &claiming("p", &["c"]));
    let Some(Reserved(volumes)) = state.read(NAME) else { panic!("nothing is reserved") };
    let bound = &volumes.bindings[0].1;
    assert_eq!(annotation(&bound.metadata, BOUND_BY_CONTROLLER), None);
    assert_eq!(bound.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref()), Some("uid-c"));
}

#[test]
fn a_pod_without_claims_has_no_part() {
    let plain = pod("p", json!({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "a"}}]}));
    assert!(!VolumeBinding.has_part_in(&plain) && !VolumeBinding.may_reject(&CycleState::default(), &plain));
    assert_eq!(reasons(&VolumeBinding, &plain, &cluster(vec![], vec![])), ["", ""]);
}
