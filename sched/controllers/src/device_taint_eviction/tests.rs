use serde_json::{Value, json};

use super::*;

/// The Pods `p` and `q` have devices of the pools of the same names.
fn users() -> DeviceUsers {
    let cache = Informer::detached();
    let users = DeviceUsers::new(cache.clone());
    for name in ["p", "q"] {
        let results = json!([{"request": "r", "driver": "d", "pool": name, "device": "gpu-0"}]);
        let other = json!({"apiGroup": "x", "resource": "pods", "name": "other", "uid": "o"});
        let consumers = json!([{"resource": "pods", "name": name, "uid": name}, other]);
        let status = json!({"allocation": {"devices": {"results": results}}, "reservedFor": consumers});
        let claim: ResourceClaim =
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {}, "status": status})).expect("a claim");
        cache.put(claim.clone());
        users.observe(&Change { old: None, new: Some(Arc::new(claim)) });
    }
    users
}

fn slice(name: &str, generation: i64, effect: &str) -> ResourceSlice {
    let taints = if effect.is_empty() { json!([]) } else { json!([{"key": "k", "effect": effect}]) };
    let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "nodeName": "n", "pool": pool, "devices": [{"name": "gpu-0", "taints": taints}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a slice")
}

#[test]
fn a_slice_wakes_the_pods_of_its_pool_when_taints_that_evict_may_differ() {
    let users = users();
    let other = |generation: i64, effect: &str| Some(slice("other", generation, effect));
    let one = |generation: i64, effect: &str| Some(slice("one", generation, effect));
    let cases = [
        ("a slice without taints", None, None, one(1, ""), false),
        ("a tainted slice", None, None, one(1, "NoExecute"), true),
        ("another effect", None, None, one(1, "NoSchedule"), false),
        ("tainted", None, one(1, ""), one(1, "NoExecute"), true),
        ("the same taints", None, one(1, "NoExecute"), one(1, "NoExecute"), false),
        ("not tainted any more", None, one(1, "NoExecute"), one(1, ""), true),
        ("a tainted slice is gone", None, one(1, "NoExecute"), None, true),
        ("a newer generation than that of a tainted slice", other(1, "NoExecute"), None, one(2, ""), true),
        ("the newest generation is gone", other(1, "NoExecute"), one(2, ""), None, true),
        ("a newer generation in a pool without taints", other(1, ""), one(1, ""), one(2, ""), false),
    ];
    for (name, sibling, old, new, wakes) in cases {
        let cache = Informer::detached();
        sibling.into_iter().chain(new.clone()).for_each(|slice| cache.put(slice));
        let change = Change { old: old.map(Arc::new), new: new.map(Arc::new) };
        let wanted = if wakes { vec![Key::Pod(ObjectKey::new("ns", "p"))] } else { Vec::new() };
        assert_eq!(slice_changed(&users, &cache, &change), wanted, "{name}");
    }
}

#[test]
fn a_rule_wakes_its_condition_and_the_pods_that_it_selects_or_selected() {
    let users = users();
    let rule = |pool: &str, effect: &str, status: Value| -> Option<Arc<DeviceTaintRule>> {
        let spec = json!({"deviceSelector": {"pool": pool}, "taint": {"key": "k", "effect": effect}});
        let rule = json!({"metadata": {"name": "r", "uid": "r"}, "spec": spec, "status": status});
        Some(Arc::new(serde_json::from_value(rule).expect("a rule")))
    };
    let pod = |name: &str| Key::Pod(ObjectKey::new("ns", name));
    let condition = Key::Rule("r".to_owned());
    let cases = [
        (None, rule("p", "NoExecute", json!({})), vec![condition.clone(), pod("p")]),
        (None, rule("p", "NoSchedule", json!({})), vec![condition.clone()]),
        (rule("p", "None", json!({})), rule("p", "NoExecute", json!({})), vec![condition.clone(), pod("p")]),
        (rule("p", "NoExecute", json!({})), rule("q", "NoExecute", json!({})), vec![condition.clone(), pod("p"), pod("q")]),
        (rule("p", "NoExecute", json!({})), rule("p", "NoSchedule", json!({})), vec![condition.clone(), pod("p")]),
        (rule("p", "NoExecute", json!({})), rule("p", "NoExecute", json!({"conditions": []})), vec![]),
        (rule("p", "NoExecute", json!({})), None, vec![condition, pod("p")]),
    ];
    for (old, new, wanted) in cases {
        assert_eq!(rule_changed(&users, &Change { old, new }), wanted);
    }
}
