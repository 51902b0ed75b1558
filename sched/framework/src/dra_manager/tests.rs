use k8s_openapi::serde_json::{self, Value, json};

use super::*;

fn claim(uid: &str, revision: u64, devices: &[&str]) -> Arc<ResourceClaim> {
    let mut claim =
        json!({"metadata": {"namespace": "default", "name": "c", "uid": uid, "resourceVersion": revision.to_string()}, "spec": {}});
    if !devices.is_empty() {
        claim["status"] = json!({"allocation": allocation_of(devices)});
    }
    Arc::new(serde_json::from_value(claim).expect("a claim"))
}

fn allocation_of(devices: &[&str]) -> Value {
    let result = |device: &&str| json!({"request": "r", "driver": "d", "pool": "p", "device": device});
    json!({"devices": {"results": devices.iter().map(result).collect::<Vec<_>>()}})
}

fn in_use(manager: &DraManager, devices: [&str; 2]) -> [bool; 2] {
    devices.map(|device| manager.is_allocated(&DeviceId { driver: "d".to_owned(), pool: "p".to_owned(), device: device.to_owned() }))
}

#[test]
fn devices_are_in_use_as_long_as_a_claim_has_them() {
    let mut manager = DraManager::default();
    let change = manager.set_claim("default/c", Some(claim("u", 1, &[])));
    assert_eq!(change, ClaimChange { key: Some("default/c".to_owned()), is_deallocated: false });
    manager.set_claim("default/c", Some(claim("u", 2, &["a", "b"])));
    assert_eq!(in_use(&manager, ["a", "b"]), [true, true]);
    assert_eq!(manager.set_claim("default/c", Some(claim("u", 3, &["a", "b"]))), ClaimChange::default(), "nothing but the revision");
    assert!(manager.set_claim("default/c", Some(claim("u", 4, &[]))).is_deallocated);
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);
    manager.set_claim("default/c", Some(claim("u", 5, &["a"])));
    assert_eq!(manager.set_claim("default/c", None), ClaimChange { key: None, is_deallocated: true });
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);
}

#[test]
fn an_administrators_access_leaves_the_device_to_others() {
    let mut manager = DraManager::default();
    let mut admin = ResourceClaim::clone(&claim("u", 1, &["a"]));
    let results = admin.status.as_mut().and_then(|s| s.allocation.as_mut()?.devices.as_mut()?.results.as_mut()).expect("results");
    results[0].admin_access = Some(true);
    manager.set_claim("default/c", Some(Arc::new(admin)));
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);
}

#[test]
fn a_pending_allocation_lasts_until_the_informer_has_it() {
    let allocation: AllocationResult = serde_json::from_value(allocation_of(&["a"])).expect("an allocation");
    let mut manager = DraManager::default();
    let unallocated = claim("u", 1, &[]);
    manager.set_claim("default/c", Some(Arc::clone(&unallocated)));
    let write = manager.signal_claim_pending_allocation(&unallocated, &allocation).expect("the only one");
    assert!(manager.claim_has_pending_allocation("u"));
    let other: AllocationResult = serde_json::from_value(allocation_of(&["b"])).expect("an allocation");
    let refused = manager.signal_claim_pending_allocation(&unallocated, &other).expect_err("pending");
    assert_eq!(refused.to_string(), "claim default/c is in the process of being allocated");
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false], "the allocation that is pending stays");
    write.start();
    // The finalizer was added.
    manager.set_claim("default/c", Some(claim("u", 2, &[])));
    write.written(3);
    manager.set_claim("default/other", None);
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false], "the informer does not have the written claim");
    manager.set_claim("default/c", Some(claim("u", 3, &["a"])));
    assert!(!manager.claim_has_pending_allocation("u"));
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false]);
    manager.set_claim("default/c", Some(claim("u", 4, &[])));
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);
}

#[test]
fn a_pending_allocation_ends_when_it_cannot_be_in_the_store() {
    let allocation: AllocationResult = serde_json::from_value(allocation_of(&["a"])).expect("an allocation");
    let mut manager = DraManager::default();
    let unallocated = claim("u", 1, &[]);
    manager.set_claim("default/c", Some(Arc::clone(&unallocated)));
    let is_in_use = |manager: &DraManager| in_use(manager, ["a", "b"])[0];
    let pending = |manager: &mut DraManager| manager.signal_claim_pending_allocation(&unallocated, &allocation).expect("none is pending");

    let write = pending(&mut manager);
    assert!(manager.remove_claim_pending_allocation("u", &write));
    assert!(!is_in_use(&manager), "nothing was written");

    let write = pending(&mut manager);
    write.start();
    assert!(!manager.remove_claim_pending_allocation("u", &write));
    assert!(is_in_use(&manager), "the write may succeed");
    write.failed();
    assert!(manager.end_all_pending());
    assert!(!is_in_use(&manager), "the write failed");

    // The allocation that failed is not the one that another Pod has since.
    let failed = write;
    let write = pending(&mut manager);
    assert!(!manager.remove_claim_pending_allocation("u", &failed));
    assert!(is_in_use(&manager) && manager.remove_claim_pending_allocation("u", &write));

    // The informer was faster than the answer to the write, and the claim was deallocated since.
    let write = pending(&mut manager);
    write.start();
    manager.set_claim("default/c", Some(claim("u", 6, &[])));
    assert!(is_in_use(&manager));
    write.written(5);
    assert!(manager.end_all_pending());
    assert!(!is_in_use(&manager));

    let write = pending(&mut manager);
    write.start();
    assert!(manager.set_claim("default/c", Some(claim("other", 7, &[]))).is_deallocated);
    assert!(!is_in_use(&manager), "another claim has the name");
}

/// A claim with a share of the device `a` of so many units, or without an allocation.
fn sharing(name: &str, revision: u64, units: Option<u64>) -> Arc<ResourceClaim> {
    let metadata = json!({"namespace": "default", "name": name, "uid": name, "resourceVersion": revision.to_string()});
    let mut claim = json!({"metadata": metadata, "spec": {}});
    if let Some(units) = units {
        claim["status"] = json!({"allocation": share_of(name, units)});
    }
    Arc::new(serde_json::from_value(claim).expect("a claim"))
}

fn share_of(name: &str, units: u64) -> Value {
    let consumed = json!({"memory": units.to_string(), "other/x": "1"});
    json!({"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": "a", "shareID": name, "consumedCapacity": consumed},
    ]}})
}

/// What claims consume of the memory of the device `a`, in units; `None` when nobody uses the device.
fn consumed(manager: &DraManager) -> Option<i128> {
    let device = DeviceId { driver: "d".to_owned(), pool: "p".to_owned(), device: "a".to_owned() };
    manager.use_of(&device).map(|device| device.consumed("d/memory") / 1_000_000_000)
}

#[test]
fn shares_of_a_device_add_up_until_they_are_given_back() {
    let mut manager = DraManager::default();
    manager.set_claim("default/c", Some(sharing("c", 1, Some(3))));
    manager.set_claim("default/d", Some(sharing("d", 1, Some(4))));
    assert_eq!(consumed(&manager), Some(7));
    let device = DeviceId { driver: "d".to_owned(), pool: "p".to_owned(), device: "a".to_owned() };
    assert!(manager.use_of(&device).is_some_and(|device| !device.is_whole() && device.capacities() == 2));
    assert!(manager.set_claim("default/c", Some(sharing("c", 2, None))).is_deallocated);
    assert_eq!(consumed(&manager), Some(4));
    assert!(manager.set_claim("default/d", None).is_deallocated);
    assert_eq!(consumed(&manager), None);

    let mut administrators = ResourceClaim::clone(&sharing("c", 3, Some(3)));
    let allocation = administrators.status.as_mut().and_then(|status| status.allocation.as_mut()).expect("an allocation");
    let results = allocation.devices.as_mut().and_then(|devices| devices.results.as_mut()).expect("results");
    results[0].admin_access = Some(true);
    manager.set_claim("default/c", Some(Arc::new(administrators)));
    assert_eq!(consumed(&manager), None);
    // What a status says is no reason to give out more than there is.
    let mut negative = ResourceClaim::clone(&sharing("c", 4, Some(3)));
    let allocation = negative.status.as_mut().and_then(|status| status.allocation.as_mut()).expect("an allocation");
    let results = allocation.devices.as_mut().and_then(|devices| devices.results.as_mut()).expect("results");
    results[0].consumed_capacity.as_mut().expect("capacities").values_mut().for_each(|quantity| quantity.0 = "-5".to_owned());
    manager.set_claim("default/c", Some(Arc::new(negative)));
    assert_eq!(consumed(&manager), Some(0));
}

/// Between the event of the informer and the answer to the write, a claim and its pending allocation have the same share.
#[test]
fn a_share_that_is_written_counts_once() {
    let allocation: AllocationResult = serde_json::from_value(share_of("c", 6)).expect("an allocation");
    let mut manager = DraManager::default();
    let unallocated = sharing("c", 1, None);
    manager.set_claim("default/c", Some(Arc::clone(&unallocated)));
    let write = manager.signal_claim_pending_allocation(&unallocated, &allocation).expect("the only one");
    assert_eq!(consumed(&manager), Some(6), "it is in flight");
    write.start();
    assert!(!manager.set_claim("default/c", Some(sharing("c", 2, Some(6)))).is_deallocated);
    assert!(manager.claim_has_pending_allocation("c"));
    assert_eq!(consumed(&manager), Some(6));
    write.written(2);
    assert!(!manager.end_all_pending(), "the claim has it");
    assert_eq!(consumed(&manager), Some(6));

    // Deallocated before the answer to the write: it may be that the write comes after that.
    manager.set_claim("default/c", Some(sharing("c", 3, None)));
    let write = manager.signal_claim_pending_allocation(&unallocated, &allocation).expect("the only one");
    write.start();
    manager.set_claim("default/c", Some(sharing("c", 4, Some(6))));
    manager.set_claim("default/c", Some(sharing("c", 5, None)));
    assert_eq!(consumed(&manager), Some(6));
    write.failed();
    assert!(manager.end_all_pending());
    assert_eq!(consumed(&manager), None);
}

#[test]
fn devices_of_an_allocation_that_another_one_replaces_are_free() {
    let mut manager = DraManager::default();
    let unallocated = claim("u", 1, &[]);
    manager.set_claim("default/c", Some(Arc::clone(&unallocated)));
    let allocation: AllocationResult = serde_json::from_value(allocation_of(&["a"])).expect("an allocation");
    let write = manager.signal_claim_pending_allocation(&unallocated, &allocation).expect("the only one");
    write.start();
    assert!(manager.set_claim("default/c", Some(claim("u", 2, &["b"]))).is_deallocated, "somebody else allocated the claim");
    assert_eq!(in_use(&manager, ["a", "b"]), [false, true]);
    write.failed();
    assert!(!manager.end_all_pending());
    assert_eq!(in_use(&manager, ["a", "b"]), [false, true]);
    assert!(manager.set_claim("default/c", Some(claim("u", 4, &["a"]))).is_deallocated, "the informer missed a state");
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false]);
}

#[test]
fn slices_are_those_of_their_nodes_with_the_taints_of_rules() {
    let slice = |name: &str, more: Value| -> Arc<ResourceSlice> {
        let mut spec = json!({"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "a"}, {"name": "b"}]});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a slice"))
    };
    let rule = |selector: Value| -> Option<Arc<DeviceTaintRule>> {
        let mut spec = json!({"taint": {"key": "broken", "effect": "NoSchedule"}});
        if !selector.is_null() {
            spec["deviceSelector"] = selector;
        }
        Some(Arc::new(serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec})).expect("a rule")))
    };
    let mut manager = DraManager::default();
    manager.set_slice("one", Some(slice("one", json!({"nodeName": "n1"}))));
    manager.set_slice("two", Some(slice("two", json!({"nodeName": "n2"}))));
    manager.set_slice("all", Some(slice("all", json!({"allNodes": true}))));
    let names = |manager: &DraManager, node: &str| {
        manager.slices_for_node(node).filter_map(|slice| slice.metadata.name.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((names(&manager, "n1"), names(&manager, "n3")), ("one all".to_owned(), "all".to_owned()));
    assert_eq!(manager.slices_of_pool(&("d".to_owned(), "p".to_owned())).count(), 3);
    let taints = |manager: &DraManager| {
        let devices = manager.slices_for_node("n1").flat_map(|slice| slice.spec.devices.iter().flatten());
        devices.map(|device| device.taints.as_ref().map_or(0, Vec::len)).collect::<Vec<_>>()
    };
    manager.set_taint_rule("r", rule(json!({"driver": "d", "device": "b"})));
    assert_eq!(taints(&manager), [0, 1, 0, 1]);
    manager.set_taint_rule("r", rule(json!({})));
    assert_eq!(taints(&manager), [1, 1, 1, 1]);
    manager.set_slice("one", Some(slice("one", json!({"nodeName": "n1"}))));
    assert_eq!(taints(&manager), [1, 1, 1, 1], "a slice that comes later");
    manager.set_taint_rule("r", rule(json!({"driver": "other"})));
    assert_eq!(taints(&manager), [0, 0, 0, 0]);
    manager.set_taint_rule("r", rule(Value::Null));
    assert_eq!(taints(&manager), [0, 0, 0, 0], "a rule without a selector selects nothing");
    manager.set_taint_rule("r", None);
    manager.set_slice("all", None);
    assert_eq!(names(&manager, "n3"), "");
}

#[test]
fn an_allocation_of_a_claim_that_is_created_lasts_until_the_informer_has_it() {
    let allocation: AllocationResult = serde_json::from_value(allocation_of(&["a"])).expect("an allocation");
    let new = json!({"metadata": {"namespace": "default", "name": "<new>", "uid": "temporary", "generateName": "p-"}, "spec": {}});
    let new: ResourceClaim = serde_json::from_value(new).expect("a claim");
    let begun = || {
        let mut manager = DraManager::default();
        manager.set_claim("default/other", Some(claim("o", 1, &[])));
        let write = manager.signal_claim_pending_allocation(&new, &allocation).expect("the only one");
        manager.set_claim("default/other", Some(claim("o", 2, &[])));
        assert_eq!(in_use(&manager, ["a", "b"]), [true, false], "nobody has created it yet");
        (manager, write)
    };
    let created = || CreatedClaim { namespace: "default".to_owned(), name: "c".to_owned(), uid: "u".to_owned() };

    let (mut manager, write) = begun();
    assert!(manager.remove_claim_pending_allocation("temporary", &write), "it never began");
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);

    let (mut manager, write) = begun();
    write.start();
    write.created(created());
    assert!(!manager.remove_claim_pending_allocation("temporary", &write), "it may be in the store");
    write.failed();
    assert!(manager.end_all_pending());
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);

    let (mut manager, write) = begun();
    write.start();
    write.created(created());
    manager.set_claim("default/c", Some(claim("u", 3, &[])));
    write.written(5);
    manager.set_claim("default/other", Some(claim("o", 4, &[])));
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false], "the informer has the claim without the allocation");
    manager.set_claim("default/c", Some(claim("u", 5, &["a"])));
    assert!(!manager.claim_has_pending_allocation("temporary"));
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false]);

    // The claim is gone before the informer had it.
    let (mut manager, write) = begun();
    write.start();
    write.created(created());
    write.written(5);
    manager.set_claim("default/other", Some(claim("o", 4, &[])));
    assert_eq!(in_use(&manager, ["a", "b"]), [true, false]);
    assert!(manager.set_claim("default/other", Some(claim("o", 6, &[]))).is_deallocated);
    assert_eq!(in_use(&manager, ["a", "b"]), [false, false]);
}

#[test]
fn a_pod_has_the_claim_for_its_extended_resources() {
    let special = |revision: u64, annotation: &str, owner: &str| {
        let mut claim = ResourceClaim::clone(&claim("u", revision, &[]));
        let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true}]);
        claim.metadata.owner_references = Some(serde_json::from_value(owners).expect("owners"));
        claim.metadata.annotations = Some([(EXTENDED_RESOURCE_CLAIM.to_owned(), annotation.to_owned())].into());
        Some(Arc::new(claim))
    };
    let mut manager = DraManager::default();
    manager.set_claim("default/c", special(1, "false", "p"));
    assert!(manager.special_claim("default", "p").is_none());
    manager.set_claim("default/c", special(2, "true", "p"));
    assert!(manager.special_claim("default", "p").is_some());
    assert!(manager.special_claim("other", "p").is_none() && manager.special_claim("default", "q").is_none());
    // Two schedulers may create one each.
    manager.set_claim("default/d", special(3, "true", "p"));
    assert!(manager.set_claim("default/c", None).is_deallocated, "the Pod may be tried again");
    assert!(manager.special_claim("default", "p").is_some());
    manager.set_claim("default/d", None);
    assert!(manager.special_claim("default", "p").is_none() && manager.special.is_empty());
}

#[test]
fn the_newest_class_backs_a_resource() {
    let mut manager = DraManager::default();
    let mut set = |name: &str, class: Option<(&str, &str)>| {
        let class = class.map(|(resource, created)| {
            let metadata = json!({"name": name, "creationTimestamp": created});
            let spec = if resource.is_empty() { json!({}) } else { json!({"extendedResourceName": resource}) };
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a class"))
        });
        manager.set_class(name, class);
        let of = |resource: &str| manager.class_of_resource(resource).and_then(|class| class.metadata.name.clone()).unwrap_or_default();
        [of("example.com/gpu"), of("deviceclass.resource.kubernetes.io/b")]
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    assert_eq!(set("c", Some(("example.com/gpu", early))), ["c", ""]);
    assert_eq!(set("b", Some(("example.com/gpu", early))), ["b", "b"], "the first one by name");
    assert_eq!(set("d", Some(("example.com/gpu", late))), ["d", "b"], "the newest one");
    assert_eq!(set("d", Some(("example.com/other", late))), ["b", "b"]);
    assert_eq!(set("b", Some(("", early))), ["c", "b"]);
    assert_eq!(set("c", None), ["", "b"]);
    assert_eq!(set("b", None), ["", ""]);
}
