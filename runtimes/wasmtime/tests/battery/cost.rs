//! What a container costs. Ignored by default; with a release shim:
//! `SKIFF_SHIM_WASMTIME=…/skiff-shim-wasmtime cargo nextest run -p runtimes-wasmtime --features shim --run-ignored only --no-capture cost`

use std::time::{Duration, Instant};

use runtimes_battery::{Harness, Program, plain_spec, spec_of};
use runtimes_contract::{ContainerSpec, ContainerState};

use crate::components;
use crate::harness::Wasmtime;
use crate::http::Network;

/// Containers at once.
const COUNT: usize = 50;

#[tokio::test]
#[ignore = "prints figures"]
async fn starts_and_memory() {
    let harness = Wasmtime::new();
    let network = Network::new("cost");
    let sleepers: Vec<_> = (0..COUNT).map(|number| spec_of(&harness, &format!("module-{number}"), Program::Sleep)).collect();
    report("preview 1 module", &harness, &sleepers).await;
    let content = harness.content(&components::http());
    let servers: Vec<_> = (0..COUNT)
        .map(|number| {
            let id = format!("http-{number}");
            let mut spec = plain_spec(&id);
            spec.content = content.clone();
            spec.cgroup = harness.cgroup(&id);
            spec.log_path = harness.scratch().join("http.log");
            spec.sandbox.network = Some(network.path());
            spec.ports = vec![u16::try_from(10_000 + number).unwrap()];
            spec
        })
        .collect();
    report("wasi:http component", &harness, &servers).await;
}

async fn report(what: &str, harness: &Wasmtime, specs: &[ContainerSpec]) {
    let runtime = harness.runtime();
    let (mut created, mut started) = (Vec::new(), Vec::new());
    for spec in specs {
        let begun = Instant::now();
        runtime.create(spec).await.unwrap();
        created.push(begun.elapsed());
        let begun = Instant::now();
        runtime.start(&spec.id).await.unwrap();
        started.push(begun.elapsed());
    }
    nix::unistd::sync();
    let pids = runtime.list().await.unwrap().into_iter().filter_map(|status| match status.state {
        ContainerState::Running { pid } => Some(pid),
        _ => None,
    });
    let kib: Vec<u64> = pids.map(pss_kib).collect();
    println!(
        "{what}: create p50 {:?}, start p50 {:?} max {:?}; PSS of one of {} {} KiB",
        median(&mut created),
        median(&mut started),
        started.last().unwrap(),
        kib.len(),
        kib.iter().sum::<u64>() / kib.len() as u64
    );
    for spec in specs {
        runtime.remove(&spec.id).await.unwrap();
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn pss_kib(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap().trim().trim_end_matches(" kB").trim().parse().unwrap()
}
