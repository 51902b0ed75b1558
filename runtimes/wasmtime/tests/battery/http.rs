//! `wasi:http/proxy` components, each test in a network namespace of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use runtimes_battery::{Harness, plain_spec};
use runtimes_contract::{ContainerSpec, ContainerState, HTTP_CONCURRENCY_MAX, HttpRequests, HttpSettings, Runtime, RuntimeError};

use crate::components;
use crate::harness::Wasmtime;

/// CPU limits of servers. With one core alone, the task of a connection begins the guest itself.
pub const CPU_QUOTAS: [Option<i64>; 2] = [None, Some(100_000)];

/// A network namespace with a loopback interface; deleted at the end.
pub struct Network(String);

impl Network {
    /// With a name of its own.
    pub fn new(name: &str) -> Self {
        let name = format!("skt-{}-{name}", std::process::id());
        run("ip", &["netns", "add", &name]);
        run("ip", &["-n", &name, "link", "set", "lo", "up"]);
        Self(name)
    }

    /// The namespace's file.
    pub fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }

    /// Does something inside, on a thread of its own.
    pub async fn inside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let path = self.path();
        let inside = move || {
            let namespace = std::fs::File::open(path).unwrap();
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        tokio::task::spawn_blocking(|| std::thread::spawn(inside).join().unwrap()).await.unwrap()
    }

    /// Sends one request to an address inside.
    pub async fn get(&self, address: &str, path: &str) -> std::io::Result<String> {
        let (address, path): (SocketAddr, _) = (address.parse().unwrap(), path.to_owned());
        self.inside(move || get(address, &path)).await
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        run("ip", &["netns", "delete", &self.0]);
    }
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}");
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = connect(address)?;
    request(&mut stream, path, "")?;
    answer(stream)
}

/// Connects to a server, whose answers do not take longer than half a minute.
pub fn connect(address: impl ToSocketAddrs) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

/// Sends the last request of a connection; each line of `headers` ends with CRLF.
pub fn request(stream: &mut TcpStream, path: &str, headers: &str) -> std::io::Result<()> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: web\r\n{headers}Connection: close\r\n\r\n")
}

/// All that comes until the server closes the connection.
pub fn answer(mut stream: TcpStream) -> std::io::Result<String> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn web(harness: &Wasmtime, network: &Network, id: &str) -> ContainerSpec {
    web_of(harness, network, id, &components::http())
}

/// The container of a server.
pub fn web_of(harness: &Wasmtime, network: &Network, id: &str, component: &[u8]) -> ContainerSpec {
    let mut spec = plain_spec(id);
    spec.content = harness.content(component);
    spec.cgroup = harness.cgroup(id);
    spec.log_path = harness.scratch().join(format!("{id}.log"));
    spec.sandbox.network = Some(network.path());
    spec
}

/// The same for each of [`CPU_QUOTAS`].
fn webs(harness: &Wasmtime, network: &Network) -> [ContainerSpec; 2] {
    CPU_QUOTAS.map(|cpu_quota_us| {
        let mut spec = web(harness, network, &format!("web-{}", cpu_quota_us.is_some()));
        spec.resources.cpu_quota_us = cpu_quota_us;
        spec
    })
}

async fn serve(runtime: &dyn Runtime, spec: &ContainerSpec) {
    runtime.create(spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_component_answers_on_its_ports_as_soon_as_it_is_started() {
    let (harness, network) = (Wasmtime::new(), Network::new("port"));
    let mut spec = web(&harness, &network, "web");
    spec.ports = vec![80, 9090, 80];
    let runtime = harness.runtime();
    serve(&*runtime, &spec).await;
    for address in ["127.0.0.1:80", "[::1]:80", "127.0.0.1:9090", "[::1]:9090"] {
        let answer = network.get(address, "/").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello from wat\n"), "{answer}");
    }
    assert!(network.get("127.0.0.1:8080", "/").await.is_err(), "no other port is open");
    assert!(get("127.0.0.1:80".parse().unwrap(), "/").is_err(), "and not outside the namespace");
    runtime.signal(&spec.id, 15).await.unwrap();
    let exit = runtime.wait(&spec.id).await.unwrap();
    assert_eq!((exit.code, exit.signal), (0, None), "{exit:?}");
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn without_a_declared_port_it_is_8080_and_a_taken_port_is_named() {
    let (harness, network) = (Wasmtime::new(), Network::new("taken"));
    let runtime = harness.runtime();
    let first = web(&harness, &network, "first");
    serve(&*runtime, &first).await;
    assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
    let second = web(&harness, &network, "second");
    runtime.create(&second).await.unwrap();
    let error = runtime.start(&second.id).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Start(_)), "{error:?}");
    assert_eq!(error.to_string(), "listen tcp :8080: bind: address already in use");
    for spec in [&first, &second] {
        runtime.remove(&spec.id).await.unwrap();
    }
    // The port is free again.
    serve(&*runtime, &second).await;
    runtime.remove(&second.id).await.unwrap();
    let mut many = web(&harness, &network, "many");
    many.ports = (1..=65).collect();
    runtime.create(&many).await.unwrap();
    let error = runtime.start(&many.id).await.unwrap_err();
    assert_eq!(error.to_string(), "the container declares 65 TCP ports, and a wasi:http server has 64 at most");
    runtime.remove(&many.id).await.unwrap();
}

#[tokio::test]
async fn a_trap_is_a_500_and_a_line_in_the_log_and_others_go_on() {
    let (harness, network) = (Wasmtime::new(), Network::new("trap"));
    let runtime = harness.runtime();
    for spec in webs(&harness, &network) {
        serve(&*runtime, &spec).await;
        let answer = network.get("127.0.0.1:8080", "/trap").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        let log = std::fs::read_to_string(&spec.log_path).unwrap();
        assert!(log.contains("stderr F request failed: ") && log.contains("unreachable"), "{log}");
        assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn spinning_requests_do_not_stop_others() {
    let (harness, network) = (Wasmtime::new(), Network::new("spin"));
    let runtime = harness.runtime();
    for spec in webs(&harness, &network) {
        serve(&*runtime, &spec).await;
        let spinning = network
            .inside(|| {
                let mut streams: Vec<_> = (0..3).map(|_| TcpStream::connect("127.0.0.1:8080").unwrap()).collect();
                for stream in &mut streams {
                    write!(stream, "GET /spin HTTP/1.1\r\nHost: web\r\n\r\n").unwrap();
                }
                streams
            })
            .await;
        for _ in 0..5 {
            assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
        }
        // Their clients hang up: the guests go too, and SIGTERM finds nothing to wait for.
        drop(spinning);
        runtime.signal(&spec.id, 15).await.unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
        assert_eq!(exit.code, 0, "{exit:?}");
        runtime.remove(&spec.id).await.unwrap();
    }
}

/// How many of so many clients at the same time get an answer that is right.
pub async fn answered_at_once(network: &Network, path: &'static str, clients: usize, is_right: fn(&str) -> bool) -> usize {
    let exchange = move || {
        let mut streams: Vec<_> = (0..clients).map(|_| connect("127.0.0.1:8080").unwrap()).collect();
        streams.iter_mut().for_each(|stream| request(stream, path, "").unwrap());
        streams.into_iter().map(|stream| answer(stream).unwrap()).filter(|answer| is_right(answer)).count()
    };
    network.inside(exchange).await
}

#[tokio::test]
async fn more_connections_than_instances_wait() {
    let (harness, network) = (Wasmtime::new(), Network::new("many"));
    let spec = web(&harness, &network, "web");
    let runtime = harness.runtime();
    serve(&*runtime, &spec).await;
    let served = answered_at_once(&network, "/", 200, |answer| answer.starts_with("HTTP/1.1 200 OK")).await;
    assert_eq!(served, 200);
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn nonsense_and_endless_heads_are_rejected() {
    let (harness, network) = (Wasmtime::new(), Network::new("nonsense"));
    let spec = web(&harness, &network, "web");
    let runtime = harness.runtime();
    serve(&*runtime, &spec).await;
    let statuses = network
        .inside(|| {
            let endless = format!("GET / HTTP/1.1\r\nHost: web\r\nX: {}\r\n\r\n", "x".repeat(400_000));
            let huge = "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 99999999999\r\n\r\n".to_owned();
            ["GET / HTTP/1.1\r\nno header\r\n\r\n".to_owned(), "GET / HTTP/1.1\r\n\r\n".to_owned(), endless, huge].map(|request| {
                let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
                // The server may hang up while we still talk.
                let _ = stream.write_all(request.as_bytes());
                let mut answer = [0; 12];
                let _ = stream.read_exact(&mut answer);
                String::from_utf8_lossy(&answer).into_owned()
            })
        })
        .await;
    assert_eq!([&statuses[0], &statuses[1], &statuses[3]], ["HTTP/1.1 400", "HTTP/1.1 400", "HTTP/1.1 413"]);
    // The 431 is lost when the rest of the head is thrown away with the connection.
    assert!(["HTTP/1.1 431", &"\0".repeat(12)].contains(&statuses[2].as_str()), "{statuses:?}");
    assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"));
    assert!(matches!(runtime.list().await.unwrap()[0].state, ContainerState::Running { .. }));
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn beyond_its_capacity_a_server_says_so_and_answers_probes() {
    let (harness, network) = (Wasmtime::new(), Network::new("busy"));
    let mut spec = web(&harness, &network, "web");
    spec.probe_token = "shown by the node".into();
    let runtime = harness.runtime();
    serve(&*runtime, &spec).await;
    // Every instance spins, and the queue behind them is full.
    let (refused, probed, _busy) = network
        .inside(|| {
            let busy: Vec<_> = (0..64 + 512).map(|_| ask("/spin", "slow")).collect();
            // The last of the waiting requests may not have arrived yet: further ones wait in their place, until one is rejected.
            let mut waiting = Vec::new();
            let refused = (0..64).find_map(|_| {
                let mut stream = ask("/", "client");
                stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                let mut answer = String::new();
                let read = stream.read_to_string(&mut answer);
                waiting.push(stream);
                read.ok().filter(|_| answer.contains(" 512 wait")).map(|_| answer)
            });
            (refused, answer(ask("/", "shown by the node")), busy)
        })
        .await;
    let refused = refused.expect("an answer that there is no room");
    assert!(
        refused.contains("retry-after: 1\r\n") && refused.contains("\r\n\r\ntoo many requests at once: 64 are handled and 512 wait; "),
        "{refused}"
    );
    assert!(refused.ends_with("the annotation wasm.skiff.internal/http-concurrency of the Pod sets how many are handled\n"), "{refused}");
    assert!(probed.unwrap().contains("hello"), "a probe is answered");
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    assert_eq!(log.matches("stderr F request rejected: too many requests at once: 64 are handled").count(), 1, "once a minute: {log}");
    runtime.remove(&spec.id).await.unwrap();
}

/// Sends a request on a connection of its own. It says to be a probe, and is one if its token is right.
pub fn ask(path: &str, token: &str) -> TcpStream {
    let mut stream = connect("127.0.0.1:8080").unwrap();
    request(&mut stream, path, &format!("User-Agent: kube-probe/1.37\r\nSkiff-Probe: {token}\r\n")).unwrap();
    stream
}

pub async fn until_counted(runtime: &dyn Runtime, spec: &ContainerSpec, wanted: HttpRequests) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let counted = runtime.http_requests(&spec.id).await.unwrap();
        if counted == Some(wanted) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{counted:?} instead of {wanted:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn requests_are_counted_one_by_one_and_probes_are_not() {
    let (harness, network) = (Wasmtime::new(), Network::new("count"));
    let runtime = harness.runtime();
    for mut spec in webs(&harness, &network) {
        spec.probe_token = "shown by the node".into();
        runtime.create(&spec).await.unwrap();
        assert_eq!(runtime.http_requests(&spec.id).await.unwrap(), None, "nothing counts yet");
        runtime.start(&spec.id).await.unwrap();
        until_counted(&*runtime, &spec, HttpRequests::default()).await;
        let spinning = network
            .inside(|| {
                // Five requests on one connection; the answer to the last one ends it.
                let mut stream = connect("127.0.0.1:8080").unwrap();
                stream.write_all("GET / HTTP/1.1\r\nHost: web\r\n\r\n".repeat(4).as_bytes()).unwrap();
                request(&mut stream, "/", "").unwrap();
                let answers = answer(stream).unwrap();
                assert_eq!(answers.matches("hello from wat").count(), 5, "{answers}");
                let read = |stream| answer(stream).unwrap();
                // A probe, and a client that only says to be one.
                assert!(read(ask("/", "shown by the node")).contains("hello"));
                assert!(read(ask("/", "a guess")).contains("hello"));
                assert!(read(ask("/trap", "")).starts_with("HTTP/1.1 500 "));
                ask("/spin", "")
            })
            .await;
        until_counted(&*runtime, &spec, HttpRequests { received: 8, rejected: 0, in_flight: 1 }).await;
        // The counters are the shim's: another runtime over the same directory, as after a restart of the agent, reads the same.
        until_counted(&*harness.runtime(), &spec, HttpRequests { received: 8, rejected: 0, in_flight: 1 }).await;
        drop(spinning);
        until_counted(&*runtime, &spec, HttpRequests { received: 8, rejected: 0, in_flight: 0 }).await;
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_handles_as_many_requests_at_once_as_its_spec_says() {
    let (harness, network) = (Wasmtime::new(), Network::new("bound"));
    let mut spec = web(&harness, &network, "web");
    spec.probe_token = "shown by the node".into();
    spec.http.concurrency = Some(2);
    let runtime = harness.runtime();
    serve(&*runtime, &spec).await;
    let (third, probed, busy) = network
        .inside(move || {
            let busy = [ask("/spin", ""), ask("/spin", "")];
            // It waits for its turn, which does not come.
            let third = answer(ask("/", "")).unwrap();
            (third, answer(ask("/", "shown by the node")).unwrap(), busy)
        })
        .await;
    assert!(third.starts_with("HTTP/1.1 503 ") && third.contains("retry-after: 1\r\n"), "{third}");
    assert!(probed.contains("hello"), "a probe is answered");
    until_counted(&*runtime, &spec, HttpRequests { received: 3, rejected: 1, in_flight: 2 }).await;
    drop(busy);
    until_counted(&*runtime, &spec, HttpRequests { received: 3, rejected: 1, in_flight: 0 }).await;
    assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"), "there is room again");
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_guest_has_the_time_that_the_settings_give_it() {
    let (harness, network) = (Wasmtime::new(), Network::new("time"));
    let runtime = harness.runtime();
    let mut servers = Vec::new();
    for cpu_quota_us in CPU_QUOTAS {
        for (answer_timeout_s, request_timeout_s, status, logged) in [
            (Some(1), None, "HTTP/1.1 504 ", "request failed: the guest did not answer in time"),
            (None, Some(1), "HTTP/1.1 500 ", "request failed: the request took too long"),
        ] {
            let port = 8080 + u16::try_from(servers.len()).unwrap();
            let mut spec = web(&harness, &network, &format!("web{port}"));
            spec.ports = vec![port];
            spec.resources.cpu_quota_us = cpu_quota_us;
            spec.http = HttpSettings { answer_timeout_s, request_timeout_s, ..HttpSettings::default() };
            serve(&*runtime, &spec).await;
            servers.push((spec, status, logged));
        }
    }
    // All at the same time, which takes no longer than one of them.
    let ports: Vec<_> = servers.iter().map(|(spec, ..)| spec.ports[0]).collect();
    let answers = network
        .inside(move || {
            let mut streams: Vec<_> = ports.iter().map(|&port| connect(("127.0.0.1", port)).unwrap()).collect();
            streams.iter_mut().for_each(|stream| request(stream, "/spin", "").unwrap());
            streams.into_iter().map(|stream| answer(stream).unwrap()).collect::<Vec<_>>()
        })
        .await;
    for ((spec, status, logged), answer) in servers.iter().zip(answers) {
        assert!(answer.starts_with(status), "{answer}");
        let log = std::fs::read_to_string(&spec.log_path).unwrap();
        assert!(log.contains(logged), "{log}");
        until_counted(&*runtime, spec, HttpRequests { received: 1, rejected: 0, in_flight: 0 }).await;
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_starts_with_every_bound() {
    let (harness, network) = (Wasmtime::new(), Network::new("bounds"));
    let runtime = harness.runtime();
    for concurrency in [1, HTTP_CONCURRENCY_MAX] {
        let mut spec = web(&harness, &network, &format!("web{concurrency}"));
        spec.http.concurrency = Some(concurrency);
        serve(&*runtime, &spec).await;
        assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"), "{concurrency}");
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_stops_answers_the_requests_that_it_has() {
    let (harness, network) = (Wasmtime::new(), Network::new("drain"));
    let runtime = harness.runtime();
    for spec in webs(&harness, &network) {
        serve(&*runtime, &spec).await;
        // The guest has a request whose body comes after the signal. A second connection is open and has no request.
        let (mut begun, idle) = network
            .inside(|| {
                let mut begun = TcpStream::connect("127.0.0.1:8080").unwrap();
                begun.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                write!(begun, "POST /wait HTTP/1.1\r\nHost: web\r\nContent-Length: 2\r\n\r\n").unwrap();
                let idle = TcpStream::connect("127.0.0.1:8080").unwrap();
                idle.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                (begun, idle)
            })
            .await;
        until_received(&*runtime, &spec, 1).await;
        runtime.signal(&spec.id, 15).await.unwrap();
        let answer = tokio::task::spawn_blocking(move || {
            let mut idle = idle;
            assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0, "a connection without a request is closed");
            // No answer was there before.
            begun.write_all(b"ok").unwrap();
            let mut answer = String::new();
            begun.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello from wat\n"), "{answer}");
        let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
        assert_eq!((exit.code, exit.signal), (0, None), "{exit:?}");
        runtime.remove(&spec.id).await.unwrap();
    }
}

pub async fn until_received(runtime: &dyn Runtime, spec: &ContainerSpec, wanted: u64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while runtime.http_requests(&spec.id).await.unwrap().is_none_or(|counted| counted.received < wanted) {
        assert!(tokio::time::Instant::now() < deadline, "{wanted} requests");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
