//! WASM guests: requests of `wasi:http`, also to `wasmtime serve` with the same component, and the first and later starts of a large
//! component.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use tests::toolchain::guest;
use tests::{Cluster, eventually, eventually_within};

use crate::memory::shims;
use crate::pods::{client, pod, ready};
use crate::process::{Meter, cpu, pss_kib};
use crate::report::{Table, mib};
use crate::wasmtime_serve::WasmtimeServe;

/// The image of the component that componentize-py makes.
const PYTHON: &str = "bench/web-py:v1";
/// Starts of the component after the first one.
const STARTS: usize = 20;
/// How long the optimized code may take.
const LIMIT: Duration = Duration::from_secs(180);
const CONNECTIONS: usize = 32;
const REQUESTS_EACH: usize = 6_000;
/// Requests of each connection before those that count.
const WARM_UP: usize = 200;
const PORT: u16 = 8_080;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n";
/// The requests that an instance handles where instances are reused.
const REUSE: &str = "1000";
/// Options of wasmtime for its pool, as in `runtimes/wasmtime/src/settings.rs`. By its defaults, nothing of a memory or table stays mapped,
/// and no stack is overwritten.
const POOL: &[&str] = &[
    "-Opooling-memory-keep-resident=131072,pooling-table-keep-resident=131072,pooling-async-stack-keep-resident=32768",
    "-Wasync-stack-zeroing",
];

/// Builds the component and gives it to the node.
pub fn prepare(cluster: &Cluster) {
    let work = tempfile::tempdir().expect("a directory");
    let module = guest(work.path(), "web-py");
    cluster.skiff(&["image", "import", PYTHON, &module.display().to_string()]).ok();
}

pub async fn run(kubeconfig: &str, pid: u32) {
    let pods: Api<Pod> = Api::default_namespaced(client(kubeconfig).await);
    let table = Table::requests();
    of_skiff(&pods, &table).await;
    of_wasmtime_serve(&table).await;

    let first = start(&pods, "python-first", PYTHON).await;
    // The optimized code is made in the background by another process.
    eventually_within(LIMIT, "the end of the compilation", || match children(pid)[..] {
        [] => Ok(()),
        ref others => Err(format!("{others:?}")),
    });
    let mut later = Vec::with_capacity(STARTS);
    for round in 0..STARTS {
        later.push(start(&pods, &format!("python-{round}"), PYTHON).await);
    }
    let table = Table::latency();
    table.took("Python component (componentize-py), created to Ready, never compiled before", vec![first]);
    table.took("Python component, created to Ready, compiled before", later);
}

/// Requests to a Pod.
async fn of_skiff(pods: &Api<Pod>, table: &Table) {
    let reused = ("wasm.skiff.internal/http-instance-requests".to_owned(), REUSE.to_owned());
    for (what, annotations) in [("a new instance for each".to_owned(), None), (format!("{REUSE} to an instance"), Some([reused].into()))] {
        let mut web = pod("web", "samples/web:latest", &[]);
        web.metadata.annotations = annotations;
        let (_, web) = ready(pods, web).await;
        let ip = web.status.and_then(|status| status.pod_ip).expect("an address");
        let address = SocketAddr::new(ip.parse().expect("an address"), PORT);
        measure(table, &format!("Skiff: {what}"), shim(), address).await;
        delete(pods, "web").await;
    }
}

/// The same requests to `wasmtime serve`, with its default settings and with the pool of Skiff's.
async fn of_wasmtime_serve(table: &Table) {
    let serve = WasmtimeServe::prepare("web.wasm");
    let name = serve.name();
    for (what, reuse, options) in [
        ("a new instance for each", "1", &[][..]),
        ("a new instance for each, Skiff's pool", "1", POOL),
        (format!("{REUSE} to an instance").as_str(), REUSE, &[]),
    ] {
        let reuse = format!("--max-instance-reuse-count={reuse}");
        let server = serve.start(&[&[reuse.as_str()][..], options].concat());
        measure(table, &format!("{name}: {what}"), server.pid(), server.address).await;
    }
}

/// Measures a server that is one process.
async fn measure(table: &Table, what: &str, server: u32, address: SocketAddr) {
    tokio::task::spawn_blocking(move || requests(address, WARM_UP)).await.expect("answers");
    let (meter, own) = (Meter::start(server).await, cpu(std::process::id()));
    tokio::task::spawn_blocking(move || requests(address, REQUESTS_EACH)).await.expect("answers");
    let own = cpu(std::process::id()).saturating_sub(own);
    table.answered(&meter.spent().await, own, what, CONNECTIONS * REQUESTS_EACH, &mib(pss_kib(server)));
}

/// The time from the creation of a Pod until it is ready. The Pod is removed.
async fn start(pods: &Api<Pod>, name: &str, image: &str) -> Duration {
    let (took, _) = ready(pods, pod(name, image, &[])).await;
    delete(pods, name).await;
    took
}

async fn delete(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.expect("deletes");
    while pods.get_opt(name).await.expect("reads").is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The process of the only WASM container.
fn shim() -> u32 {
    eventually("one shim", || match shims()[..] {
        [one] => Ok(one),
        ref others => Err(format!("{others:?}")),
    })
}

/// The child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).expect("the process runs").flatten();
    let lists = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("children")));
    lists.flat_map(|pids| pids.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect()
}

/// Sends requests on all connections, one after the other on each.
fn requests(address: SocketAddr, each: usize) {
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(move || {
                let mut connection = TcpStream::connect(address).expect("connects");
                connection.set_nodelay(true).expect("set");
                (0..each).for_each(|_| request(&mut connection));
            });
        }
    });
}

fn request(connection: &mut TcpStream) {
    connection.write_all(REQUEST).expect("sends");
    let (mut answer, mut len) = ([0; 4_096], 0);
    // The guest sends its body in chunks.
    while !answer[..len].ends_with(b"\r\n0\r\n\r\n") {
        let read = connection.read(&mut answer[len..]).expect("answers");
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer[..len]));
        len += read;
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer[..len]));
}
