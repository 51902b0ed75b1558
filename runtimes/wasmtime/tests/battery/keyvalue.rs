//! `wasi:keyvalue` with a real Redis server, in a network namespace of its own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtimes_battery::Harness;
use runtimes_contract::ContainerSpec;

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{Network, answered_at_once, web_of};
use crate::wasm::{run, spec};

const PASSWORD: &str = "pass@word/1";

/// A Redis server with a password and nothing on disk.
struct Redis {
    network: String,
    process: Option<Child>,
}

impl Redis {
    /// Waits until it answers.
    fn start(network: &Network) -> Self {
        let mut redis = Self { network: network.path().file_name().unwrap().to_str().unwrap().to_owned(), process: None };
        redis.start_again();
        redis
    }

    fn start_again(&mut self) {
        let options = ["--bind", "127.0.0.1", "--port", "6379", "--save", "", "--appendonly", "no", "--requirepass", PASSWORD];
        // `ip` becomes the server, so the process is the server's.
        let mut server = self.inside("redis-server");
        self.process = Some(server.args(options).stdout(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.ask(&["PING"]) != "PONG" {
            assert!(Instant::now() < deadline, "redis-server answers");
            std::thread::yield_now();
        }
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        let id = self.process.as_ref().unwrap().id();
        kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.network, program]);
        command
    }

    /// The answer to a command of another client.
    fn ask(&self, command: &[&str]) -> String {
        let output = self.inside("redis-cli").env("REDISCLI_AUTH", PASSWORD).arg("--raw").args(command).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The spec of a container with this URL.
fn with_url(spec: ContainerSpec, url: &str) -> ContainerSpec {
    ContainerSpec { keyvalue_redis: Some(url.parse().unwrap()), ..spec }
}

const URL: &str = "redis://:pass%40word%2F1@127.0.0.1";

#[tokio::test]
async fn a_component_uses_a_redis_server_and_what_it_stores_stays() {
    let (harness, network) = (Wasmtime::new(), Network::new("redis"));
    let redis = Redis::start(&network);
    let mut spec = with_url(spec(&harness, &components::interfaces_without_cursor()), URL);
    spec.sandbox.network = Some(network.path());
    spec.env = vec![("COLOUR".into(), "green".into()), ("HOSTNAME".into(), "pod".into())];
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!(exit.code, 0, "the step that went wrong; {log}");
    assert_eq!(redis.ask(&["GET", "number"]), "42");
    assert_eq!(redis.ask(&["KEYS", "*"]), "number", "the other key was deleted");
    // The step that begins with a number of its own finds the one of the first run.
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!((exit.code, redis.ask(&["GET", "number"]).as_str()), (12, "85"), "{log}");
    // Another database has other keys; keys that are not UTF-8 are in no list.
    assert_eq!(redis.ask(&["-n", "3", "EVAL", "return redis.call('SET', '\\255', 'x')", "0"]), "OK");
    let spec = with_url(spec, &format!("{URL}:6379/3"));
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!((exit.code, redis.ask(&["-n", "3", "GET", "number"]).as_str()), (0, "42"), "{log}");
}

/// A server that counts in Redis.
async fn serve(harness: &Wasmtime, network: &Network, id: &str, url: &str) -> ContainerSpec {
    let spec = with_url(web_of(harness, network, id, &components::counter()), url);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    spec
}

/// The number of a request, or the error of the store.
async fn count(network: &Network) -> String {
    let answer = network.get("127.0.0.1:8080", "/").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // One chunk, and the last one.
    answer.split("\r\n\r\n").nth(1).unwrap().lines().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_server_finds_redis_again_after_it_was_away() {
    let (harness, network) = (Wasmtime::new(), Network::new("redis-away"));
    let refused = "Redis at 127.0.0.1:6379: connecting: Connection refused (os error 111)";
    // No server yet: the container starts.
    let spec = serve(&harness, &network, "counter", URL).await;
    assert_eq!(count(&network).await, refused);
    let mut redis = Redis::start(&network);
    for number in ["1", "2"] {
        assert_eq!(count(&network).await, number);
    }
    redis.stop();
    for _ in 0..2 {
        assert_eq!(count(&network).await, refused);
    }
    redis.start_again();
    for number in ["1", "2"] {
        assert_eq!(count(&network).await, number, "a new server, with nothing in it");
    }
    // One that does not answer: neither on a connection that is open, nor on a new one.
    redis.signal(Signal::SIGSTOP);
    assert_eq!(count(&network).await, "Redis at 127.0.0.1:6379: no answer within 10 s");
    assert_eq!(count(&network).await, "Redis at 127.0.0.1:6379: no connection within 5 s");
    redis.signal(Signal::SIGCONT);
    // The server may have executed the command whose answer was too late.
    assert!(["3", "4"].contains(&count(&network).await.as_str()));
    assert_eq!(redis.ask(&["DEL", "requests"]), "1");
    assert_eq!(redis.ask(&["RPUSH", "requests", "x"]), "1");
    let wrong = "Redis at 127.0.0.1:6379: WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(count(&network).await, wrong);
    assert_eq!(redis.ask(&["SET", "requests", "many"]), "OK");
    assert_eq!(count(&network).await, "the value is not a decimal number");
    assert_eq!(redis.ask(&["SET", "requests", "9223372036854775807"]), "OK");
    assert_eq!(count(&network).await, "the number is out of range");
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_and_a_command_that_is_not_allowed_are_denied() {
    let (harness, network) = (Wasmtime::new(), Network::new("redis-denied"));
    let redis = Redis::start(&network);
    assert_eq!(redis.ask(&["ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get"]), "OK");
    let denied = [
        "redis://127.0.0.1",
        "redis://:wrong@127.0.0.1",
        "redis://nobody:pass%40word%2F1@127.0.0.1",
        "redis://reader:secret@127.0.0.1",
        "redis://reader:secret@127.0.0.1/1",
    ];
    for url in denied {
        let spec = serve(&harness, &network, "counter", url).await;
        assert_eq!(count(&network).await, "access-denied", "{url}");
        let log = std::fs::read_to_string(&spec.log_path).unwrap_or_default();
        assert!(!log.contains("secret") && !log.contains("wrong"), "{log}");
        harness.runtime().remove(&spec.id).await.unwrap();
    }
    let spec = serve(&harness, &network, "counter", &format!("{URL}/99")).await;
    assert_eq!(count(&network).await, "Redis at 127.0.0.1:6379: the server answered SELECT with the error ERR");
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn requests_at_once_share_few_connections() {
    let (harness, network) = (Wasmtime::new(), Network::new("redis-many"));
    let redis = Redis::start(&network);
    let spec = serve(&harness, &network, "counter", URL).await;
    let counted = answered_at_once(&network, "/", 200, |answer| {
        answer.split("\r\n\r\n").nth(1).is_some_and(|body| body.lines().nth(1).is_some_and(|number| number.parse::<u32>().is_ok()))
    });
    assert_eq!((counted.await, redis.ask(&["GET", "requests"]).as_str()), (200, "200"));
    // The one that counts them is among them, and one for each of its commands before.
    let total = |name: &str| redis.ask(&["INFO"]).lines().find_map(|line| line.strip_prefix(name)?.parse::<u32>().ok()).unwrap();
    let (present, ever) = (total("connected_clients:"), total("total_connections_received:"));
    assert!((2..=17).contains(&present) && ever < 100, "{present} connections now, {ever} in all");
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_value_beyond_the_containers_memory_is_an_error() {
    let (harness, network) = (Wasmtime::new(), Network::new("redis-large"));
    let redis = Redis::start(&network);
    assert_eq!(redis.ask(&["SETRANGE", "key", "20000000", "x"]), "20000001");
    let mut spec = with_url(spec(&harness, &components::interfaces_without_cursor()), URL);
    spec.sandbox.network = Some(network.path());
    spec.env = vec![("COLOUR".into(), "green".into()), ("HOSTNAME".into(), "pod".into())];
    spec.resources.memory_limit_bytes = Some(16 << 20);
    let (exit, log) = run(&harness, &spec).await;
    // The guest expects no value there, and gets an error in place of one that it has no room for.
    assert_eq!((exit.code, exit.oom_killed), (8, false), "{exit:?} {log}");
}
