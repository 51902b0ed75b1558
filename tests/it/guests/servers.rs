//! Servers of `wasi:http`: the versions of HTTP on each of their ports, the cores of their limit, what their settings do, the memory
//! that they need, and a program beside the server in its image.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tests::run::run;
use tests::{Cluster, Kubectl, eventually};

use super::{does_not_start, pod};
use crate::components;
use crate::limits::cgroups;

const PORTS: [u16; 2] = [8080, 9090];
/// The pages of a memory that begins with 48 MiB.
const HUNGRY: u32 = 48 * 16;
/// The pages of a mebibyte more than a memory of the pool may have.
const LARGE: u32 = 1_025 * 16;
/// What curl writes behind the answer.
const STATUS: &str = " %{http_code} %{http_version}";
/// The requests that compute for ever.
const SPINNING: usize = 4;
/// The time over which the use of CPU is measured.
const MEASURED: Duration = Duration::from_millis(200);

pub fn import(import: &dyn Fn(&str, &[u8])) {
    import("numbers", &components::counts_own_requests());
    import("hungry", &components::http_with_pages(HUNGRY));
    import("large", &components::http_with_pages(LARGE));
}

/// The Pods, which start while the story does something else.
pub struct Servers<'a> {
    cluster: &'a Cluster,
    kubectl: &'a Kubectl<'a>,
}

impl<'a> Servers<'a> {
    pub fn start(cluster: &'a Cluster, kubectl: &'a Kubectl<'a>) -> Self {
        let ports = json!(PORTS.map(|port| json!({"containerPort": port})));
        let two_cores = json!({"ports": ports, "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "2"}}});
        let setting = |name: &str, value: &str| json!({(format!("wasm.skiff.internal/{name}")): value});
        let several = json!({"wasm.skiff.internal/http-instance-requests": "3", "wasm.skiff.internal/http-instance-idle-seconds": "3600"});
        let pods = [
            ("server", "server", json!({}), two_cores),
            ("impatient", "server", setting("http-answer-timeout-seconds", "1"), json!({})),
            ("several", "numbers", several, json!({})),
            ("hungry", "hungry", json!({}), json!({"resources": {"limits": {"memory": "51Mi"}}})),
            ("large", "large", json!({}), json!({})),
            ("without-pool", "large", setting("http-pooling", "false"), json!({})),
        ];
        let pods = pods.map(|(name, image, annotations, container)| pod(name, image, annotations, container));
        kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string()).ok();
        Self { cluster, kubectl }
    }

    pub fn are_as_they_are_set(&self) {
        for name in ["server", "impatient", "several", "without-pool"] {
            self.kubectl.until_ready(name);
        }
        let late = self.spawn_curl(&format!("http://{}/spin", self.address("impatient", PORTS[0])));
        self.every_version_is_spoken_on_every_port();
        self.instances_handle_their_number_of_requests();
        self.memory_is_there_before_it_starts();
        self.a_program_of_the_image_runs();
        let late = late.wait_with_output().expect("curl ends");
        assert_eq!(String::from_utf8_lossy(&late.stdout), "the guest did not answer in time\n 504 1.1");
        let log = self.kubectl.ok("logs impatient");
        assert!(log.contains("request failed: the guest did not answer in time"), "{log}");
        self.guests_compute_on_the_cores_of_the_limit();
        self.kubectl.ok("delete pods server impatient several without-pool --wait=false");
    }

    fn address(&self, pod: &str, port: u16) -> SocketAddr {
        format!("{}:{port}", self.kubectl.ip(pod)).parse().expect("an address")
    }

    /// The answer with its status and its version.
    fn curl(&self, args: &[&str], address: SocketAddr) -> String {
        let url = format!("http://{address}/");
        run(self.curl_command("20").args(args).arg(url), None).ok()
    }

    fn spawn_curl(&self, url: &str) -> Child {
        let mut command = self.curl_command("60");
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("curl starts")
    }

    /// curl in the node's namespace, for so many seconds at most.
    fn curl_command(&self, limit: &str) -> Command {
        let mut command = self.cluster.net.command("curl");
        command.args(["-sS", "--noproxy", "*", "--max-time", limit, "-w", STATUS]);
        command
    }

    fn every_version_is_spoken_on_every_port(&self) {
        for port in PORTS {
            let address = self.address("server", port);
            for (args, wanted) in [
                // curl's number of HTTP/1.0 is 1.
                (&["--http1.0"][..], "hello from wat\n 200 1"),
                (&["--http1.0", "-H", "Host:"], "hello from wat\n 200 1"),
                (&["--http1.1"], "hello from wat\n 200 1.1"),
                (&["--http2-prior-knowledge"], "hello from wat\n 200 2"),
            ] {
                assert_eq!(self.curl(args, address), wanted, "{port} {args:?}");
            }
            let without_host = self.curl(&["--http1.1", "-H", "Host:"], address);
            assert!(without_host.ends_with(" 400 1.1"), "{port}: {without_host}");
        }
    }

    /// The server answers with the number of requests that its instance has handled.
    fn instances_handle_their_number_of_requests(&self) {
        let address = self.address("several", PORTS[0]);
        let answers = [(); 4].map(|()| self.curl(&[], address));
        assert_eq!(answers, [1, 2, 3, 1].map(|number| format!("{number} 200 1.1")));
    }

    fn memory_is_there_before_it_starts(&self) {
        let both = "the memory limit is too low: the WebAssembly begins with 49152 KiB of memory, and of the limit of 52224 KiB it may have \
                    48128 KiB";
        does_not_start(self.kubectl, "hungry", both);
        let setting = "with the annotation wasm.skiff.internal/http-pooling: \"false\" it has no pool: ";
        does_not_start(self.kubectl, "large", setting);
        assert_eq!(self.curl(&[], self.address("without-pool", PORTS[0])), "hello from wat\n 200 1.1");
    }

    fn a_program_of_the_image_runs(&self) {
        assert_eq!(self.kubectl.fails("exec server -- /app/exits.wasm"), "command terminated with exit code 4\n");
    }

    /// More CPU time passes than one core has, and other requests are answered meanwhile.
    fn guests_compute_on_the_cores_of_the_limit(&self) {
        let cores = if std::thread::available_parallelism().expect("a number").get() > 1 { 1.1 } else { 0.5 };
        let address = self.address("server", PORTS[0]);
        let group = cgroups(&self.kubectl.uid("server"));
        let spinning = self.cluster.net.enter(move || [(); SPINNING].map(|()| spin(address))).join().expect("no panic");
        let mut since = (Instant::now(), cpu_time(&group));
        eventually(&format!("{cores} cores are used"), || {
            assert_eq!(self.curl(&[], address), "hello from wat\n 200 1.1");
            let used = cpu_time(&group).saturating_sub(since.1);
            // Read last, so that a pause between the two makes the use smaller.
            let elapsed = since.0.elapsed();
            if elapsed < MEASURED {
                return Err(format!("{used:?} in {elapsed:?}"));
            }
            since = (Instant::now(), cpu_time(&group));
            if used.as_secs_f64() > cores * elapsed.as_secs_f64() { Ok(()) } else { Err(format!("{used:?} in {elapsed:?}")) }
        });
        drop::<[TcpStream; SPINNING]>(spinning);
    }
}

/// Sends a request whose guest computes for ever.
fn spin(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("accepted");
    stream.write_all(b"GET /spin HTTP/1.1\r\nHost: web\r\n\r\n").expect("sent");
    stream
}

/// The CPU time of a cgroup, by its directories in all hierarchies.
fn cpu_time(dirs: &[PathBuf]) -> Duration {
    let read = |file: &str| dirs.iter().find_map(|dir| fs::read_to_string(dir.join(file)).ok());
    let of_v1 = || read("cpuacct.usage")?.trim().parse().ok().map(Duration::from_nanos);
    let of_v2 = || read("cpu.stat")?.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok()).map(Duration::from_micros);
    of_v1().or_else(of_v2).unwrap_or_else(|| panic!("{dirs:?}"))
}
