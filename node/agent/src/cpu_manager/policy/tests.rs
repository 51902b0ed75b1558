use serde_json::{Value, json};

use super::super::topology::machines::*;
use super::*;

fn set(text: &str) -> CpuSet {
    text.parse().expect("a list")
}

fn policy(topology: Topology, reserved: &str, options: &str) -> StaticPolicy {
    let reserved = set(reserved);
    let milli = i64::try_from(reserved.len() * 1_000).expect("few");
    StaticPolicy::new(topology, milli, &reserved, options.parse().expect("options")).expect("a policy")
}

/// A container with these CPUs as request and limit.
fn guaranteed(name: &str, cpu: &str) -> Value {
    let list = json!({"cpu": cpu, "memory": "1Mi"});
    json!({"name": name, "resources": {"requests": list, "limits": list}})
}

fn pod(uid: &str, init: Value, containers: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"initContainers": init, "containers": containers}})).expect("a pod")
}

fn one(uid: &str, cpu: &str) -> Pod {
    pod(uid, json!([]), json!([guaranteed("c", cpu)]))
}

/// The CPUs of each container, and the shared ones.
fn listed(assigned: &Assignments) -> String {
    let entries =
        assigned.exclusive.iter().flat_map(|(uid, containers)| containers.iter().map(move |(name, cpus)| format!("{uid}/{name}: {cpus}")));
    entries.chain([format!("shared: {}", assigned.shared)]).collect::<Vec<_>>().join("; ")
}

/// The assignments after these Pods, or why one got none.
fn after(policy: &StaticPolicy, pods: &[Pod]) -> Result<String, String> {
    let mut assigned = policy.initial();
    for pod in pods {
        assigned = policy.allocate(pod, &assigned, &mut 0).map_err(|refusal| refusal.to_string())?;
        policy.check(&assigned).expect("a next agent accepts it");
    }
    Ok(listed(&assigned))
}

#[test]
fn whole_cpus_of_guaranteed_pods_are_exclusive() {
    let burstable = json!({"name": "b", "resources": {"requests": {"cpu": "1"}}});
    let of_pod = |mut pod: Value| {
        pod["spec"]["resources"] = json!({"requests": {"cpu": "2", "memory": "1Mi"}, "limits": {"cpu": "2", "memory": "1Mi"}});
        serde_json::from_value::<Pod>(pod).expect("a pod")
    };
    let count = |pod: &Pod| exclusive_cpus(pod, &pod.spec.as_ref().expect("a spec").containers[0]);
    assert_eq!(count(&one("u", "2")), 2);
    assert_eq!(count(&one("u", "2000m")), 2);
    assert_eq!(count(&one("u", "1500m")), 0);
    assert_eq!(count(&pod("u", json!([]), json!([guaranteed("c", "1"), burstable]))), 0, "the Pod is Burstable");
    assert_eq!(count(&of_pod(serde_json::to_value(one("u", "2")).expect("JSON"))), 0, "resources of the whole Pod");
    let limits = json!([{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Mi"}}}]);
    assert_eq!(count(&pod("u", json!([]), limits)), 1, "a limit alone is the request too");
}

#[test]
fn exclusive_cpus_leave_the_shared_pool_and_reserved_ones_stay() {
    let policy = policy(single_socket_smt(), "0", "");
    assert_eq!(after(&policy, &[one("a", "2")]).as_deref(), Ok("a/c: 1,5; shared: 0,2-4,6-7"));
    assert_eq!(after(&policy, &[one("a", "1")]).as_deref(), Ok("a/c: 4; shared: 0-3,5-7"), "the thread beside the reserved one");
    assert_eq!(after(&policy, &[one("a", "7")]).as_deref(), Ok("a/c: 1-7; shared: 0"));
    assert_eq!(after(&policy, &[one("a", "6"), one("b", "1")]).as_deref(), Ok("a/c: 1-3,5-7; b/c: 4; shared: 0"));
    assert_eq!(after(&policy, &[one("a", "500m")]).as_deref(), Ok("shared: 0-7"));
    let twice = one("a", "2");
    assert_eq!(after(&policy, &[twice.clone(), twice]).as_deref(), Ok("a/c: 1,5; shared: 0,2-4,6-7"), "allocated twice is once");
    let too_many = "not enough cpus available to satisfy request: requested=8, available=7";
    assert_eq!(after(&policy, &[one("a", "8")]), Err(too_many.to_owned()));
    let too_few = "not enough cpus available to satisfy request: requested=2, available=1";
    assert_eq!(after(&policy, &[one("a", "6"), one("b", "2")]), Err(too_few.to_owned()));
}

#[test]
fn a_pod_gets_all_its_cpus_or_none() {
    let policy = policy(dual_socket(), "0", "");
    let two = pod("a", json!([]), json!([guaranteed("c", "3"), guaranteed("d", "5")]));
    let mut tried = 0;
    let assigned = policy.initial();
    let refusal = policy.allocate(&two, &assigned, &mut tried).expect_err("refused");
    assert_eq!(refusal, Refusal::TooFew { requested: 5, available: 4 });
    assert_eq!((tried, assigned), (2, policy.initial()));
}

#[test]
fn cpus_of_init_containers_are_used_again_and_sidecars_have_their_own() {
    let policy = policy(dual_socket(), "0", "");
    let sidecar = |name: &str, cpu: &str| {
        let mut sidecar = guaranteed(name, cpu);
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    let plain = pod("a", json!([guaranteed("i", "7")]), json!([guaranteed("c", "3"), guaranteed("d", "4")]));
    assert_eq!(after(&policy, &[plain]).as_deref(), Ok("a/c: 1-3; a/d: 4-7; a/i: 1-7; shared: 0"));
    let with = pod("a", json!([sidecar("s", "1"), guaranteed("i", "6")]), json!([guaranteed("c", "6")]));
    assert_eq!(after(&policy, &[with]).as_deref(), Ok("a/c: 2-7; a/i: 2-7; a/s: 1; shared: 0"));
    let too_many = pod("a", json!([sidecar("s", "1"), guaranteed("i", "6")]), json!([guaranteed("c", "7")]));
    let refusal = "not enough cpus available to satisfy request: requested=7, available=6";
    assert_eq!(after(&policy, &[too_many]), Err(refusal.to_owned()));
}

#[test]
fn an_unfinished_pod_is_completed() {
    let policy = policy(dual_socket(), "0", "");
    let whole = pod("a", json!([guaranteed("i", "2")]), json!([guaranteed("c", "2")]));
    let mut assigned = policy.initial();
    let cpus = set("1-2");
    assigned.shared = assigned.shared.difference(&cpus);
    assigned.exclusive.entry("a".to_owned()).or_default().insert("i".to_owned(), cpus);
    let next = policy.allocate(&whole, &assigned, &mut 0).expect("room");
    assert_eq!(listed(&next), "a/c: 1-2; a/i: 1-2; shared: 0,3-7");
}

#[test]
fn whole_cores_alone() {
    let policy = |reserved: &str| policy(dual_socket_smt(), reserved, "full-pcpus-only=true");
    let odd = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2";
    assert_eq!(after(&policy("0,6"), &[one("a", "3")]), Err(odd.to_owned()));
    assert_eq!(after(&policy("0,6"), &[one("a", "10")]).as_deref(), Ok("a/c: 1-5,7-11; shared: 0,6"));
    let few = "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 8, requested CPUs = 10, CPUs per core = 2";
    assert_eq!(after(&policy("1,6"), &[one("a", "10")]), Err(few.to_owned()));
    let rejection = Refusal::NoWholeCores { requested: 3, per_core: 2 }.rejection();
    assert_eq!((rejection.reason.as_str(), rejection.message.as_str()), ("SMTAlignmentError", odd));
    let rejection = Refusal::TooFew { requested: 1, available: 0 }.rejection();
    let message = "Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0, which is unexpected";
    assert_eq!((rejection.reason.as_str(), rejection.message.as_str()), ("UnexpectedAdmissionError", message));
}

#[test]
fn nodes_share_a_large_request() {
    let numa = |options: &str| policy(four_nodes(), "0", options);
    assert_eq!(after(&numa("distribute-cpus-across-numa=true"), &[one("a", "6")]).as_deref(), Ok("a/c: 4-6,8-10; shared: 0-3,7,11-15"));
    assert_eq!(after(&numa(""), &[one("a", "6")]).as_deref(), Ok("a/c: 1-2,4-7; shared: 0,3,8-15"));
}

#[test]
fn strictly_reserved_cpus_are_for_no_container() {
    let policy = policy(dual_socket(), "0-1", "strict-cpu-reservation=true");
    assert_eq!(after(&policy, &[one("a", "2")]).as_deref(), Ok("a/c: 2-3; shared: 4-7"));
    let refusal = "not enough cpus available to satisfy request: requested=6, and the shared pool would have no CPU left";
    assert_eq!(after(&policy, &[one("a", "6")]), Err(refusal.to_owned()));
}

#[test]
fn reservations_are_whole_cpus_of_the_first_cores() {
    let new = |milli: i64, cpus: &str| {
        let made = StaticPolicy::new(single_socket_smt(), milli, &set(cpus), CpuPolicyOptions::default());
        made.map(|policy| policy.reserved.to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(new(500, ""), Ok("0".to_owned()));
    assert_eq!(new(1_001, ""), Ok("0,4".to_owned()));
    assert_eq!(new(2_000, "3,7"), Ok("3,7".to_owned()));
    let nothing = "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero";
    assert_eq!(new(0, ""), Err(nothing.to_owned()));
    let much = "[cpumanager] unable to reserve the required amount of CPUs (size of 0-7 did not equal 9)";
    assert_eq!(new(9_000, ""), Err(much.to_owned()));
    assert_eq!(new(1_000, "8"), Err("reserved-cpus: 8 is not a subset of online-cpus: 0-7".to_owned()));
}

#[test]
fn the_state_of_an_earlier_agent_must_fit_the_machine() {
    let check = |shared: &str, entries: &[(&str, &str)], options: &str| {
        let mut assigned = Assignments { shared: set(shared), ..Assignments::default() };
        for (uid, cpus) in entries {
            assigned.exclusive.entry((*uid).to_owned()).or_default().insert("c".to_owned(), set(cpus));
        }
        policy(dual_socket(), "0-1", options).check(&assigned).map_err(|error| error.to_string())
    };
    let strict = "strict-cpu-reservation=true";
    assert_eq!(check("0-7", &[], ""), Ok(()));
    assert_eq!(check("0-3", &[("a", "4-5"), ("b", "6-7")], ""), Ok(()));
    assert_eq!(check("2-3", &[("a", "4-7")], strict), Ok(()));
    for (shared, entries, options, wanted) in [
        ("", &[][..], "", "default cpuset cannot be empty"),
        ("1-7", &[], "", "not all reserved cpus: \"0-1\" are present in defaultCpuSet: \"1-7\""),
        ("0-7", &[], strict, "some of strictly reserved cpus: \"0-1\" are present in defaultCpuSet: \"0-7\""),
        ("0-7", &[("a", "7")], "", "pod: a, container: c cpuset: \"7\" overlaps with default cpuset \"0-7\""),
        ("0-6", &[], "", "current set of available CPUs \"0-7\" doesn't match with CPUs in state \"0-6\""),
        ("0-6", &[("a", "7-8")], "", "current set of available CPUs \"0-7\" doesn't match with CPUs in state \"0-8\""),
    ] {
        assert_eq!(check(shared, entries, options), Err(wanted.to_owned()));
    }
}
