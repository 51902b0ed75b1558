mod exhaustive;
mod prepared;
mod shares;

use serde_json::{Value, json};

use super::super::fixtures::{DRIVER, claim, claim_with, devices_of, exactly, manager, parsed, set_class, slice};
use super::*;
use crate::plugins::fixtures::node;

/// The devices of each claim on the node `n`, or why there are none.
fn allocate(dra: &DraManager, claims: &[Value]) -> String {
    summary(run(dra, claims))
}

fn run(dra: &DraManager, claims: &[Value]) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
    let claims: Vec<_> = claims.iter().map(parsed).collect();
    let node = node("n", json!({"metadata": {"labels": {"zone": "a"}}}));
    Allocator::new(dra, &SelectorCache::default(), &claims).allocate(&node, &mut CycleCache::default(), &mut Effort::of_node())
}

fn summary(result: Result<Option<Vec<AllocationResult>>, AllocationError>) -> String {
    let of_claim = |allocation: &AllocationResult| {
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        results.map(|result| format!("{}={}", result.request, result.device)).collect::<Vec<_>>().join(" ")
    };
    match result {
        Ok(Some(allocations)) => allocations.iter().map(of_claim).collect::<Vec<_>>().join(" | "),
        Ok(None) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn selecting(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

fn attribute(name: &str) -> String {
    format!("device.attributes['{DRIVER}'].{name}")
}

#[test]
fn requests_get_devices_in_order() {
    let dra = manager(&[devices_of("n", &["a", "b", "c"])], &[]);
    assert_eq!(allocate(&dra, &[claim("c", json!([exactly("r", json!({}))]))]), "r=a");
    assert_eq!(allocate(&dra, &[claim("c", json!([exactly("r", json!({"count": 2})), exactly("s", json!({}))]))]), "r=a r=b s=c");
    let two = [claim("c", json!([exactly("r", json!({"count": 2}))])), claim("d", json!([exactly("r", json!({}))]))];
    assert_eq!(allocate(&dra, &two), "r=a r=b | r=c");
    assert_eq!(allocate(&dra, &[claim("c", json!([exactly("r", json!({"count": 4}))]))]), "none");
    assert_eq!(allocate(&dra, &[claim("c", json!([exactly("r", json!({"allocationMode": "All", "count": 0}))]))]), "r=a r=b r=c");
    assert_eq!(allocate(&dra, &[claim("c", json!([]))]), "", "a claim for nothing");
}

#[test]
fn devices_of_other_claims_are_in_use() {
    let result = |admin: bool| json!({"request": "r", "driver": DRIVER, "pool": "n", "device": "a", "adminAccess": admin});
    let allocated = |admin: bool| {
        let mut claim = claim("other", json!([]));
        claim["status"] = json!({"allocation": {"devices": {"results": [result(admin)]}}});
        claim
    };
    let slices = [devices_of("n", &["a", "b"])];
    let wanted = |more: Value| [claim("c", json!([exactly("r", more)]))];
    let dra = manager(&slices, &[allocated(false)]);
    assert_eq!(allocate(&dra, &wanted(json!({}))), "r=b");
    assert_eq!(allocate(&dra, &wanted(json!({"count": 2}))), "none");
    assert_eq!(allocate(&dra, &wanted(json!({"allocationMode": "All"}))), "none", "all are not to be had");
    assert_eq!(allocate(&dra, &wanted(json!({"count": 2, "adminAccess": true}))), "r=a r=b");
    assert_eq!(allocate(&dra, &wanted(json!({"count": 3, "adminAccess": true}))), "none", "each once in a claim");
    let dra = manager(&slices, &[allocated(true)]);
    assert_eq!(allocate(&dra, &wanted(json!({"count": 2}))), "r=a r=b");
    let admin = run(&dra, &wanted(json!({"adminAccess": true}))).expect("no error").expect("an allocation");
    assert_eq!(admin[0].devices.as_ref().and_then(|d| d.results.as_ref()?.first()?.admin_access), Some(true));
}

#[test]
fn class_and_request_select_devices() {
    let device = |name: &str, model: &str, memory: &str| json!({"name": name, "attributes": {"model": {"string": model}}, "capacity": {"memory": {"value": memory}}});
    let devices = json!([device("a", "small", "8Gi"), device("b", "large", "80Gi"), {"name": "c"}]);
    let mut dra = manager(&[slice("n", json!({"nodeName": "n"}), devices)], &[]);
    let wanted = |more: Value| [claim("c", json!([exactly("r", more)]))];
    let large = selecting(&format!("{} == 'large'", attribute("?model.orValue('')")));
    assert_eq!(allocate(&dra, &wanted(large)), "r=b");
    let more = selecting(&format!("device.capacity['{DRIVER}'].?memory.orValue(quantity('0')).compareTo(quantity('8Gi')) > 0"));
    assert_eq!(allocate(&dra, &wanted(more)), "r=b");
    assert_eq!(
        allocate(&dra, &wanted(selecting(&format!("{} == 'medium'", attribute("model"))))),
        "claim default/c: selector #0 on device gpu.example.com/n/c: CEL runtime error: no such key: model. Consider using CEL optional \
         chaining (?), has() macro, or orValue() for optional fields"
    );
    set_class(&mut dra, "gpu", json!({"selectors": [{"cel": {"expression": "device.driver == 'other'"}}]}));
    assert_eq!(allocate(&dra, &wanted(json!({}))), "none");
    set_class(&mut dra, "gpu", json!({"selectors": [{"cel": {"expression": "true"}}, {"cel": {"expression": "device.x"}}]}));
    let error = allocate(&dra, &wanted(json!({})));
    assert!(error.starts_with("class gpu: selector #1: CEL compile error: compilation failed: "), "{error}");
    assert_eq!(
        allocate(&dra, &wanted(json!({"deviceClassName": "tpu"}))),
        "claim default/c, request r: could not retrieve device class tpu: deviceclass.resource.k8s.io \"tpu\" not found"
    );
}

#[test]
fn the_first_alternative_that_fits_is_used() {
    let device = |name: &str, model: &str| json!({"name": name, "attributes": {"model": {"string": model}}});
    let dra =
        manager(&[slice("n", json!({"nodeName": "n"}), json!([device("a", "small"), device("b", "small"), device("c", "large")]))], &[]);
    let sub = |name: &str, model: &str, count: u64| {
        let mut sub = selecting(&format!("{} == '{model}'", attribute("model")));
        sub["name"] = name.into();
        sub["deviceClassName"] = "gpu".into();
        sub["count"] = count.into();
        sub
    };
    let one = |name: &str| json!({"name": name, "firstAvailable": [sub("large", "large", 1), sub("small", "small", 2)]});
    assert_eq!(allocate(&dra, &[claim("c", json!([one("r")]))]), "r/large=c");
    assert_eq!(allocate(&dra, &[claim("c", json!([one("r"), one("s")]))]), "r/large=c s/small=a s/small=b");
    // The first request must be content with its second alternative.
    let large = json!([one("r"), exactly("s", selecting(&format!("{} == 'large'", attribute("model"))))]);
    assert_eq!(allocate(&dra, &[claim("c", large)]), "r/small=a r/small=b s=c");
    assert_eq!(allocate(&dra, &[claim("c", json!([one("r"), one("s"), one("t")]))]), "none");
}

#[test]
fn a_claim_has_at_most_32_devices() {
    let names: Vec<String> = (0..40).map(|n| format!("d{n:02}")).collect();
    let dra = manager(&[devices_of("n", &names.iter().map(String::as_str).collect::<Vec<_>>())], &[]);
    let count = |n: u64| json!({"count": n});
    assert_eq!(
        allocate(&dra, &[claim("c", json!([exactly("r", count(20)), exactly("s", count(13))]))]),
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    );
    let all = claim("c", json!([exactly("r", json!({"allocationMode": "All"}))]));
    assert_eq!(allocate(&dra, &[all]), "claim default/c: number of requested devices 40 exceeds the claim limit of 32");
    let sub = |name: &str, n: u64| json!({"name": name, "deviceClassName": "gpu", "count": n});
    let either = |name: &str| json!({"name": name, "firstAvailable": [sub("many", 20), sub("few", 10)]});
    let devices = allocate(&dra, &[claim("c", json!([either("r"), either("s")]))]);
    assert_eq!((devices.matches("r/many").count(), devices.matches("s/few").count()), (20, 10));
    let fits = [claim("c", json!([exactly("r", count(32))])), claim("d", json!([exactly("r", count(8))]))];
    assert_eq!(allocate(&dra, &fits).matches('=').count(), 40, "the limit is that of one claim");
}

#[test]
fn constraints_relate_devices_of_a_claim() {
    let device = |name: &str, numa: u64, slot: u64| json!({"name": name, "attributes": {"numa": {"int": numa}, "slot": {"int": slot}}});
    let devices = json!([device("a", 0, 1), device("b", 1, 1), device("c", 1, 2), {"name": "d"}]);
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), devices)], &[]);
    let constrained = |constraint: Value, requests: Value| [claim_with("c", json!({"requests": requests, "constraints": [constraint]}))];
    let same = json!({"matchAttribute": format!("{DRIVER}/numa")});
    let two = json!([exactly("r", json!({"count": 2}))]);
    assert_eq!(allocate(&dra, &constrained(same.clone(), two.clone())), "r=b r=c");
    assert_eq!(allocate(&dra, &constrained(same.clone(), json!([exactly("r", json!({"count": 3}))]))), "none");
    let other = json!({"distinctAttribute": format!("{DRIVER}/slot")});
    assert_eq!(allocate(&dra, &constrained(other, two)), "r=a r=c");
    let of_one = json!({"matchAttribute": format!("{DRIVER}/numa"), "requests": ["r"]});
    let free = json!([exactly("r", json!({"count": 2})), exactly("s", json!({"count": 2}))]);
    assert_eq!(allocate(&dra, &constrained(of_one, free)), "r=b r=c s=a s=d");
    assert_eq!(
        allocate(&dra, &constrained(same, json!([exactly("r", json!({"allocationMode": "All"}))]))),
        "claim default/c, request r: cannot add device gpu.example.com/n/b because a claim constraint would not be satisfied"
    );
    let neither = allocate(&dra, &constrained(json!({}), json!([exactly("r", json!({}))])));
    assert_eq!(neither, "claim default/c, constraint #0: empty constraint (unsupported constraint type?)");
}

#[test]
fn tainted_devices_need_a_toleration() {
    let tainted = |effect: &str| json!({"name": "a", "taints": [{"key": "broken", "value": "yes", "effect": effect}]});
    let run = |effect: &str, tolerations: Value| {
        let dra = manager(&[slice("n", json!({"nodeName": "n"}), json!([tainted(effect)]))], &[]);
        allocate(&dra, &[claim("c", json!([exactly("r", json!({"tolerations": tolerations}))]))])
    };
    assert_eq!(run("NoSchedule", json!([])), "none");
    assert_eq!(run("NoExecute", json!([])), "none");
    assert_eq!(run("None", json!([])), "r=a", "an effect for people alone");
    assert_eq!(run("NoSchedule", json!([{"operator": "Exists"}])), "r=a");
    assert_eq!(run("NoSchedule", json!([{"key": "broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}])), "r=a");
    assert_eq!(run("NoExecute", json!([{"key": "broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}])), "none");
    assert_eq!(run("NoSchedule", json!([{"key": "broken", "operator": "Equal", "value": "no"}])), "none");
    assert_eq!(run("NoSchedule", json!([{"key": "other", "operator": "Exists"}])), "none");
}

#[test]
fn slices_select_their_nodes() {
    let run = |spec: Value| {
        let dra = manager(&[slice("s", spec, json!([{"name": "a"}]))], &[]);
        let result = run(&dra, &[claim("c", json!([exactly("r", json!({}))]))]).expect("no error");
        result.map(|all| all.into_iter().next().and_then(|one| one.node_selector).map(|selector| json!(selector)))
    };
    let of_node = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    assert_eq!(run(json!({"nodeName": "n"})), Some(Some(of_node.clone())));
    assert_eq!(run(json!({"nodeName": "other"})), None);
    assert_eq!(run(json!({"allNodes": true})), Some(None));
    let zone = |zone: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]});
    assert_eq!(run(json!({"nodeSelector": zone("a")})), Some(Some(zone("a"))));
    assert_eq!(run(json!({"nodeSelector": zone("b")})), None);
    assert_eq!(run(json!({})), None, "a slice that selects its nodes in an unknown way");

    let device = |name: &str, more: Value| {
        let mut device = json!({"name": name});
        device.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        device
    };
    let devices = json!([
        device("a", json!({"nodeName": "other"})),
        device("b", json!({"nodeSelector": zone("b")})),
        device("c", json!({"nodeSelector": zone("a")})),
        device("d", json!({"allNodes": true})),
        device("e", json!({"nodeName": "n"})),
    ]);
    let dra = manager(&[slice("s", json!({"perDeviceNodeSelection": true}), devices)], &[]);
    let wanted = |n: u64| [claim("c", json!([exactly("r", json!({"count": n}))]))];
    assert_eq!(allocate(&dra, &wanted(3)), "r=c r=d r=e");
    let two = super::tests::run(&dra, &wanted(2)).expect("no error").expect("an allocation");
    assert_eq!(two[0].node_selector.as_ref().map(|selector| json!(selector)), Some(zone("a")));
    let three = super::tests::run(&dra, &wanted(3)).expect("no error").expect("an allocation");
    assert_eq!(three[0].node_selector.as_ref().map(|selector| json!(selector)), Some(of_node));
}

#[test]
fn the_newest_generation_counts_when_it_is_complete() {
    let of_pool = |name: &str, generation: u64, count: u64, node: &str, device: &str| {
        let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": count});
        slice(name, json!({"nodeName": node, "pool": pool}), json!([{"name": device}]))
    };
    let one = [claim("c", json!([exactly("r", json!({}))]))];
    let all = [claim("c", json!([exactly("r", json!({"allocationMode": "All"}))]))];
    let run = |slices: &[Value]| (allocate(&manager(slices, &[]), &one), allocate(&manager(slices, &[]), &all));
    let text = |one: &str, all: &str| (one.to_owned(), all.to_owned());
    assert_eq!(run(&[of_pool("s1", 1, 1, "n", "old"), of_pool("s2", 2, 1, "n", "new")]), text("r=new", "r=new"));
    let updating = "claim default/c, request r: asks for all devices, but resource pool gpu.example.com/p is currently being updated";
    assert_eq!(run(&[of_pool("s1", 1, 1, "n", "old"), of_pool("s2", 2, 2, "n", "new")]), text("none", updating));
    assert_eq!(
        run(&[of_pool("s1", 1, 2, "n", "a"), of_pool("s2", 1, 2, "other", "b")]),
        text("r=a", "r=a"),
        "the other slice is elsewhere"
    );
    assert_eq!(run(&[of_pool("s1", 1, 1, "n", "old"), of_pool("s2", 2, 1, "other", "new")]), text("none", "none"), "obsolete");
    let invalid = "claim default/c, request r: asks for all devices, but resource pool gpu.example.com/p is currently invalid";
    let twice = [of_pool("s1", 1, 2, "n", "a"), of_pool("s2", 1, 2, "n", "a")];
    assert_eq!(run(&twice), text("invalid resource pools were encountered", invalid));
    let [s1, s2] = twice;
    assert_eq!(allocate(&manager(&[s1, s2, devices_of("n", &["good"])], &[]), &one), "r=good", "another pool");
}

#[test]
fn devices_share_counters() {
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
    let counters = |memory: &str| {
        let sets = json!([{"name": "gpu-0", "counters": {"memory": {"value": memory}}}]);
        let mut slice = slice("counters", json!({"pool": pool, "allNodes": true, "sharedCounters": sets}), Value::Null);
        slice["spec"].as_object_mut().expect("a map").remove("devices");
        slice
    };
    let device = |name: &str, set: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": set, "counters": {"memory": {"value": memory}}}]});
    let partitions = |set: &str| {
        let devices = json!([device("half-0", set, "20Gi"), device("half-1", set, "20Gi"), device("whole", set, "40Gi")]);
        slice("devices", json!({"nodeName": "n", "pool": pool}), devices)
    };
    let slices = [counters("40Gi"), partitions("gpu-0")];
    let wanted = |n: u64| [claim("c", json!([exactly("r", json!({"count": n}))]))];
    assert_eq!(allocate(&manager(&slices, &[]), &wanted(2)), "r=half-0 r=half-1");
    assert_eq!(allocate(&manager(&slices, &[]), &wanted(3)), "none");
    let whole = [claim("c", json!([exactly("r", json!({})), exactly("s", json!({}))])), claim("d", json!([exactly("r", json!({}))]))];
    assert_eq!(allocate(&manager(&slices, &[]), &whole), "none", "claims share the counters, too");
    let mut used = claim("used", json!([]));
    used["status"] = json!({"allocation": {"devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "p", "device": "half-1"}]}}});
    assert_eq!(allocate(&manager(&slices, &[used.clone()]), &wanted(1)), "r=half-0");
    assert_eq!(allocate(&manager(&slices, &[used]), &wanted(2)), "none");
    let invalid = "invalid resource pools were encountered";
    assert_eq!(allocate(&manager(&[counters("40Gi"), partitions("gpu-1")], &[]), &wanted(1)), invalid, "no such set");
}

/// As upstream: what the driver publishes and what is allocated contradict each other.
#[test]
fn a_pool_with_an_overdrawn_counter_has_no_devices_that_consume_counters() {
    let consuming = |name: &str, counter: &str| {
        let counters = json!([{"counterSet": "set", "counters": {counter: {"value": "3"}}}]);
        json!({"name": name, "consumesCounters": counters})
    };
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
    let sets = json!([{"name": "set", "counters": {"one": {"value": "4"}, "other": {"value": "4"}}}]);
    let mut counters = slice("counters", json!({"pool": pool, "allNodes": true, "sharedCounters": sets}), Value::Null);
    counters["spec"].as_object_mut().expect("a map").remove("devices");
    let devices = |more: Value| {
        let devices = json!([consuming("a", "one"), consuming("b", "one"), consuming("c", "other"), more]);
        slice("devices", json!({"nodeName": "n", "pool": pool}), devices)
    };
    let used = |devices: &[&str]| {
        let result = |device: &&str| json!({"request": "r", "driver": DRIVER, "pool": "p", "device": device});
        let mut used = claim("used", json!([]));
        used["status"] = json!({"allocation": {"devices": {"results": devices.iter().map(result).collect::<Vec<_>>()}}});
        used
    };
    let wanted = [claim("c", json!([exactly("r", json!({}))]))];
    let with_one_more = |more: Value, in_use: &[&str]| allocate(&manager(&[counters.clone(), devices(more)], &[used(in_use)]), &wanted);
    assert_eq!(with_one_more(consuming("d", "one"), &["a"]), "r=c", "one is left of a counter");
    assert_eq!(with_one_more(consuming("d", "one"), &["a", "b"]), "none", "two less than nothing");
    assert_eq!(with_one_more(json!({"name": "d"}), &["a", "b"]), "r=d", "a device without counters");
}

#[test]
fn devices_with_unsupported_fields_are_left_alone() {
    for (name, device, spec) in [
        ("lists", json!({"name": "a", "attributes": {"all": {"ints": [1]}}}), json!({})),
        ("resources of the node", json!({"name": "a", "nodeAllocatableResources": {"cpu": {"mapping": {}}}}), json!({})),
        ("skipped operations", json!({"name": "a"}), json!({"skipNodeOperations": ["*"]})),
    ] {
        let mut more = json!({"nodeName": "n"});
        more.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
        let dra = manager(&[slice("s", more, json!([device, {"name": "b"}]))], &[]);
        let expected = if name == "skipped operations" { "none" } else { "r=b" };
        assert_eq!(allocate(&dra, &[claim("c", json!([exactly("r", json!({}))]))]), expected, "{name}");
    }
    let dra = manager(&[devices_of("n", &["a"])], &[]);
    for (more, message) in [
        (
            json!({"derivedAttributes": [{"name": "d/x", "expression": "1"}]}),
            "has derived attributes, but the DRADerivedAttributes feature is disabled",
        ),
        (json!({"capacity": {"requests": {"memory": "1GiB"}}}), "the requested amount of capacity \"memory\" is no quantity"),
    ] {
        let error = allocate(&dra, &[claim("c", json!([exactly("r", more)]))]);
        assert_eq!(error, format!("claim default/c, request r: {message}"));
    }
}

#[test]
fn configurations_of_classes_and_claims_are_passed_on() {
    let mut dra = manager(&[devices_of("n", &["a", "b", "c"])], &[]);
    let config = |value: &str| json!({"opaque": {"driver": DRIVER, "parameters": {"value": value}}});
    set_class(&mut dra, "gpu", json!({"config": [config("class")]}));
    set_class(&mut dra, "other", json!({"config": [config("other")]}));
    let of = |requests: &[&str], value: &str| {
        let mut config = config(value);
        config["requests"] = json!(requests);
        config
    };
    let requests = json!([exactly("r", json!({})), exactly("s", json!({})), exactly("t", json!({"deviceClassName": "other"}))]);
    let devices = json!({"requests": requests, "config": [of(&["r"], "one"), of(&[], "all"), of(&["missing"], "none")]});
    let result = run(&dra, &[claim_with("c", devices)]).expect("no error").expect("an allocation");
    let config = result[0].devices.as_ref().and_then(|devices| devices.config.as_ref()).expect("configurations");
    let lines: Vec<String> = config
        .iter()
        .map(|config| {
            let value = config.opaque.as_ref().map(|opaque| opaque.parameters.0["value"].clone()).unwrap_or_default();
            format!("{} {:?} {value}", config.source, config.requests.as_deref().unwrap_or_default())
        })
        .collect();
    assert_eq!(
        lines,
        [r#"FromClass ["r", "s"] "class""#, r#"FromClass ["t"] "other""#, r#"FromClaim ["r"] "one""#, r#"FromClaim [] "all""#]
    );
    let one =
        run(&dra, &[claim("c", json!([exactly("r", json!({"tolerations": [{"operator": "Exists"}]}))]))]).expect("no error").expect("one");
    let devices = one[0].devices.as_ref().expect("devices");
    assert_eq!(devices.config.as_ref().and_then(|config| config.first()?.requests.clone()), None, "it applies to all requests");
    assert!(devices.results.as_ref().is_some_and(|results| results[0].tolerations.is_some()));
}

#[test]
fn a_hostile_claim_ends_the_search() {
    let device = |n: u64| json!({"name": format!("d{n}"), "attributes": {"half": {"int": n % 2}}});
    let devices: Vec<Value> = (0..60).map(device).collect();
    let dra = manager(&[slice("n", json!({"nodeName": "n"}), devices.into())], &[]);
    let requests: Vec<Value> = (0..31).map(|n| exactly(&format!("r{n}"), json!({}))).collect();
    let constraint = json!([{"matchAttribute": format!("{DRIVER}/half")}]);
    let hostile = claim_with("c", json!({"requests": requests, "constraints": constraint}));
    assert_eq!(allocate(&dra, &[hostile]), "timed out trying to allocate devices");

    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let slow = ["a", "b", "c", "d", "e"].iter().fold("true".to_owned(), |inner, name| format!("{ten}.all({name}, {inner})"));
    let many: Vec<Value> = (0..32).map(|_| json!({"cel": {"expression": slow}})).collect();
    let costly = claim("c", json!([exactly("r", json!({"selectors": many}))]));
    assert_eq!(allocate(&dra, &[costly]), "timed out trying to allocate devices");
}

/// Long selectors that are all different, as many as a claim may have: only some of them are compiled.
#[test]
fn the_selectors_that_a_cycle_compiles_are_bounded() {
    let dra = manager(&[devices_of("n", &["a"])], &[]);
    let long = |n: usize| json!({"cel": {"expression": format!("{n} != 1000 || '{}' == ''", "x".repeat(1_000))}});
    let request = |n: usize| {
        let selectors: Vec<Value> = (32 * n..32 * n + 32).map(long).collect();
        exactly(&format!("r{n}"), json!({"allocationMode": "All", "selectors": selectors}))
    };
    let claims = [parsed(&claim("c", json!((0..32).map(request).collect::<Vec<_>>())))];
    let (node, selectors, mut cache) = (node("n", json!({})), SelectorCache::default(), CycleCache::default());
    for attempt in 1..=2 {
        let result = Allocator::new(&dra, &selectors, &claims).allocate(&node, &mut cache, &mut Effort::of_node());
        assert_eq!(summary(result), "timed out trying to allocate devices", "{attempt}");
    }
    // Ten of them are as many as claims have.
    let few = [parsed(&claim("c", json!([exactly("r", json!({"selectors": (0..10).map(long).collect::<Vec<_>>()}))])))];
    let (mut cache, mut effort) = (CycleCache::default(), Effort::of_node());
    assert_eq!(summary(Allocator::new(&dra, &selectors, &few).allocate(&node, &mut cache, &mut effort)), "r=a");
    assert!(effort.steps > Effort::of_node().steps - 200, "{effort:?}");
}

/// Reading slices and devices takes steps, before the first device is tried.
#[test]
fn what_is_read_for_a_node_takes_steps() {
    let steps = |devices: usize, claims: &[Value]| {
        let names: Vec<String> = (0..devices).map(|n| format!("d{n:04}")).collect();
        let dra = manager(&[devices_of("n", &names.iter().map(String::as_str).collect::<Vec<_>>())], &[]);
        let claims: Vec<_> = claims.iter().map(parsed).collect();
        let mut effort = Effort::of_node();
        let result = Allocator::new(&dra, &SelectorCache::default(), &claims).allocate(
            &node("n", json!({})),
            &mut CycleCache::default(),
            &mut effort,
        );
        assert!(matches!(result, Ok(Some(_))), "{result:?}");
        Effort::of_node().steps - effort.steps
    };
    let one = [claim("c", json!([exactly("r", json!({}))]))];
    assert!(steps(1_000, &one) >= steps(1, &one) + 999, "a step for each device");
    let selectors: Vec<Value> = (0..10).map(|n| json!({"cel": {"expression": format!("{n} < 10")}})).collect();
    let selecting = [claim("c", json!([exactly("r", json!({"selectors": selectors}))]))];
    assert!(steps(1, &selecting) >= steps(1, &one) + 10, "a step for each selector");
    let mut effort = Effort { steps: 10, selectors: Budget::new(SELECTOR_COST_MAX) };
    assert_eq!((effort.take(11), effort.steps, effort.is_spent()), (Err(AllocationError::TimedOut), 0, true));
}

#[test]
fn many_claims_need_no_deep_stack() {
    let names: Vec<String> = (0..300).map(|n| format!("d{n:03}")).collect();
    let dra = manager(&[devices_of("n", &names.iter().map(String::as_str).collect::<Vec<_>>())], &[]);
    let claims: Vec<Value> = (0..300).map(|n| claim(&format!("c{n}"), json!([exactly("r", json!({}))]))).collect();
    assert_eq!(allocate(&dra, &claims).matches("r=").count(), 300);
}
