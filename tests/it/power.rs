//! Events in the life of a whole machine: its setup, power cuts under load, a reboot with an older CPU, a kernel with only cgroup v2,
//! volumes with quotas, a slow disk, a bad link. The machine is QEMU with Debian's kernel (see `tests::machine`). Clients run on the host, so
//! the record of acknowledged writes survives there.
//!
//! `cargo xtask soak` runs more rounds of the cuts, from any seed.

mod capacity;
mod endurance;
mod fresh;
mod leaks;
mod link;
mod load;
mod old_cpu;
mod unified;

use std::time::Duration;

use serde_json::Value;
use tests::cluster::programs;
use tests::eventually_within;
use tests::kubectl::is_ready;
use tests::machine::{DATA, Machine, OLD_CPU, on_machines};

use load::{Load, Random};

/// How long the node may take to recover: the kernel is emulated on busy cores.
const RECOVERY_LIMIT: Duration = Duration::from_secs(240);
/// That many objects are written before a cut. The cut comes within `LOAD_SPREAD_MS` after that.
const ANSWERED_MIN: usize = 20;
const LOAD_SPREAD_MS: u64 = 8_000;

const WORKLOADS: &str = include_str!("power/workloads.yaml");

#[test]
fn power_is_lost_under_load_and_nothing_that_was_answered_is() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, seed) = (number("SKIFF_POWER_ROUNDS", 1), number("SKIFF_POWER_SEED", 1));
    on_machines(4, || {
        let mut random = Random::new(seed);
        let mut machine = Machine::new(3_000);
        machine.boot();
        machine.start_skiff("");
        machine.load_samples(&["web.wasm", "tools.tar"]);
        machine.kubectl().apply(WORKLOADS).ok();
        until_all_is_well(&mut machine);
        let mut answered = load::Answered::default();
        for round in 1..=rounds {
            let load = Load::start(&mut machine, round, answered);
            load.until_answered(ANSWERED_MIN);
            let until = Duration::from_millis(random.below(LOAD_SPREAD_MS));
            load.runs_for(until);
            machine.cut_power();
            answered = load.end();
            eprintln!("round {round} of {rounds}, seed {seed}: cut after {until:?}, {} answered writes", answered.len());
            machine.boot();
            machine.start_skiff("");
            answered.are_all_there(&machine.kubectl());
            nothing_is_torn(&mut machine);
            machine.kubectl().ok("delete pod -l power=churn --wait=false");
            until_all_is_well(&mut machine);
        }
        // A clean reboot differs from a power cut only in the time that the node had to end its work. The machine gets another CPU.
        let codes = old_cpu::codes_in_use(&mut machine);
        machine.shut_down();
        machine.set_cpu(OLD_CPU);
        machine.boot();
        machine.start_skiff("");
        answered.are_all_there(&machine.kubectl());
        nothing_is_torn(&mut machine);
        until_all_is_well(&mut machine);
        old_cpu::modules_are_compiled_again(&mut machine, &codes);
        old_cpu::vectors_need_no_more_than_sse2(&mut machine);
    });
}

/// Waits until every Pod that should run runs, no Pod is stuck in deletion, and the machine holds nothing else.
fn until_all_is_well(machine: &mut Machine) {
    for workload in ["deployment/web", "deployment/tools"] {
        machine.kubectl().ok(&format!("rollout status {workload} --timeout={}s", RECOVERY_LIMIT.as_secs()));
    }
    eventually_within(RECOVERY_LIMIT, "only Pods that should be are", || {
        let pods = machine.kubectl().json("get pods -A");
        let odd: Vec<String> = list(&pods).iter().filter(|pod| !is_well(pod)).map(describe).collect();
        if odd.is_empty() { Ok(()) } else { Err(format!("{odd:#?}\n{}", machine.log())) }
    });
    eventually_within(RECOVERY_LIMIT, "the node holds nothing of Pods that are not", || {
        let pods = machine.kubectl().json("get pods -A");
        let left = leaks::find(machine, &pods);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}\n{}", machine.log())) }
    });
}

fn is_well(pod: &Value) -> bool {
    is_ready(pod) && pod.pointer("/metadata/deletionTimestamp").is_none()
}

fn describe(pod: &Value) -> String {
    format!("{} {} {}", pod["metadata"]["name"], pod["metadata"]["deletionTimestamp"], pod["status"])
}

fn list(list: &Value) -> &[Value] {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The database, the images and the compiled modules are intact, and the node logged no error about them.
fn nothing_is_torn(machine: &mut Machine) {
    let skiff = programs().join("skiff").display().to_string();
    let checked = machine.run(&format!("{skiff} db check --data-dir {DATA}")).ok();
    assert!(checked.contains("is whole"), "{checked}");
    let blobs =
        machine.run(&format!("cd {DATA}/images/blobs/sha256 && for blob in *; do echo \"$blob  $blob\"; done | sha256sum -c --quiet"));
    assert!(blobs.succeeded(), "blobs are what their names say: {blobs}");
    let listed = machine.run(&format!("{skiff} image list --data-dir {DATA}")).ok();
    for name in ["web", "tools"] {
        assert!(listed.contains(&format!("samples/{name}:latest")), "{listed}");
    }
    let complaints = machine.run(&format!(
        "grep -aE 'torn|damaged|not removed|not unmounted|cannot be trusted|cannot be read|half.made|without runc' {DATA}/log"
    ));
    assert!(!complaints.succeeded(), "{complaints}");
    machine.run(&format!(": > {DATA}/log")).ok();
}
