//! What takes its time: a client of the web server that does not send its request to the end, and Pods that cannot start, of which a
//! hundred cost next to no CPU.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tests::{Cluster, Kubectl, eventually};

const PODS: &str = include_str!("waiting.yaml");
/// The Pods of each of the two Deployments.
const REPLICAS: usize = 48;
/// The cores that the Pods may use beyond what the node uses without them. In a debug build their attempts take about a tenth; a loop
/// without a pause takes all of one.
const CORES_MAX: f64 = 0.3;
/// A client has half a minute for the head of a request. The server may be slow, because it has a fifth of a core.
const HEAD: std::ops::Range<Duration> = Duration::from_secs(29)..Duration::from_secs(75);
/// The unit of CPU time in `/proc`.
const TICK: Duration = Duration::from_millis(10);

/// Creates the Pods and waits until all of them have failed to start.
pub fn until_pods_wait(kubectl: &Kubectl<'_>) {
    kubectl.apply(PODS).ok();
    for (reason, deployment) in [("ErrImageNeverPull", "no-image-"), ("FailedMount", "no-volume-")] {
        let events = format!("get events --field-selector=reason={reason} -o jsonpath={{.items[*].involvedObject.name}}");
        eventually(&format!("{REPLICAS} Pods have {reason}"), || {
            let text = kubectl.ok(&events);
            let pods: BTreeSet<&str> = text.split_whitespace().filter(|pod| pod.starts_with(deployment)).collect();
            if pods.len() == REPLICAS { Ok(()) } else { Err(text) }
        });
    }
}

/// The cores that the process uses while something happens.
pub fn cores_of(cluster: &Cluster, happens: impl FnOnce()) -> f64 {
    let (begun, before) = (Instant::now(), cpu_time(cluster.pid()));
    happens();
    cpu_time(cluster.pid()).saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64()
}

fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    // utime and stime, of all threads.
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u32>().expect("a number"));
    TICK * ticks.sum::<u32>()
}

pub fn costs_no_cpu(without: f64, with: f64) {
    eprintln!("the process used {without:.3} cores, and {with:.3} with {} Pods that wait", 2 * REPLICAS);
    assert!(with < without + CORES_MAX, "{with} cores with Pods that wait, {without} without");
}

/// Begins a request to the web server and sends nothing more; returns how long the server left the connection open.
pub fn send_half_a_head(cluster: &Cluster, kubectl: &Kubectl<'_>) -> JoinHandle<Duration> {
    let ip = kubectl.ok("get pods -l app=web -o jsonpath={.items[0].status.podIP}");
    let address: SocketAddr = format!("{ip}:8080").parse().expect("an address");
    cluster.net.enter(move || {
        let mut stream = TcpStream::connect(address).expect("accepted");
        stream.set_read_timeout(Some(HEAD.end)).expect("set");
        let begun = Instant::now();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: we").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server closes the connection");
        begun.elapsed()
    })
}

pub fn a_head_has_its_time(silent: JoinHandle<Duration>) {
    let elapsed = silent.join().expect("no panic");
    assert!(HEAD.contains(&elapsed), "the connection was closed after {elapsed:?}");
}
