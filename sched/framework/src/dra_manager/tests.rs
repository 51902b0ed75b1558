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
