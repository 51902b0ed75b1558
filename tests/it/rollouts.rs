//! Steady requests to a Service while the Pods behind it are replaced and removed: every one of them is answered.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tests::{Cluster, eventually};

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: samples/web:latest
          imagePullPolicy: IfNotPresent
          readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"#;

/// Clients of each kind, each with a request in every period: 400 requests a second.
const CLIENTS: usize = 4;
const PERIOD: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the clients have done so far, and whether they go on.
#[derive(Default)]
struct Load {
    answered: AtomicUsize,
    stop: AtomicBool,
}

type Connection = BufReader<TcpStream>;

fn connect(address: SocketAddr) -> std::io::Result<Connection> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(BufReader::new(stream))
}

/// Sends one request and reads its answer: whether the connection stays open.
fn ask(connection: &mut Connection) -> Result<bool, String> {
    let failed = |doing: &'static str| move |error: std::io::Error| format!("{doing}: {error}");
    connection.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").map_err(failed("sending"))?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head).map_err(failed("reading the head"))? == 0 {
            return Err(format!("the connection ended after {head:?}"));
        }
    }
    let head = head.to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(head);
    }
    read_body(connection, &head).map_err(failed("reading the body"))?;
    Ok(!head.contains("\r\nconnection: close\r\n"))
}

fn read_body(connection: &mut Connection, head: &str) -> std::io::Result<()> {
    if let Some(len) = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()) {
        return connection.read_exact(&mut vec![0; len]);
    }
    loop {
        let mut size = String::new();
        connection.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim_end(), 16).map_err(std::io::Error::other)?;
        connection.read_exact(&mut vec![0; size + 2])?;
        if size == 0 {
            return Ok(());
        }
    }
}

/// One client until it is stopped: its failures. Some use a connection for as long as the server keeps it, some one for each request.
#[expect(clippy::disallowed_methods, reason = "the rate of the requests")]
fn client(address: SocketAddr, stays: bool, load: &Load) -> Vec<String> {
    let (mut connection, mut failures) = (None, Vec::new());
    let begun = Instant::now();
    let mut next = begun;
    while !load.stop.load(Ordering::SeqCst) {
        let used = connection.take().map_or_else(|| connect(address).map_err(|error| format!("connecting: {error}")), Ok);
        let asks = |mut used: Connection| Ok::<_, String>((ask(&mut used)?, used));
        match used.and_then(asks) {
            Ok((stays_open, used)) => {
                load.answered.fetch_add(1, Ordering::SeqCst);
                connection = Some(used).filter(|_| stays_open && stays);
            }
            Err(error) => failures.push(format!("after {:?}: {error}", begun.elapsed())),
        }
        next += PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    failures
}

#[test]
fn no_request_is_lost_when_pods_are_replaced_and_removed() {
    let cluster = Cluster::up();
    let kubectl = cluster.kubectl();
    kubectl.apply(WEB).ok();
    kubectl.ok("rollout status deployment/web --timeout=120s");
    let address: SocketAddr =
        format!("{}:80", kubectl.field("service/web", "/spec/clusterIP").as_str().expect("a cluster IP")).parse().expect("an address");
    eventually("the Service has its Pods", || {
        let ready =
            kubectl.ok("get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].conditions.ready}");
        if ready == "true true true" { Ok(()) } else { Err(ready) }
    });

    let load = Arc::new(Load::default());
    let clients: Vec<_> = (0..2 * CLIENTS)
        .map(|number| {
            let load = load.clone();
            cluster.net.enter(move || client(address, number % 2 == 0, &load))
        })
        .collect();
    let more_answers = || {
        let wanted = load.answered.load(Ordering::SeqCst) + 400;
        eventually("clients are answered", || {
            let answered = load.answered.load(Ordering::SeqCst);
            if answered >= wanted { Ok(()) } else { Err(format!("{answered} instead of {wanted}")) }
        });
    };
    more_answers();
    for _ in 0..2 {
        kubectl.ok("rollout restart deployment/web");
        kubectl.ok("rollout status deployment/web --timeout=120s");
        more_answers();
    }
    kubectl.ok("scale deployment/web --replicas=1");
    eventually("the other Pods are gone", || {
        let pods = kubectl.ok("get pods -l app=web -o name");
        if pods.lines().count() == 1 { Ok(()) } else { Err(pods) }
    });
    more_answers();
    load.stop.store(true, Ordering::SeqCst);
    let failures: Vec<String> = clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
    let answered = load.answered.load(Ordering::SeqCst);
    eprintln!("{answered} requests were answered");
    assert!(failures.is_empty(), "{} of {} requests failed: {failures:#?}", failures.len(), answered + failures.len());
}
