use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000 + second).expect("in range")
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "value": "v", "effect": effect, "timeAdded": at(0).to_string()})
}

fn rule(name: &str, selector: Value, taint: Value) -> Arc<DeviceTaintRule> {
    let rule = json!({"metadata": {"name": name, "uid": name}, "spec": {"deviceSelector": selector, "taint": taint}});
    Arc::new(serde_json::from_value(rule).expect("a rule"))
}

fn slice(driver: &str, generation: i64, taints: Value) -> Arc<ResourceSlice> {
    let devices = json!([{"name": "gpu-0", "taints": taints}, {"name": "gpu-1"}]);
    let spec = json!({
        "driver": driver, "nodeName": "n", "devices": devices,
        "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1},
    });
    Arc::new(serde_json::from_value(json!({"metadata": {"name": driver}, "spec": spec})).expect("a slice"))
}

fn device(name: &str, tolerations: Value) -> DeviceRequestAllocationResult {
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": name, "tolerations": tolerations});
    serde_json::from_value(result).expect("a device")
}

#[test]
fn a_taint_is_tolerated_as_long_as_the_shortest_toleration_says() {
    let for_seconds = |seconds: i64| json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let forever = json!({"key": "k", "value": "v", "effect": "NoExecute"});
    let cases = [
        (json!([]), Some(at(0))),
        (json!([for_seconds(300)]), Some(at(300))),
        (json!([for_seconds(300), for_seconds(30)]), Some(at(30))),
        (json!([for_seconds(-5)]), Some(at(0))),
        (json!([for_seconds(i64::MAX)]), Some(Timestamp::MAX)),
        (json!([for_seconds(30), forever]), None),
        (json!([{"operator": "Exists"}]), None),
        (json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]), Some(at(0))),
        (json!([{"key": "k", "value": "other", "effect": "NoExecute"}]), Some(at(0))),
        (json!([{"key": "other", "operator": "Exists", "effect": "NoExecute"}]), Some(at(0))),
        (json!([{"key": "k", "operator": "Sometimes"}]), Some(at(0))),
    ];
    let slices = [slice("d", 1, json!([taint("k", "NoExecute")]))];
    for (tolerations, wanted) in cases {
        let eviction = of_device(&device("gpu-0", tolerations.clone()), &slices, &[], at(20));
        assert_eq!(eviction.map(|eviction| eviction.at), wanted, "{tolerations}");
    }
}

#[test]
fn the_newest_generation_of_the_drivers_pool_has_the_taints() {
    let tainted = || json!([taint("k", "NoExecute")]);
    let cases = [
        ("no slices", vec![], None),
        ("tainted", vec![slice("d", 1, tainted())], Some(at(0))),
        ("another driver's pool", vec![slice("e", 1, tainted())], None),
        ("an old generation", vec![slice("d", 1, tainted()), slice("d", 2, json!([]))], None),
        ("a new generation", vec![slice("d", 1, json!([])), slice("d", 2, tainted()), slice("e", 3, json!([]))], Some(at(0))),
        ("other effects", vec![slice("d", 1, json!([taint("k", "NoSchedule"), taint("k", "None"), taint("k", "Later")]))], None),
        ("no time", vec![slice("d", 1, json!([{"key": "k", "effect": "NoExecute"}]))], Some(at(20))),
    ];
    for (name, slices, wanted) in cases {
        let of = |device_name| of_device(&device(device_name, json!([])), &slices, &[], at(20)).map(|eviction| eviction.at);
        assert_eq!((of("gpu-0"), of("gpu-1")), (wanted, None), "{name}");
    }
}

#[test]
fn the_first_of_all_reasons_decides_and_each_rule_is_named() {
    let (late, early) = (json!({"key": "k", "effect": "NoExecute", "timeAdded": at(9).to_string()}), taint("k", "NoExecute"));
    let rules = [
        rule("of-pool", json!({"driver": "d", "pool": "p"}), late.clone()),
        rule("of-device", json!({"device": "gpu-0"}), early),
        rule("of-other", json!({"device": "gpu-1"}), late.clone()),
        rule("of-nothing", Value::Null, late),
    ];
    let claim = |device: &str| -> Arc<ResourceClaim> {
        let results = json!([{"request": "r", "driver": "d", "pool": "p", "device": device}]);
        Arc::new(serde_json::from_value(json!({"spec": {}, "status": {"allocation": {"devices": {"results": results}}}})).expect("a claim"))
    };
    let evicted = |claims: &[Arc<ResourceClaim>]| {
        let eviction = of_claims(claims, |device| of_device(device, &[], &rules, at(20)));
        let names = |eviction: &Eviction| eviction.rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>().join(" ");
        eviction.map(|eviction| (eviction.at, names(&eviction)))
    };
    assert_eq!(evicted(&[]), None);
    assert_eq!(evicted(&[claim("gpu-2")]), Some((at(9), "of-pool".to_owned())));
    assert_eq!(evicted(&[claim("gpu-0")]), Some((at(0), "of-device of-pool".to_owned())));
    assert_eq!(evicted(&[claim("gpu-1"), claim("gpu-0")]), Some((at(0), "of-device of-other of-pool".to_owned())));
}

#[test]
fn the_devices_of_the_newest_generation_of_each_pool_are_published() {
    let slices = [slice("d", 1, json!([])), slice("d", 2, json!([])), slice("e", 1, json!([]))];
    let count = |selector: Value| published(&rule("r", selector, taint("k", "None")), &slices);
    assert_eq!(count(json!({})), 4);
    assert_eq!(count(json!({"driver": "d"})), 2);
    assert_eq!(count(json!({"device": "gpu-1"})), 2);
    assert_eq!(count(json!({"pool": "q"})), 0);
    assert_eq!(count(Value::Null), 0);
}
