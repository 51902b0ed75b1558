//! Components of WASI 0.3: commands and servers by the async ABI.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use runtimes_battery::{Harness, until};
use runtimes_contract::{ContainerSpec, HttpRequests, HttpSettings, Mount};

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{Network, answer, answered_at_once, connect, request, until_counted, web_of};
use crate::wasm::{run, spec};

const ADDRESS: &str = "127.0.0.1:8080";
const TEXT: &str = "hello from 0.3 1\n";

async fn serve(harness: &Wasmtime, network: &Network, http: HttpSettings) -> ContainerSpec {
    let spec = ContainerSpec { http, ..web_of(harness, network, "service", &components::service()) };
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    spec
}

fn log_of(spec: &ContainerSpec) -> String {
    std::fs::read_to_string(&spec.log_path).unwrap()
}

/// Waits until so many lines of the log contain the text.
async fn until_logged(spec: &ContainerSpec, wanted: &str, times: usize) {
    until(wanted, || log_of(spec).matches(wanted).count() >= times).await;
}

/// A command that does this after its first line, and then returns a result.
pub fn command(then: &str, result: u8) -> Vec<u8> {
    let text = include_str!("../guests/async-command.wat").replace("(;then;)", then).replace("RESULT", &result.to_string());
    let imports = "cli/stdout@0.3.0 cli/exit@0.3.0 clocks/monotonic-clock@0.3.0";
    components::async_command(&wat::parse_str(text).unwrap(), imports)
}

#[tokio::test]
async fn a_command_ends_when_it_has_nothing_left_to_do() {
    let harness = Wasmtime::new();
    for (then, result, code, lines) in [
        ("", 0, 0, &["stdout F at first", "stdout F and later"][..]),
        ("", 1, 1, &["stdout F at first", "stdout F and later"]),
        ("(call $exit-with-code (i32.const 7))", 0, 7, &["stdout F at first"]),
        ("unreachable", 0, 134, &["stdout F at first", "stderr F wasm trap"]),
    ] {
        let spec = spec(&harness, &command(then, result));
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!((exit.code, exit.signal), (code, None), "{then}: {log}");
        assert_eq!(exit.message.contains("wasm `unreachable` instruction executed"), code == 134, "{then}: {}", exit.message);
        let log: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        let (out, wanted) = (|line: &&&str| line.starts_with("stdout"), lines.iter().filter(|line| line.starts_with("stdout")));
        assert!(log.iter().filter(out).eq(wanted), "{then}: {log:?}");
        std::fs::remove_file(&spec.log_path).unwrap();
    }
}

#[tokio::test]
async fn sigterm_stops_a_command_that_computes_or_waits() {
    let harness = Wasmtime::new();
    let waits = "(return (call $wait (i32.shr_u (call $wait-for (i64.const 3600000000000)) (i32.const 4)) (i32.const 9)))";
    for then in ["(loop $again (br $again))", waits] {
        let spec = spec(&harness, &command(then, 0));
        let runtime = harness.runtime();
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        until_logged(&spec, "at first", 1).await;
        runtime.signal(&spec.id, 15).await.unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
        assert_eq!((exit.code, exit.signal), (143, Some(15)), "{then}: {exit:?}");
        runtime.remove(&spec.id).await.unwrap();
        std::fs::remove_file(&spec.log_path).unwrap();
    }
}

#[tokio::test]
async fn a_service_answers_and_its_failures_are_named() {
    let (harness, network) = (Wasmtime::new(), Network::new("service"));
    let spec = serve(&harness, &network, HttpSettings::default()).await;
    for path in ["/", "/wait", "/"] {
        let answer = network.get(ADDRESS, path).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(TEXT) && answer.ends_with("\r\n0\r\n\r\n"),
            "{path}: {answer}"
        );
    }
    let answer = network.get(ADDRESS, "/host").await.unwrap();
    assert!(answer.contains("\r\n\r\n3\r\nweb\r\n"), "the header is the authority: {answer}");
    for (path, logged) in [("/trap", "unreachable"), ("/error", "the guest answered with an error: ")] {
        let answer = network.get(ADDRESS, path).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("internal server error"), "{path}: {answer}");
        assert!(log_of(&spec).contains(logged), "{path}: {}", log_of(&spec));
    }
    let runtime = harness.runtime();
    runtime.signal(&spec.id, 15).await.unwrap();
    assert_eq!(runtime.wait(&spec.id).await.unwrap().code, 0);
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_was_cut_does_not_look_whole() {
    let (harness, network) = (Wasmtime::new(), Network::new("cut"));
    let spec = serve(&harness, &network, HttpSettings::default()).await;
    let answer = network.get(ADDRESS, "/cut").await.unwrap();
    assert!(!answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    until_logged(&spec, "stderr F request failed: after its answer had begun: ", 1).await;
    // What fails after the end of the answer changes nothing for the client.
    let answer = network.get(ADDRESS, "/late").await.unwrap();
    assert!(answer.contains(TEXT) && answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    until_logged(&spec, "after its answer had begun: ", 2).await;
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn guests_that_compute_or_are_silent_hold_up_nobody() {
    let (harness, network) = (Wasmtime::new(), Network::new("silent"));
    let spec = serve(&harness, &network, HttpSettings { answer_timeout_s: Some(1), ..HttpSettings::default() }).await;
    let waiting = network
        .inside(|| {
            ["/spin", "/silent", "/spin", "/silent"].map(|path| {
                let mut stream = connect(ADDRESS).unwrap();
                request(&mut stream, path, "").unwrap();
                stream
            })
        })
        .await;
    for _ in 0..5 {
        assert!(network.get(ADDRESS, "/wait").await.unwrap().contains(TEXT));
    }
    for stream in waiting {
        let answer = answer(stream).unwrap();
        assert!(answer.starts_with("HTTP/1.1 504 ") && answer.ends_with("the guest did not answer in time\n"), "{answer}");
    }
    let runtime = harness.runtime();
    until_counted(&*runtime, &spec, HttpRequests { received: 9, rejected: 0, in_flight: 0 }).await;
    runtime.signal(&spec.id, 15).await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
    assert_eq!(exit.code, 0, "{exit:?}");
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn the_body_of_a_request_can_be_the_answer() {
    let (harness, network) = (Wasmtime::new(), Network::new("echo"));
    let spec = serve(&harness, &network, HttpSettings::default()).await;
    let len = 3 << 20;
    let answer = network
        .inside(move || {
            let mut stream = TcpStream::connect(ADDRESS).unwrap();
            write!(stream, "POST /echo HTTP/1.1\r\nHost: web\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n").unwrap();
            let mut reader = stream.try_clone().unwrap();
            let reading = std::thread::spawn(move || {
                let mut answer = Vec::new();
                reader.read_to_end(&mut answer).unwrap();
                answer
            });
            stream.write_all(&vec![b'x'; len]).unwrap();
            reading.join().unwrap()
        })
        .await;
    let head = String::from_utf8_lossy(&answer[..answer.len() - len]).into_owned();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&format!("content-length: {len}\r\n")), "{head}: {}", log_of(&spec));
    assert!(answer[answer.len() - len..].iter().all(|&byte| byte == b'x'));
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn an_instance_handles_as_many_requests_as_allowed() {
    let (harness, network) = (Wasmtime::new(), Network::new("again"));
    for (instance_requests, wanted) in [(None, [1, 1, 1, 1]), (Some(3), [1, 2, 3, 1])] {
        let spec = serve(&harness, &network, HttpSettings { instance_requests, ..HttpSettings::default() }).await;
        let runtime = harness.runtime();
        for (before, wanted) in wanted.into_iter().enumerate() {
            let answer = network.get(ADDRESS, "/").await.unwrap();
            assert!(answer.contains(&format!("hello from 0.3 {wanted}\n")), "{instance_requests:?} {before}: {answer}");
        }
        // An instance that failed is not used again.
        for path in ["/", "/trap", "/"] {
            let answer = network.get(ADDRESS, path).await.unwrap();
            assert_eq!(answer.starts_with("HTTP/1.1 500 "), path == "/trap", "{answer}");
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn many_clients_at_once_are_answered() {
    let (harness, network) = (Wasmtime::new(), Network::new("crowd"));
    let spec = serve(&harness, &network, HttpSettings::default()).await;
    let answered = answered_at_once(&network, "/wait", 200, |answer| answer.contains(TEXT)).await;
    assert_eq!(answered, 200);
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_guest_that_hoards_streams_ends_within_its_limit() {
    let harness = Wasmtime::new();
    let mut spec = spec(&harness, &command("(loop $again (drop (call $stream)) (br $again))", 0));
    spec.resources.memory_limit_bytes = Some(32 << 20);
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!((exit.code, exit.oom_killed), (134, false), "{exit:?} {log}");
    assert!(exit.message.contains("handle limit exceeded"), "{exit:?}");
}

#[tokio::test]
async fn files_and_sockets_are_those_of_the_container() {
    let (harness, network) = (Wasmtime::new(), Network::new("world"));
    let mut spec = spec(&harness, &components::async_world());
    let data = harness.dir().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("text"), "of a volume\n").unwrap();
    std::os::unix::fs::chown(&data, Some(runtimes_wasmtime::NOBODY), None).unwrap();
    spec.mounts.push(Mount::new(data.clone(), "/data", false));
    spec.sandbox.network = Some(network.path());
    let listener = network.inside(|| TcpListener::bind("127.0.0.1:7000").unwrap()).await;
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = [0; 5];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(b"pong\n").unwrap();
        said
    });
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!(exit.code, 0, "the step that went wrong: {exit:?} {log}");
    let lines: Vec<_> = log.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(lines, ["stdout F of a volume", "stdout F pong"]);
    assert_eq!(&peer.join().unwrap(), b"ping\n");
    assert_eq!(std::fs::read_to_string(data.join("made")).unwrap(), "pong\n");
}
