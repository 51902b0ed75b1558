//! The same by requests instead of connections: clients that stay connected, requests that take long, more requests than a server has room
//! for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Cluster, Kubectl, eventually, eventually_within};

use super::{ANSWERED_WITHIN, WEB, curl, until_nothing_runs};
use crate::components;

const FLAGS: [&str; 2] = ["--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=2s"];
const SLOW: &str = include_str!("slow.yaml");
const PERIOD: Duration = Duration::from_millis(50);
/// The requests that a Pod of `slow.yaml` handles at once.
const ROOM: usize = 32;

fn up() -> Cluster {
    let cluster = Cluster::up_with(&FLAGS);
    let file = tempfile::Builder::new().suffix(".wasm").tempfile().expect("a file");
    std::fs::write(file.path(), components::http()).expect("written");
    cluster.skiff(&["image", "import", "test/slow:v1", &file.path().display().to_string()]).ok();
    cluster
}

fn cluster_ip(kubectl: &Kubectl<'_>, service: &str) -> SocketAddr {
    let ip = kubectl.field(&format!("service/{service}"), "/spec/clusterIP");
    format!("{}:80", ip.as_str().expect("a cluster IP")).parse().expect("an address")
}

/// The reports of requests in all Leases.
fn reported(kubectl: &Kubectl<'_>) -> String {
    kubectl.ok("get leases -n kube-node-lease -o jsonpath={.items[*].metadata.annotations.skiff\\.internal/requests}")
}

/// A metric of the containers of Pods that begin with a name, summed over all nodes.
fn metric(kubectl: &Kubectl<'_>, name: &str, pods: &str) -> f64 {
    let nodes = kubectl.ok("get nodes -o jsonpath={.items[*].metadata.name}");
    let texts = nodes.split_whitespace().map(|node| kubectl.ok(&format!("get --raw /api/v1/nodes/{node}/proxy/metrics/cadvisor")));
    let values = texts.flat_map(|text| {
        let own = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&format!("pod=\"{pods}")));
        own.filter_map(|line| line.split("} ").nth(1)?.split(' ').next()?.parse::<f64>().ok()).collect::<Vec<_>>()
    });
    values.sum()
}

/// Sends a request every [`PERIOD`] on one connection until the sender of `stop` is gone; then leaves the connection open. Returns the number
/// of answers.
fn talk(mut stream: TcpStream, stop: &Receiver<()>) -> (usize, TcpStream) {
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut count = 0;
    while stop.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        stream.write_all(b"GET /kept HTTP/1.1\r\nHost: web\r\n\r\n").expect("the connection stays");
        let mut line = String::new();
        while !line.contains("/kept") {
            line.clear();
            assert!(answers.read_line(&mut line).expect("an answer") > 0, "the connection ended after {count} answers");
        }
        count += 1;
        // The rest of the chunked body.
        let mut rest = String::new();
        while rest != "0\r\n" {
            rest.clear();
            assert!(answers.read_line(&mut rest).expect("the end") > 0, "the answer has no end");
        }
        answers.read_line(&mut rest).expect("the last line");
    }
    (count, stream)
}

#[test]
fn requests_on_one_connection_scale_a_web_server() {
    let cluster = up();
    let kubectl = cluster.kubectl();
    let by_requests = "type: service-requests\n      metadata: {service: web, targetRequestRate: \"2\"}";
    let web = WEB.replace("type: service-connections\n      metadata: {service: web, targetConnectionRate: \"2\"}", by_requests);
    // Requests are reported every five seconds.
    let web = web.replace("cooldownPeriod: 1\n", "cooldownPeriod: 10\n");
    assert!(web.contains(by_requests) && web.contains("cooldownPeriod: 10"), "{web}");
    kubectl.apply(&web).ok();
    kubectl.ok("wait --for=condition=Ready=true so/web --timeout=60s");
    until_nothing_runs(&kubectl);
    let address = cluster_ip(&kubectl, "web");

    // The first request waits and is answered. Then the Pod is probed every second, which is no use.
    let (elapsed, answer) = curl(&cluster, &format!("http://{address}/first"));
    assert_eq!(answer, "Hello from WebAssembly! You asked for /first\n 200", "after {elapsed:?}");
    assert!(elapsed < ANSWERED_WITHIN, "{elapsed:?}");
    eventually("the request is reported", || {
        let reported = reported(&kubectl);
        if reported.contains("default/web") && !reported.contains("\"milliPerSecond\":0") { Ok(()) } else { Err(reported) }
    });
    let count = metric(&kubectl, "skiff_container_http_requests_total", "web-");
    assert!((0.5..1.5).contains(&count), "{count} requests: probes are not counted");
    until_nothing_runs(&kubectl);

    // One connection, many requests.
    let (stop, stopped) = channel();
    let client = cluster.net.enter(move || talk(TcpStream::connect(address).expect("accepted"), &stopped));
    eventually_within(Duration::from_secs(90), "three replicas", || {
        let replicas = kubectl.field("deployment/web", "/spec/replicas");
        if replicas == 3 { Ok(()) } else { Err(format!("{replicas} {}{}", reported(&kubectl), kubectl.ok("describe so,hpa"))) }
    });
    assert!(metric(&kubectl, "skiff_container_http_requests_total", "web-") > 20.0, "the requests are counted");
    drop::<Sender<()>>(stop);
    let (count, connection) = client.join().expect("no panic");
    assert!(count > 20, "{count} requests");
    // A connection without requests is no use.
    until_nothing_runs(&kubectl);
    drop(connection);
    // The last report of the Pods may be as old as a report's interval.
    eventually("requests are no more reported", || {
        let reports = reported(&kubectl);
        if reports.contains("default/web") { Err(reports) } else { Ok(()) }
    });
}

/// A request that a guest has, and whose body is not there yet.
fn begin(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("accepted");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.write_all(b"POST /wait HTTP/1.1\r\nHost: slow\r\nContent-Length: 2\r\nConnection: close\r\n\r\n").expect("sent");
    stream
}

/// Sends the body and reads the answer.
fn finish(mut stream: TcpStream) -> String {
    stream.write_all(b"ok").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn pod_of_slow(kubectl: &Kubectl<'_>) -> Value {
    kubectl.json("get pods -l app=slow --sort-by=.metadata.creationTimestamp")["items"][0].clone()
}

#[test]
fn a_full_server_rejects_and_lives_and_a_server_that_goes_answers_first() {
    let cluster = up();
    let kubectl = cluster.kubectl();
    kubectl.apply(SLOW).ok();
    kubectl.ok("wait --for=condition=Ready=true so/slow --timeout=60s");
    let address = cluster_ip(&kubectl, "slow");
    let (elapsed, answer) = curl(&cluster, &format!("http://{address}/"));
    assert_eq!(answer, "hello from wat\n 200", "after {elapsed:?}");

    // As many requests as the Pod handles at once, and one more.
    let pod = pod_of_slow(&kubectl);
    let (name, ip) = (pod["metadata"]["name"].as_str().expect("a name").to_owned(), pod["status"]["podIP"].as_str().expect("an address"));
    let direct: SocketAddr = format!("{ip}:8080").parse().expect("an address");
    let mut waiting: Vec<TcpStream> = cluster.net.enter(move || (0..ROOM).map(|_| begin(direct)).collect()).join().expect("no panic");
    eventually("all are in flight", || {
        let in_flight = metric(&kubectl, "skiff_container_http_requests_in_flight", &name);
        if in_flight > 31.5 { Ok(()) } else { Err(format!("{in_flight}")) }
    });
    let began = Instant::now();
    let ran = cluster.net.run("curl", &["-sSi", "--noproxy", "*", "--max-time", "60", &format!("http://{direct}/more")]);
    let (elapsed, answer) = (began.elapsed(), ran.ok());
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 1"), "after {elapsed:?}: {answer}");
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    assert!(metric(&kubectl, "skiff_container_http_requests_rejected_total", &name) > 0.5, "the rejection is counted");
    // The probes, which come every second and may fail twice, have had room of their own.
    let status = pod_of_slow(&kubectl)["status"]["containerStatuses"][0].clone();
    assert_eq!((&status["ready"], &status["restartCount"]), (&Value::Bool(true), &Value::from(0)), "{status}");
    eventually_within(Duration::from_secs(60), "requests in flight are two Pods' share", || {
        let replicas = kubectl.field("deployment/slow", "/spec/replicas");
        if replicas == 2 { Ok(()) } else { Err(format!("{replicas} {}{}", reported(&kubectl), kubectl.ok("describe so,hpa"))) }
    });

    let last = waiting.pop().expect("one");
    for stream in waiting {
        let answer = finish(stream);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello from wat"), "{answer}");
    }
    // The Pods go while one request is in flight.
    kubectl.ok("annotate so slow autoscaling.keda.sh/paused-replicas=0");
    eventually("the Pod is being deleted", || {
        let pod = kubectl.run(&["get", "pod", &name, "-o", "jsonpath={.metadata.deletionTimestamp}"]);
        if pod.succeeded() && !pod.stdout.is_empty() { Ok(()) } else { Err(pod.to_string()) }
    });
    eventually("its port is closed", || {
        let refused = cluster.net.enter(move || TcpStream::connect_timeout(&direct, Duration::from_secs(1)).is_err()).join();
        if refused.expect("no panic") { Ok(()) } else { Err("it still accepts".to_owned()) }
    });
    let answer = finish(last);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello from wat"), "{answer}");
    kubectl.ok(&format!("wait --for=delete pod/{name} --timeout=30s"));
}
