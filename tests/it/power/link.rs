//! A node behind a bad link: packets are lost and late, and at times there is no link at all. A server and two nodes
//! run on one machine, whose kernel has netem. Each node has its own network namespace. The link of one node is bad
//! from the beginning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tests::cluster::{programs, sample};
use tests::machine::{Machine, on_machines};
use tests::{Kubectl, eventually};

/// The server has the switch's address; the nodes have the next ones.
const SERVER: &str = "192.168.78.1";
const NODES: [&str; 2] = ["near", "far"];
const NETWORK: &str = r#"
set -e
ip link add switch type bridge
ip addr add 192.168.78.1/24 dev switch
ip link set switch up
for node in near:2 far:3; do
  name=${node%:*}
  ip netns add $name
  ip link add port-$name type veth peer name uplink netns $name
  ip link set port-$name master switch up
  nsenter --net=/run/netns/$name sh -ec "
    ip link set lo up
    ip addr add 192.168.78.${node#*:}/24 dev uplink
    ip link set uplink up
    ip route add default via 192.168.78.1"
done
"#;
/// In each direction. About one of three round trips is lost.
const BAD: &str = "delay 30ms 15ms loss 15%";
const CUT: &str = "loss 100%";
/// Shorter than the time after which a node is lost.
const SHORT_CUT_SECONDS: u32 = 8;
/// Bytes that a command sends over the link.
const MUCH: usize = 100_000;

const WORKLOAD: &str = include_str!("link.yaml");

#[test]
fn a_node_behind_a_bad_link_is_reached_and_keeps_its_pods() {
    on_machines(4, || {
        let mut machine = started();
        everything_crosses(&machine.kubectl());
        a_short_cut_has_no_effect(&mut machine);
    });
}

#[test]
#[ignore = "takes minutes: `cargo xtask soak` runs it"]
fn a_node_that_was_lost_for_a_while_comes_back_with_its_pods() {
    on_machines(4, || {
        let mut machine = started();
        a_long_cut_costs_nothing_that_runs(&mut machine);
        everything_crosses(&machine.kubectl());
    });
}

/// The server and both nodes, one of them behind the bad link, with Pods on each.
fn started() -> Machine {
    let mut machine = Machine::new(2_000);
    machine.boot();
    machine.run(NETWORK).ok();
    set_link(&mut machine, BAD);
    start(&mut machine);
    let kubectl = machine.kubectl();
    kubectl.apply(WORKLOAD).ok();
    kubectl.ok("rollout status deployment/web --timeout=240s");
    ["tools-near", "tools-far"].into_iter().for_each(|pod| kubectl.until_ready(pod));
    drop(kubectl);
    machine
}

/// Sets the netem options of both ends of the far node's link.
fn set_link(machine: &mut Machine, what: &str) {
    machine.run(&link(what)).ok();
}

fn link(what: &str) -> String {
    format!(
        "set -e; tc qdisc replace dev port-far root netem {what}; \
         nsenter --net=/run/netns/far tc qdisc replace dev uplink root netem {what}"
    )
}

fn start(machine: &mut Machine) {
    let skiff = programs().join("skiff").display().to_string();
    run_skiff(machine, "server", &format!("{skiff} server --advertise-address={SERVER}"));
    machine.take_kubeconfig("/mnt/server/admin.kubeconfig");
    let token = machine.run("cat /mnt/server/node-token").ok();
    for node in NODES {
        let limits = "--eviction-hard= --image-gc-high-threshold=100";
        let join = format!("--node-name={node} --server=https://{SERVER}:6443 --token={}", token.trim());
        run_skiff(machine, node, &format!("nsenter --net=/run/netns/{node} {skiff} agent {join} {limits}"));
        for file in ["web.wasm", "tools.tar"] {
            let name = file.split('.').next().expect("a name");
            machine.run(&format!("{skiff} image import samples/{name}:latest {} --data-dir /mnt/{node}", sample(file))).ok();
        }
    }
    for node in NODES {
        machine.kubectl().until_condition(&format!("node/{node}"), "Ready", "True");
    }
}

/// Runs skiff on a data directory of that name, and waits until it is ready.
fn run_skiff(machine: &mut Machine, name: &str, command: &str) {
    let (dir, log) = (format!("/mnt/{name}"), "--log=info,hickory_server=warn");
    machine.run(&format!("mkdir -p {dir}; setsid {command} --data-dir {dir} {log} > {dir}/out 2>> {dir}/log < /dev/null &")).ok();
    eventually(&format!("skiff of {name} is ready"), || {
        let out = machine.run(&format!("cat {dir}/out")).stdout;
        if out.contains("skiff is ready") { Ok(()) } else { Err(machine.run(&format!("tail -n 40 {dir}/log")).stdout) }
    });
}

/// Commands, logs, names and Services, both ways over the bad link.
fn everything_crosses(kubectl: &Kubectl<'_>) {
    assert!(kubectl.ok("logs tools-far").contains("at home on far"));
    assert_eq!(kubectl.ok(&format!("exec tools-far -- head -c {MUCH} /dev/zero")).len(), MUCH);
    let text = "0123456789abcde\n".repeat(MUCH / 16);
    assert_eq!(kubectl.with_input("exec -i tools-far -- cat", &text).ok(), text);
    let ip = kubectl.field("service/web", "/spec/clusterIP");
    for pod in ["tools-near", "tools-far"] {
        let seen = kubectl.ok(&format!("exec {pod} -- nslookup web.default.svc.cluster.local"));
        assert!(seen.contains(ip.as_str().expect("an address")), "{seen}");
        // One command, because each exec is slow on this link. Endpoints are chosen at random, half of them behind the
        // link.
        let ask = "for n in 1 2 3 4 5 6 7 8; do wget -qO- http://web/$n || exit 1; done";
        let answers = kubectl.run(&["exec", pod, "--", "sh", "-c", ask]).ok();
        assert_eq!(answers.lines().count(), 8, "{answers}");
    }
}

fn a_short_cut_has_no_effect(machine: &mut Machine) {
    let before = containers(&machine.kubectl());
    machine.run(&format!("{}; sleep {SHORT_CUT_SECONDS}; {}", link(CUT), link(BAD))).ok();
    assert_eq!(machine.kubectl().ok("exec tools-far -- echo still").trim(), "still");
    let kubectl = machine.kubectl();
    assert_eq!(containers(&kubectl), before, "none was lost, restarted or made twice");
    assert_eq!(losses(&kubectl), 0, "no node was lost");
    drop(kubectl);
    until_the_machine_holds_no_more(machine);
}

fn a_long_cut_costs_nothing_that_runs(machine: &mut Machine) {
    let before = containers(&machine.kubectl());
    let gone = before.iter().find(|(name, container)| name.starts_with("web") && container.node == "far").expect("one is there").0;
    set_link(machine, CUT);
    let kubectl = machine.kubectl();
    kubectl.until_condition("node/far", "Ready", "Unknown");
    kubectl.ok(&format!("delete pod {gone} --wait=false"));
    kubectl.ok("scale deployment/web --replicas=5");
    drop(kubectl);
    set_link(machine, BAD);
    let kubectl = machine.kubectl();
    kubectl.until_condition("node/far", "Ready", "True");
    kubectl.ok("rollout status deployment/web --timeout=240s");
    eventually("what was deleted meanwhile is gone", || match kubectl.run(&["get", "pod", gone]).succeeded() {
        true => Err(kubectl.ok("get pods -o wide")),
        false => Ok(()),
    });
    let after = containers(&kubectl);
    for (name, container) in before.iter().filter(|(name, _)| *name != gone) {
        assert_eq!(after.get(name), Some(container), "{name} ran on: {after:#?}");
    }
    assert_eq!(losses(&kubectl), 1, "one node was lost, once: {}", kubectl.ok("get events"));
    drop(kubectl);
    until_the_machine_holds_no_more(machine);
}

/// The container of a Pod: its node and its identity.
#[derive(Debug, PartialEq)]
struct Container {
    uid: String,
    node: String,
    id: String,
    restarts: Value,
}

/// The container of every Pod that is not in deletion.
fn containers(kubectl: &Kubectl<'_>) -> BTreeMap<String, Container> {
    let pods = kubectl.json("get pods");
    let text = |pod: &Value, at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let stays = super::list(&pods).iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    stays
        .map(|pod| {
            let status = pod.pointer("/status/containerStatuses/0").cloned().unwrap_or_default();
            let container = Container {
                uid: text(pod, "/metadata/uid"),
                node: text(pod, "/spec/nodeName"),
                id: text(&status, "/containerID"),
                restarts: status["restartCount"].clone(),
            };
            (text(pod, "/metadata/name"), container)
        })
        .collect()
}

/// How often a node was lost.
fn losses(kubectl: &Kubectl<'_>) -> u64 {
    let events = kubectl.json("get events -A --field-selector reason=NodeNotReady,involvedObject.kind=Node");
    super::list(&events).iter().map(|event| event["count"].as_u64().unwrap_or(1)).sum()
}

/// Waits until the machine has exactly one cgroup for each Pod: no Pod runs twice.
fn until_the_machine_holds_no_more(machine: &mut Machine) {
    eventually("the nodes hold what they should", || {
        let wanted: BTreeSet<String> = containers(&machine.kubectl()).into_values().map(|container| container.uid).collect();
        let found = machine.run("find /sys/fs/cgroup/skiff -type d -name 'pod*' | sed 's|.*/pod||'").ok();
        let found: BTreeSet<String> = found.lines().map(str::to_owned).collect();
        if found == wanted { Ok(()) } else { Err(format!("{found:#?} instead of {wanted:#?}")) }
    });
}
