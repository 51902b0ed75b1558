use serde_json::{Value, json};

use super::fixtures::{DRIVER, allocated, claim, devices_of, exactly, manager, set_claim, wanted};
use super::*;
use crate::plugins::fixtures::{node, pod, snapshot};

/// A Pod that uses these claims.
pub(super) fn using(name: &str, claims: &[&str]) -> PodInfo {
    let claims: Vec<_> = claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    pod(name, json!({"resourceClaims": claims}))
}

/// A cluster of the nodes `n1` and `n2` with these devices and claims.
pub(super) fn cluster(slices: &[Value], claims: &[Value]) -> Snapshot {
    let mut all = snapshot(vec![node("n1", json!({})), node("n2", json!({}))]);
    all.dra = Arc::new(manager(slices, claims));
    all
}

/// What the plugin says of the Pod on both nodes, in the same state.
fn filter(plugin: &DynamicResources, state: &mut CycleState, pod: &PodInfo, all: &Snapshot) -> [String; 2] {
    let text = |status: Status| match status {
        Status::Success => "fits".to_owned(),
        Status::Unschedulable(reasons) => format!("resolvable: {}", reasons.join(", ")),
        Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
    };
    match plugin.pre_filter(state, pod, all) {
        Status::Success => {}
        status => return [text(status), String::new()],
    }
    ["n1", "n2"].map(|name| text(plugin.filter(state, pod, all.node(name).expect("a node"))))
}

pub(super) fn post_filter(plugin: &DynamicResources, state: &mut CycleState, pod: &PodInfo, all: &Snapshot) -> String {
    match plugin.post_filter(&Filters::new(Vec::new()), state, pod, all, &[], 0) {
        PostFilterResult::Unschedulable { message, stays_nominated: true } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_without_claims_has_no_part() {
    let (plugin, mut state, all) = (DynamicResources::default(), CycleState::default(), cluster(&[], &[]));
    let pod = pod("p", json!({}));
    assert!(!plugin.may_reject(&state, &pod) && !plugin.has_part_in(&pod));
    assert_eq!(filter(&plugin, &mut state, &pod, &all), ["fits", "fits"]);
    assert!(state.read::<PodClaims>(DYNAMIC_RESOURCES).is_none());
    assert_eq!(post_filter(&plugin, &mut state, &pod, &all), "");
}

/// What is tried, the claims, the Pod, the statuses of two nodes and the message of the post-filter.
type FilterCase = (&'static str, Vec<Value>, PodInfo, [&'static str; 2], &'static str);

#[test]
fn claims_decide_which_nodes_are_feasible() {
    let slices = [devices_of("n1", &["a"])];
    let cases: [FilterCase; 8] = [
        ("a device of one node", vec![wanted("c")], using("p", &["c"]), ["fits", "cannot allocate all claims"], "still not schedulable"),
        (
            "in use",
            vec![wanted("c"), allocated("d", "n1", "a", &["q"])],
            using("p", &["c"]),
            ["cannot allocate all claims", "cannot allocate all claims"],
            "still not schedulable",
        ),
        (
            "shared with another Pod",
            vec![allocated("c", "n1", "a", &["q"])],
            using("p", &["c"]),
            ["fits", "resourceclaim not available on the node"],
            "still not schedulable",
        ),
        (
            "of no use where it is",
            vec![allocated("c", "n3", "a", &["p"])],
            using("p", &["c"]),
            ["resourceclaim not available on the node", "resourceclaim not available on the node"],
            "deallocation of ResourceClaim started",
        ),
        ("missing", vec![], using("p", &["c"]), [r#"could not find ResourceClaim "default/c""#, ""], "no new claims to deallocate"),
        (
            "for an unknown class",
            vec![claim("c", json!([exactly("r", json!({"deviceClassName": "tpu"}))]))],
            using("p", &["c"]),
            ["request r: device class tpu does not exist", ""],
            "no new claims to deallocate",
        ),
        (
            "of an unknown kind",
            vec![claim("c", json!([{"name": "r"}]))],
            using("p", &["c"]),
            ["resource claim default/c, request r: unknown request type", ""],
            "no new claims to deallocate",
        ),
        (
            "broken",
            vec![claim("c", json!([exactly("r", json!({"selectors": [{"cel": {"expression": "device.attributes['x'].y"}}]}))]))],
            using("p", &["c"]),
            ["claim default/c: selector #0 on device gpu.example.com/n1/a: CEL runtime error: no such key: y. Consider using CEL \
                 optional chaining (?), has() macro, or orValue() for optional fields"; 2],
            "still not schedulable",
        ),
    ];
    for (name, claims, pod, expected, room) in cases {
        let (plugin, mut state, all) = (DynamicResources::default(), CycleState::default(), cluster(&slices, &claims));
        assert_eq!(filter(&plugin, &mut state, &pod, &all), expected, "{name}");
        assert_eq!(post_filter(&plugin, &mut state, &pod, &all), room, "{name}");
    }
}

#[test]
fn claims_made_by_templates_belong_to_their_pod() {
    let mut of_other = wanted("p-gpu-x");
    of_other["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "q", "controller": true}]);
    let mut deleting = wanted("shared");
    deleting["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    let all = cluster(&[devices_of("n1", &["a"])], &[of_other, deleting]);
    let generated = |source: ClaimSource| PodInfo {
        resource_claims: vec![sched_framework::PodResourceClaim { name: "gpu".to_owned(), source }],
        ..pod("p", json!({}))
    };
    use sched_framework::ClaimSource;
    for (source, reason) in [
        (ClaimSource::NotCreated, r#"pod "default/p": ResourceClaim not created yet"#),
        (
            ClaimSource::Generated("p-gpu-x".to_owned()),
            "ResourceClaim default/p-gpu-x was not created for pod default/p (pod is not owner)",
        ),
        (ClaimSource::Unsupported, r#"pod "default/p", spec.resourceClaim "gpu": none of the supported fields are set"#),
        (ClaimSource::Named("shared".to_owned()), r#"resourceclaim "shared" is being deleted"#),
        (ClaimSource::NotNeeded, "fits"),
    ] {
        let (plugin, mut state) = (DynamicResources::default(), CycleState::default());
        assert_eq!(filter(&plugin, &mut state, &generated(source), &all)[0], reason);
    }
    assert_eq!(claims::awaited(&generated(ClaimSource::NotCreated), &all.dra).as_deref(), Some(""));
    assert_eq!(claims::awaited(&generated(ClaimSource::Generated("later".to_owned())), &all.dra).as_deref(), Some("default/later"));
    assert_eq!(claims::awaited(&generated(ClaimSource::Generated("p-gpu-x".to_owned())), &all.dra), None);
    assert_eq!(claims::awaited(&generated(ClaimSource::Named("later".to_owned())), &all.dra), None);
}

#[test]
fn what_is_reserved_is_in_use_until_it_is_not() {
    let (plugin, mut state) = (DynamicResources::default(), CycleState::default());
    let mut all = cluster(&[devices_of("n1", &["a"])], &[wanted("c"), wanted("d")]);
    let (first, second) = (using("p", &["c"]), using("q", &["d"]));
    assert_eq!(filter(&plugin, &mut state, &first, &all)[0], "fits");
    plugin.reserve(&mut state, &first, "n1", &mut all).expect("reserved");
    let others = |all: &Snapshot, pod: &PodInfo| filter(&plugin, &mut CycleState::default(), pod, all)[0].clone();
    assert_eq!(others(&all, &second), "cannot allocate all claims");
    assert_eq!(others(&all, &using("r", &["c"])), "resource claim default/c is in the process of being allocated");
    assert_eq!(plugin.unreserve(&mut state, &first, "n1", &mut all), [ClusterEvent::ResourceClaimUpdate]);
    assert_eq!(plugin.unreserve(&mut state, &first, "n1", &mut all), [], "nothing is left");
    assert_eq!((others(&all, &second), others(&all, &first)), ("fits".to_owned(), "fits".to_owned()));

    let error = plugin.reserve(&mut CycleState::default(), &first, "n1", &mut all);
    assert_eq!(error, Ok(()), "the plugin has nothing to do");
    assert_eq!(filter(&plugin, &mut state, &first, &all), ["fits", "cannot allocate all claims"]);
    let error = plugin.reserve(&mut state, &first, "n2", &mut all);
    assert_eq!(error, Err(Refusal::Error("claim allocation not found for node".into())));
}

#[test]
fn a_claim_whose_devices_cannot_be_used_is_deallocated() {
    let now = api_model::meta::time(api_clock::now());
    let claim_of = |since: &str, condition: &str, pods: &[&str]| {
        let mut claim = allocated("c", "n1", "a", pods);
        let allocation = &mut claim["status"]["allocation"];
        allocation["allocationTimestamp"] = json!(since);
        allocation["devices"]["results"][0]["bindingConditions"] = json!(["attached"]);
        allocation["devices"]["results"][0]["bindingFailureConditions"] = json!(["broken"]);
        let condition = json!({"type": condition, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": since});
        claim["status"]["devices"] = json!([{"driver": DRIVER, "pool": "n1", "device": "a", "conditions": [condition]}]);
        claim
    };
    let (elsewhere, long_ago) = ("resourceclaim not available on the node", "2020-01-01T00:00:00Z");
    for (name, claim, first, message) in [
        ("awaited", claim_of(&now, "other", &["p"]), "fits", "still not schedulable"),
        ("prepared", claim_of(long_ago, "attached", &["p"]), "fits", "still not schedulable"),
        ("failed", claim_of(&now, "broken", &["p"]), elsewhere, "deallocation of ResourceClaim started"),
        ("failed, reserved for nobody", claim_of(&now, "broken", &[]), elsewhere, "deallocation of ResourceClaim started"),
        ("late", claim_of(long_ago, "other", &["p"]), elsewhere, "deallocation of ResourceClaim started"),
        ("of another Pod, too", claim_of(&now, "broken", &["p", "q"]), elsewhere, "still not schedulable"),
    ] {
        let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), using("p", &["c"]));
        let all = cluster(&[devices_of("n1", &["a"])], &[claim]);
        assert_eq!(filter(&plugin, &mut state, &pod, &all), [first, elsewhere], "{name}");
        if first != "fits" {
            assert_eq!(post_filter(&plugin, &mut state, &pod, &all), message, "{name}");
        }
    }
    // An administrator may give devices more time.
    let mut args = DynamicResourcesArgs::default();
    args.binding_within = Duration::from_secs(u32::MAX.into());
    let all = cluster(&[devices_of("n1", &["a"])], &[claim_of(long_ago, "other", &["p"])]);
    assert_eq!(filter(&DynamicResources::new(&args), &mut CycleState::default(), &using("p", &["c"]), &all)[0], "fits");
}

#[test]
fn shares_in_flight_count() {
    let slices = [fixtures::slice("n1", json!({"nodeName": "n1"}), json!([fixtures::shared_device("a", 10)]))];
    let units = |name: &str, units: &str| claim(name, json!([exactly("r", json!({"capacity": {"requests": {"memory": units}}}))]));
    let mut all = cluster(&slices, &[units("c", "6"), units("d", "4"), units("e", "5")]);
    let plugin = DynamicResources::default();
    let fits = |all: &Snapshot, claim: &str| filter(&plugin, &mut CycleState::default(), &using("q", &[claim]), all)[0] == "fits";
    assert!(fits(&all, "d") && fits(&all, "e"));
    let (mut state, pod) = (CycleState::default(), using("p", &["c"]));
    assert_eq!(filter(&plugin, &mut state, &pod, &all)[0], "fits");
    plugin.reserve(&mut state, &pod, "n1", &mut all).expect("reserved");
    assert!(fits(&all, "d") && !fits(&all, "e"), "four are left");
    assert_eq!(plugin.unreserve(&mut state, &pod, "n1", &mut all), [ClusterEvent::ResourceClaimUpdate]);
    assert!(fits(&all, "e"));
}

#[test]
fn a_cycle_has_an_effort_for_all_nodes() {
    let slices: Vec<Value> = (1..=2).map(|n| devices_of(&format!("n{n}"), &["a"])).collect();
    let all = cluster(&slices, &[wanted("c")]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), using("p", &["c"]));
    assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
    let left = |state: &CycleState| state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").progress.lock().effort.steps;
    let before = left(&state);
    assert_eq!(plugin.filter(&state, &pod, &all.nodes[0]), Status::Success);
    let after = left(&state);
    assert!(after < before);
    assert_eq!(plugin.filter(&state, &pod, &all.nodes[0]), Status::Success);
    assert_eq!(left(&state), after, "a node is searched once");
    state.read_mut::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").progress.get_mut().effort.steps = 1;
    let timed_out = plugin.filter(&state, &pod, &all.nodes[1]);
    assert_eq!(timed_out, unschedulable("timed out trying to allocate devices"));
}

#[test]
fn a_spent_effort_ends_the_cycle_without_further_work() {
    let of_pool = |name: &str| {
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
        fixtures::slice(name, json!({"nodeName": name, "pool": pool}), json!([{"name": "a"}]))
    };
    // A slice is missing: that is an error of a claim for all devices, before the first of them is tried.
    let all = cluster(&[of_pool("n1")], &[claim("c", json!([exactly("r", json!({"allocationMode": "All"}))]))]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), using("p", &["c"]));
    for is_spent in [true, false] {
        assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
        let progress = state.read_mut::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").progress.get_mut();
        if is_spent {
            progress.effort.steps = 0;
        }
        let status = plugin.filter(&state, &pod, &all.nodes[0]);
        assert_eq!(status == unschedulable("timed out trying to allocate devices"), is_spent, "{status:?}");
    }
}

#[test]
fn what_nodes_have_in_common_is_computed_once_a_cycle() {
    let names: Vec<String> = (0..100).map(|n| format!("d{n:03}")).collect();
    let devices: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let all = cluster(&[fixtures::slice("s", json!({"allNodes": true}), devices.into())], &[claim("c", json!([exactly("r", json!({}))]))]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), using("p", &["c"]));
    assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
    let left = |state: &CycleState| state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").progress.lock().effort.steps;
    let mut costs = [0, 1].map(|node| {
        let before = left(&state);
        assert_eq!(plugin.filter(&state, &pod, &all.nodes[node]), Status::Success);
        before - left(&state)
    });
    costs[1] += 101;
    assert_eq!(costs[0], costs[1], "one step for the slice and each device of the pool");
}

#[test]
fn a_deallocated_claim_is_free_again() {
    let mut dra = manager(&[devices_of("n1", &["a"])], &[allocated("c", "n1", "a", &["q"])]);
    set_claim(&mut dra, &wanted("c"));
    let mut all = cluster(&[], &[]);
    all.dra = Arc::new(dra);
    assert_eq!(filter(&DynamicResources::default(), &mut CycleState::default(), &using("p", &["c"]), &all)[0], "fits");
}

/// A Pod may name a claim in several of its entries: it is one claim, for one device.
#[test]
fn a_claim_that_a_pod_names_twice_is_allocated_once() {
    let (plugin, mut state) = (DynamicResources::default(), CycleState::default());
    let mut all = cluster(&[devices_of("n1", &["a", "b"])], &[wanted("c"), wanted("d")]);
    let entry = |name: &str| json!({"name": name, "resourceClaimName": "c"});
    let twice = pod("p", json!({"resourceClaims": [entry("one"), entry("two")]}));
    assert_eq!(filter(&plugin, &mut state, &twice, &all)[0], "fits");
    plugin.reserve(&mut state, &twice, "n1", &mut all).expect("reserved");
    let device = |name: &str| sched_framework::DeviceId { driver: DRIVER.to_owned(), pool: "n1".to_owned(), device: name.to_owned() };
    assert_eq!(["a", "b"].map(|name| all.dra.is_allocated(&device(name))), [true, false]);
    assert_eq!(state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("claims").reserved.len(), 1);
    let other = filter(&plugin, &mut CycleState::default(), &using("q", &["d"]), &all);
    assert_eq!(other[0], "fits", "the second device is left to others");
}

/// A Pod that requests the resource of the class `gpu`.
pub(super) fn requesting_gpus(name: &str, number: usize, claims: &[&str]) -> PodInfo {
    let requests = json!({"deviceclass.resource.kubernetes.io/gpu": number.to_string()});
    let claims: Vec<_> = claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    pod(name, json!({"containers": [{"name": "c", "resources": {"requests": requests}}], "resourceClaims": claims}))
}

/// A claim that was created for the extended resources of the Pod.
pub(super) fn special(name: &str, pod: &str) -> Value {
    let mut claim = wanted(name);
    claim["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": true}]);
    claim
}

#[test]
fn devices_back_extended_resources() {
    let slices = [devices_of("n1", &["a", "b"])];
    let (none, stale) = ("cannot allocate all claims", "cannot schedule extended resource claim");
    let cases: [FilterCase; 6] = [
        ("one", vec![], requesting_gpus("p", 1, &[]), ["fits", none], "still not schedulable"),
        ("too many", vec![], requesting_gpus("p", 3, &[]), [none, none], "still not schedulable"),
        ("beside a claim", vec![wanted("c")], requesting_gpus("p", 1, &["c"]), ["fits", none], "still not schedulable"),
        ("too many beside a claim", vec![wanted("c")], requesting_gpus("p", 2, &["c"]), [none, none], "still not schedulable"),
        ("of an earlier attempt", vec![special("x", "p")], requesting_gpus("p", 1, &[]), [stale; 2], "deletion of ResourceClaim started"),
        ("of another Pod", vec![special("x", "q")], requesting_gpus("p", 1, &[]), ["fits", none], "still not schedulable"),
    ];
    for (name, claims, pod, expected, room) in cases {
        let (plugin, mut state, all) = (DynamicResources::default(), CycleState::default(), cluster(&slices, &claims));
        assert_eq!(filter(&plugin, &mut state, &pod, &all), expected, "{name}");
        assert!(plugin.may_reject(&state, &pod) && plugin.has_part_in(&pod));
        assert_eq!(post_filter(&plugin, &mut state, &pod, &all), room, "{name}");
    }
}

#[test]
fn a_node_that_has_the_resource_itself_needs_no_devices() {
    let (gpu, nic) = ("deviceclass.resource.kubernetes.io/gpu", "example.org/nic");
    let container = json!({"name": "c", "resources": {"requests": {gpu: "1", nic: "1"}}});
    let pod = pod("p", json!({"containers": [container]}));
    let with = |name: &str, allocatable: Value| node(name, json!({"status": {"allocatable": allocatable}}));
    let mut all = snapshot(vec![with("n1", json!({gpu: "4", nic: "1"})), with("n2", json!({gpu: "0"}))]);
    all.dra = Arc::new(manager(&[devices_of("n2", &["a"])], &[]));
    let (plugin, mut state) = (DynamicResources::default(), CycleState::default());
    assert_eq!(filter(&plugin, &mut state, &pod, &all), ["fits", "cannot fit resource"], "no class backs the other resource");
    plugin.reserve(&mut state, &pod, "n1", &mut all).expect("nothing to reserve");
    assert!(state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("a state").reserved.is_empty());
}

#[test]
fn a_pod_that_requests_what_no_class_backs_has_no_part() {
    let (plugin, mut state, all) = (DynamicResources::default(), CycleState::default(), cluster(&[], &[]));
    let pod = pod("p", json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/tpu": "1"}}}]}));
    assert_eq!(filter(&plugin, &mut state, &pod, &all), ["fits", "fits"]);
    assert!(!plugin.may_reject(&state, &pod));
    assert_eq!(post_filter(&plugin, &mut state, &pod, &all), "");
}

#[test]
fn devices_of_extended_resources_are_reserved_for_the_claim_that_is_to_be_created() {
    let mut all = cluster(&[devices_of("n1", &["a"])], &[]);
    let (plugin, mut state, pod) = (DynamicResources::default(), CycleState::default(), requesting_gpus("p", 1, &[]));
    assert_eq!(filter(&plugin, &mut state, &pod, &all)[0], "fits");
    plugin.reserve(&mut state, &pod, "n1", &mut all).expect("reserved");
    let claims = state.read::<PodClaims>(DYNAMIC_RESOURCES).expect("a state");
    let claim = serde_json::to_value(claims.reserved[0].claim.as_ref()).expect("json");
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true});
    assert_eq!(
        (&claim["metadata"]["generateName"], &claim["metadata"]["ownerReferences"], &claim["metadata"]["annotations"]),
        (&json!("p-extended-resources-"), &json!([owner]), &json!({"resource.kubernetes.io/extended-resource-claim": "true"}))
    );
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    assert_eq!(claim["spec"]["devices"]["requests"], json!([{"name": "container-0-request-0", "exactly": exactly}]));
    // Another Pod does not get the device, as long as it is reserved.
    let other = requesting_gpus("q", 1, &[]);
    let fits = |all: &Snapshot| filter(&plugin, &mut CycleState::default(), &other, all)[0].clone();
    assert_eq!(fits(&all), "cannot allocate all claims");
    assert_eq!(plugin.unreserve(&mut state, &pod, "n1", &mut all), [ClusterEvent::ResourceClaimUpdate]);
    assert_eq!(fits(&all), "fits");
}
