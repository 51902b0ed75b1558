//! Devices that allow several allocations, each of a share of their capacities.

use super::super::super::fixtures::shared_device;
use super::*;

/// A device of 10 units of memory that claims share: two of them without a request.
fn shared(name: &str) -> Value {
    let mut device = shared_device(name, 10);
    device["capacity"]["memory"]["requestPolicy"]["default"] = json!("2");
    device
}

fn units(units: u64) -> Value {
    json!({"capacity": {"requests": {"memory": units.to_string()}}})
}

/// A claim that has shares of these devices.
fn with_shares(name: &str, shares: &[(&str, u64)]) -> Value {
    let result = |(index, (device, units)): (usize, &(&str, u64))| {
        json!({"request": "r", "driver": DRIVER, "pool": "n", "device": device, "shareID": format!("{name}-{index}"),
            "consumedCapacity": {"memory": units.to_string()}})
    };
    let results: Vec<Value> = shares.iter().enumerate().map(result).collect();
    let mut claim = claim(name, json!([]));
    claim["status"] = json!({"allocation": {"devices": {"results": results}}});
    claim
}

/// The shares of each claim: request, device and memory.
fn shares(dra: &DraManager, claims: &[Value]) -> String {
    let result = match run(dra, claims) {
        Ok(Some(result)) => result,
        other => return summary(other),
    };
    let of_claim = |allocation: &AllocationResult| {
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        let share = |result: &k8s_openapi::api::resource::v1::DeviceRequestAllocationResult| {
            let memory = result.consumed_capacity.as_ref().and_then(|consumed| consumed.get("memory"));
            assert_eq!(result.share_id.is_some(), memory.is_some(), "{result:?}");
            format!("{}={}:{}", result.request, result.device, memory.map_or("-", |memory| memory.0.as_str()))
        };
        results.map(share).collect::<Vec<_>>().join(" ")
    };
    result.iter().map(of_claim).collect::<Vec<_>>().join(" | ")
}

fn one(more: Value) -> Value {
    claim("c", json!([exactly("r", more)]))
}

#[test]
fn claims_share_the_capacity_of_a_device() {
    let slices = [slice("n", json!({"nodeName": "n"}), json!([shared("a"), shared("b")]))];
    let dra = manager(&slices, &[]);
    assert_eq!(shares(&dra, &[one(json!({}))]), "r=a:2", "the default");
    assert_eq!(shares(&dra, &[one(units(7)), one(units(3)), one(units(1))]), "r=a:7 | r=a:3 | r=b:1");
    let two = json!([exactly("r", units(6)), exactly("s", units(4)), exactly("t", units(4))]);
    assert_eq!(shares(&dra, &[claim("c", two)]), "r=a:6 s=a:4 t=b:4", "requests of a claim share a device, too");
    assert_eq!(shares(&dra, &[one(json!({"count": 2}))]), "r=a:2 r=b:2", "one request has different devices");
    assert_eq!(shares(&dra, &[one(json!({"count": 3}))]), "none");
    assert_eq!(shares(&dra, &[one(units(6)), one(units(6)), one(units(5))]), "none");
    assert_eq!(shares(&dra, &[one(units(11))]), "none");
    assert_eq!(shares(&dra, &[one(units(6)), one(json!({"allocationMode": "All"}))]), "r=a:6 | r=a:2 r=b:2");
    assert_eq!(shares(&dra, &[one(json!({"capacity": {"requests": {"cores": "1"}}}))]), "none", "no such capacity");

    let [first, second] = ["c", "d"].map(|name| {
        let result = run(&dra, &[claim(name, json!([exactly("r", units(1))]))]).expect("no error").expect("an allocation");
        result[0].devices.as_ref().and_then(|devices| devices.results.as_ref()?.first()?.share_id.clone()).expect("an id")
    });
    assert_ne!(first, second);
}

#[test]
fn what_claims_have_is_not_given_again() {
    let slices = [slice("n", json!({"nodeName": "n"}), json!([shared("a"), shared("b")]))];
    let dra = manager(&slices, &[with_shares("x", &[("a", 4), ("b", 1)]), with_shares("y", &[("a", 5)])]);
    assert_eq!(shares(&dra, &[one(units(1))]), "r=a:1");
    assert_eq!(shares(&dra, &[one(units(2)), one(units(7)), one(units(1))]), "r=b:2 | r=b:7 | r=a:1");
    assert_eq!(shares(&dra, &[one(json!({"allocationMode": "All"}))]), "r=b:2", "all that have as much left");
    assert_eq!(shares(&dra, &[one(units(10))]), "none");
    // A capacity with and without the driver's domain is the same one.
    let mut qualified = with_shares("z", &[("a", 9)]);
    let consumed = json!({format!("{DRIVER}/memory"): "9"});
    qualified["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = consumed;
    assert_eq!(shares(&manager(&slices, &[qualified]), &[one(units(2))]), "r=b:2");
}

#[test]
fn a_device_may_change_between_shared_and_not() {
    let whole = json!({"request": "r", "driver": DRIVER, "pool": "n", "device": "a"});
    let mut with_whole = claim("x", json!([]));
    with_whole["status"] = json!({"allocation": {"devices": {"results": [whole]}}});
    let now_shared = [slice("n", json!({"nodeName": "n"}), json!([shared("a")]))];
    assert_eq!(shares(&manager(&now_shared, &[with_whole]), &[one(units(1))]), "none");
    let mut device = shared("a");
    device.as_object_mut().expect("a map").remove("allowMultipleAllocations");
    let not_any_more = [slice("n", json!({"nodeName": "n"}), json!([device]))];
    assert_eq!(shares(&manager(&not_any_more, &[with_shares("x", &[("a", 1)])]), &[one(json!({}))]), "none");
    assert_eq!(shares(&manager(&not_any_more, &[]), &[one(units(10))]), "r=a:-", "the whole device");
    assert_eq!(shares(&manager(&not_any_more, &[]), &[one(units(11))]), "none");
}

#[test]
fn administrators_shares_are_not_counted() {
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), json!([shared("a")]))], &[]);
    let mut admin = units(6);
    admin["adminAccess"] = json!(true);
    assert_eq!(shares(&dra, &[one(admin.clone()), one(units(4))]), "r=a:6 | r=a:4", "in a search they are, as upstream");
    assert_eq!(shares(&dra, &[one(admin), one(units(5))]), "none");
    let mut of_admin = with_shares("x", &[("a", 9)]);
    of_admin["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = json!(true);
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), json!([shared("a")]))], &[of_admin]);
    assert_eq!(shares(&dra, &[one(units(10))]), "r=a:10");
}

#[test]
fn requests_choose_by_whether_a_device_is_shared() {
    let devices = json!([shared("a"), {"name": "b", "capacity": {"memory": {"value": "10"}}}]);
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), devices)], &[]);
    let selecting = |expression: &str| one(json!({"selectors": [{"cel": {"expression": expression}}]}));
    assert_eq!(shares(&dra, &[selecting("device.allowMultipleAllocations")]), "r=a:2");
    assert_eq!(shares(&dra, &[selecting("!device.allowMultipleAllocations")]), "r=b:-");
    // Shares of distinct devices.
    let slot = |name: &str, slot: u64| {
        let mut device = shared(name);
        device["attributes"] = json!({"slot": {"int": slot}});
        device
    };
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), json!([slot("a", 1), slot("b", 1), slot("c", 2)]))], &[]);
    let requests = json!([exactly("r", json!({})), exactly("s", json!({}))]);
    let distinct = json!([{"distinctAttribute": format!("{DRIVER}/slot")}]);
    assert_eq!(shares(&dra, &[claim_with("c", json!({"requests": requests, "constraints": distinct}))]), "r=a:2 s=c:2");
}

#[test]
fn an_alternative_may_want_less() {
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), json!([shared("a")]))], &[with_shares("x", &[("a", 5)])]);
    let sub = |name: &str, amount: u64| {
        let mut sub = units(amount);
        sub["name"] = name.into();
        sub["deviceClassName"] = "gpu".into();
        sub
    };
    let either = claim("c", json!([{"name": "r", "firstAvailable": [sub("much", 8), sub("little", 3)]}]));
    assert_eq!(shares(&dra, &[either]), "r/little=a:3");
}

/// All shares of a device consume the counters of the device once.
#[test]
fn shares_of_a_device_consume_its_counters_once() {
    let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 2});
    let sets = json!([{"name": "set", "counters": {"one": {"value": "4"}}}]);
    let mut counters = slice("counters", json!({"pool": pool, "allNodes": true, "sharedCounters": sets}), Value::Null);
    counters["spec"].as_object_mut().expect("a map").remove("devices");
    let consuming = |name: &str| {
        let mut device = shared(name);
        device["consumesCounters"] = json!([{"counterSet": "set", "counters": {"one": {"value": "3"}}}]);
        device
    };
    let slices = [counters, slice("n", json!({"nodeName": "n", "pool": pool}), json!([consuming("a"), consuming("b")]))];
    let dra = manager(&slices, &[]);
    assert_eq!(shares(&dra, &[one(units(4)), one(units(4))]), "r=a:4 | r=a:4");
    assert_eq!(shares(&dra, &[one(units(6)), one(units(6))]), "none", "the counters do not suffice for two devices");
    // The first choice is taken back, with its counters.
    assert_eq!(shares(&dra, &[one(json!({"count": 2}))]), "none");
    assert_eq!(shares(&dra, &[one(units(8)), one(units(2)), one(units(1))]), "none");
    let used = manager(&slices, &[with_shares("x", &[("b", 2)])]);
    assert_eq!(shares(&used, &[one(units(8))]), "r=b:8", "a claim consumes the counters already");
    assert_eq!(shares(&used, &[one(units(9))]), "none");
}

#[test]
fn capacities_take_steps() {
    let steps = |devices: u64, requests: usize| {
        let devices: Vec<Value> = (0..devices).map(|n| shared(&format!("d{n}"))).collect();
        let dra = manager(&[slice("n", json!({"nodeName": "n"}), devices.into())], &[]);
        let unknown: serde_json::Map<_, _> = (0..requests).map(|n| (format!("c{n}"), json!("1"))).collect();
        let claims = [parsed(&one(json!({"capacity": {"requests": unknown}})))];
        let mut effort = Effort::of_node();
        let node = node("n", json!({}));
        let result = Allocator::new(&dra, &SelectorCache::default(), &claims).allocate(&node, &mut CycleCache::default(), &mut effort);
        (summary(result), Effort::of_node().steps - effort.steps)
    };
    let (few, many) = (steps(10, 1), steps(10, 101));
    assert_eq!((few.0.as_str(), many.0.as_str()), ("none", "none"));
    assert!(many.1 >= few.1 + 1000, "a step for each amount and device: {many:?} {few:?}");
    assert_eq!(steps(100, 2000).0, "timed out trying to allocate devices");
}

/// Many requests for shares of many devices, none of which has enough for all.
#[test]
fn a_hostile_claim_for_shares_ends_the_search() {
    let devices: Vec<Value> = (0..20).map(|n| shared(&format!("d{n}"))).collect();
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), devices.into())], &[]);
    let requests: Vec<Value> = (0..21).map(|n| exactly(&format!("r{n}"), units(6))).collect();
    assert_eq!(shares(&dra, &[claim("c", requests.into())]), "timed out trying to allocate devices");
}
