//! The cores that `wasi:http` servers use, and who waits for whom when guests compute.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use runtimes_battery::{Harness, pid_of};

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{Network, answer, ask, web_of};

/// A thread with this CPU time computes.
const COMPUTES: Duration = Duration::from_millis(300);

/// The threads of a process: their names and CPU times.
fn threads(pid: i32) -> BTreeMap<String, (String, Duration)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let thread = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.unwrap();
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        // utime and stime, in hundredths of a second.
        let ticks: u64 = rest.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        Some((task.file_name().into_string().unwrap(), (name.to_owned(), Duration::from_millis(ticks * 10))))
    };
    tasks.filter_map(thread).collect()
}

/// Sends a request whose guest computes for ever.
fn spin() -> TcpStream {
    let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
    write!(stream, "GET /spin HTTP/1.1\r\nHost: web\r\n\r\n").unwrap();
    stream
}

#[tokio::test]
async fn guests_compute_on_as_many_cores_as_the_limit_has() {
    let (harness, network) = (Wasmtime::new(), Network::new("cores"));
    let runtime = harness.runtime();
    let machine = std::thread::available_parallelism().unwrap().get();
    for (cores, wanted) in [(2, machine.min(2)), (1, 1)] {
        let mut spec = web_of(&harness, &network, &format!("web{cores}"), &components::http());
        spec.resources.cpu_quota_us = Some(cores * 100_000);
        spec.resources.cpu_period_us = Some(100_000);
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        let pid = pid_of(&*runtime, &spec.id).await.expect("it runs");
        for _ in 0..20 {
            assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
        }
        let guests = |(name, _): &(String, Duration)| name == "guests";
        assert!(!threads(pid).values().any(guests), "one request after the other needs no further thread: {:?}", threads(pid));

        let computing = |pid| threads(pid).values().filter(|(_, time)| *time >= COMPUTES).count();
        let spinning = network.inside(|| (0..4).map(|_| spin()).collect::<Vec<_>>()).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while computing(pid) < wanted {
            assert!(Instant::now() < deadline, "{wanted} threads that compute: {:?}", threads(pid));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let started = threads(pid).values().filter(|thread| guests(thread)).count();
        assert_eq!(started, if wanted == 1 { 0 } else { wanted }, "{:?}", threads(pid));
        assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"), "and others are answered");
        drop(spinning);
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_probe_passes_guests_that_compute() {
    let (harness, network) = (Wasmtime::new(), Network::new("pass"));
    let mut spec = web_of(&harness, &network, "web", &components::http());
    spec.probe_token = "shown by the node".into();
    // One thread for all.
    spec.resources.cpu_quota_us = Some(100_000);
    spec.resources.cpu_period_us = Some(100_000);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let pid = pid_of(&*runtime, &spec.id).await.expect("it runs");
    let took = network
        .inside(move || {
            let busy: Vec<_> = (0..64).map(|_| spin()).collect();
            // Each guest has computed before.
            let deadline = Instant::now() + Duration::from_secs(60);
            let cpu = || threads(pid).values().map(|(_, time)| *time).max().unwrap();
            while cpu() < Duration::from_millis(64 * 10 * 2) {
                assert!(Instant::now() < deadline, "{:?}", threads(pid));
                #[expect(clippy::disallowed_methods, reason = "a blocking thread, which waits on a condition with a deadline")]
                std::thread::sleep(Duration::from_millis(10));
            }
            let before = cpu();
            let answer = answer(ask("/", "shown by the node")).unwrap();
            assert!(answer.contains("hello"), "{answer}");
            drop(busy);
            cpu() - before
        })
        .await;
    // The server's own time does not depend on how busy the machine is. A probe has a second; without permits for those that compute it
    // waited for two and a half.
    println!("the probe was answered after {took:?} of the server's CPU time");
    assert!(took < Duration::from_millis(500), "{took:?}");
    runtime.remove(&spec.id).await.unwrap();
}
