//! What a container costs. Ignored by default; with a release shim:
//! `SKIFF_SHIM_WASMTIME=…/skiff-shim-wasmtime cargo nextest run -p runtimes-wasmtime --features shim --run-ignored only --no-capture cost`

use std::time::{Duration, Instant};

use runtimes_battery::{Harness, Program, pid_of, plain_spec, spec_of};
use runtimes_contract::{ContainerSpec, ContainerState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{Network, web_of};

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

/// How long requests are sent.
const LOAD: Duration = Duration::from_secs(4);
const CONNECTIONS: usize = 32;

#[tokio::test]
#[ignore = "prints figures"]
async fn requests_a_second() {
    let harness = Wasmtime::new();
    let network = Network::new("load");
    let runtime = harness.runtime();
    // Of the limit of one core, without a limit.
    for quota in [Some(100_000), None] {
        let mut spec = web_of(&harness, &network, &format!("web-{}", quota.is_some()), &components::http());
        spec.resources.cpu_quota_us = quota;
        spec.resources.cpu_period_us = Some(100_000);
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        let pid = pid_of(&*runtime, &spec.id).await.expect("it runs");
        let weight = move || format!("PSS {} KiB, anonymous {} KiB", kib(pid, "smaps_rollup", "Pss:"), kib(pid, "status", "RssAnon:"));
        println!("idle: {}", weight());
        let before = runtime.stats(&spec.id).await.unwrap().cpu_ns;
        let (count, took) = network.inside(load).await;
        let cpu = Duration::from_nanos(runtime.stats(&spec.id).await.unwrap().cpu_ns - before);
        println!(
            "CPU quota {quota:?}: {} requests/s, {:?} CPU each, {:.2} cores; afterwards {}",
            count * 1_000 / took.as_millis() as usize,
            cpu / u32::try_from(count).unwrap(),
            cpu.as_secs_f64() / took.as_secs_f64(),
            weight()
        );
        runtime.remove(&spec.id).await.unwrap();
    }
}

/// Sends requests on all connections, one after the other on each; the number of answers.
fn load() -> (usize, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let counts = runtime.block_on(futures::future::join_all((0..CONNECTIONS).map(|_| send(begun))));
    (counts.into_iter().sum(), begun.elapsed())
}

async fn send(begun: Instant) -> usize {
    let mut stream = tokio::net::TcpStream::connect("127.0.0.1:8080").await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut count, mut answer) = (0, Vec::with_capacity(4096));
    while begun.elapsed() < LOAD {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").await.unwrap();
        answer.clear();
        while !answer.ends_with(b"0\r\n\r\n") {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "a connection ended");
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        count += 1;
    }
    count
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
    kib(pid, "smaps_rollup", "Pss:")
}

/// A number of KiB in a file of a process.
pub fn kib(pid: i32, file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().trim_end_matches(" kB").trim().parse().unwrap()
}
