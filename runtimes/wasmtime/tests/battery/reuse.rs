//! Instances of `wasi:http` servers: those that handle several requests, where the container allows it, and what ends with one.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use runtimes_battery::Harness;
use runtimes_contract::{ContainerSpec, HttpRequests, HttpSettings};

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{CPU_QUOTAS, Network, until_counted, web_of};

/// A server whose instances handle so many requests.
async fn serve(harness: &Wasmtime, network: &Network, instance_requests: Option<u32>, idle_s: u32) -> ContainerSpec {
    let http = HttpSettings { instance_requests, instance_idle_s: Some(idle_s), ..HttpSettings::default() };
    serve_with(harness, network, http, None).await
}

async fn serve_with(harness: &Wasmtime, network: &Network, http: HttpSettings, cpu_quota_us: Option<i64>) -> ContainerSpec {
    let mut spec = web_of(harness, network, "web", &components::counts_own_requests());
    spec.http = http;
    spec.resources.memory_limit_bytes = Some(32 << 20);
    spec.resources.cpu_quota_us = cpu_quota_us;
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    spec
}

/// The number of requests that the instance had handled with this one; `None` is an answer without it.
async fn ask(network: &Network, path: &str) -> Option<u32> {
    let answer = network.get("127.0.0.1:8080", path).await.unwrap();
    if !answer.starts_with("HTTP/1.1 200 ") {
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        return None;
    }
    // A chunk of one byte.
    answer.split("\r\n\r\n").nth(1).unwrap().strip_prefix("1\r\n").unwrap()[..1].parse().ok()
}

#[tokio::test]
async fn an_instance_handles_as_many_requests_as_allowed() {
    let (harness, network) = (Wasmtime::new(), Network::new("reuse"));
    let runtime = harness.runtime();
    for (allowed, wanted) in [(None, [1, 1, 1, 1]), (Some(1), [1, 1, 1, 1]), (Some(3), [1, 2, 3, 1])] {
        let spec = serve(&harness, &network, allowed, 3_600).await;
        for wanted in wanted {
            assert_eq!(ask(&network, "/").await, Some(wanted), "{allowed:?}");
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn an_instance_is_not_used_again_after_a_failure() {
    let (harness, network) = (Wasmtime::new(), Network::new("failed"));
    let runtime = harness.runtime();
    for cpu_quota_us in CPU_QUOTAS {
        let http = HttpSettings { instance_requests: Some(9), instance_idle_s: Some(3_600), ..HttpSettings::default() };
        let spec = serve_with(&harness, &network, http, cpu_quota_us).await;
        assert_eq!((ask(&network, "/").await, ask(&network, "/").await), (Some(1), Some(2)));
        assert_eq!(ask(&network, "/trap").await, None);
        assert_eq!(ask(&network, "/").await, Some(1), "an instance that trapped is not used again");
        // The end of the instance is the end of its answer. Otherwise the client would wait for five minutes.
        let half = network.get("127.0.0.1:8080", "/half").await.unwrap();
        assert!(half.ends_with("\r\n0\r\n\r\n"), "{half}");
        assert_eq!(ask(&network, "/").await, Some(1), "nor one that did not end its answer");
        let spinning = network
            .inside(|| {
                let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
                write!(stream, "GET /spin HTTP/1.1\r\nHost: web\r\n\r\n").unwrap();
                stream
            })
            .await;
        until_counted(&*runtime, &spec, HttpRequests { received: 7, rejected: 0, in_flight: 1 }).await;
        drop(spinning);
        until_counted(&*runtime, &spec, HttpRequests { received: 7, rejected: 0, in_flight: 0 }).await;
        assert_eq!(ask(&network, "/").await, Some(1), "nor one whose client left");
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn the_memory_of_an_instance_counts_until_it_is_dropped() {
    let (harness, network) = (Wasmtime::new(), Network::new("grow"));
    let runtime = harness.runtime();
    // With the pool and without.
    for pooling in [None, Some(false)] {
        let http = HttpSettings { instance_requests: Some(1_000), instance_idle_s: Some(3_600), pooling, ..HttpSettings::default() };
        let spec = serve_with(&harness, &network, http, None).await;
        // Of the limit of 32 MiB the guest may have 28: its memory, which begins with 64 KiB, grows by 4 MiB in each of six requests.
        for wanted in 1..=6 {
            assert_eq!(ask(&network, "/grow").await, Some(wanted), "{pooling:?}");
        }
        assert_eq!(ask(&network, "/grow").await, None, "{pooling:?}");
        assert_eq!(ask(&network, "/grow").await, Some(1), "the memory is free again: {pooling:?}");
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn an_instance_that_is_not_used_ends() {
    let (harness, network) = (Wasmtime::new(), Network::new("unused"));
    let runtime = harness.runtime();
    let spec = serve(&harness, &network, Some(1_000), 1).await;
    let mut was_reused = false;
    for _ in 0..20 {
        let number = ask(&network, "/").await.unwrap();
        if was_reused && number == 1 {
            runtime.remove(&spec.id).await.unwrap();
            return;
        }
        // At once, so that the instance still waits.
        was_reused = ask(&network, "/").await == Some(number + 1);
        // Longer than it may wait.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    panic!("no instance was used again and then ended: {was_reused}");
}

#[tokio::test]
async fn the_output_of_an_instance_ends_with_it() {
    let (harness, network) = (Wasmtime::new(), Network::new("line"));
    let runtime = harness.runtime();
    let spec = web_of(&harness, &network, "web", &components::writes_half_a_line());
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    for _ in 0..3 {
        let answer = network.get("127.0.0.1:8080", "/").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    runtime.signal(&spec.id, 15).await.unwrap();
    runtime.wait(&spec.id).await.unwrap();
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    let lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(lines, ["stdout P hello"; 3], "{log}");
    runtime.remove(&spec.id).await.unwrap();
}
