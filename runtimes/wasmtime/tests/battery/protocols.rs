//! The versions of HTTP that `wasi:http` servers speak, and what they demand of a request.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::SinkExt as _;
use futures::channel::mpsc;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use runtimes_battery::{Harness, pid_of};
use runtimes_contract::{ContainerSpec, HttpRequests};
use wasmtime_wasi_http::io::TokioIo;

use crate::components;
use crate::cost::kib;
use crate::harness::Wasmtime;
use crate::http::{Network, until_counted, until_received, web_of};

/// Sends bytes and reads until the server closes the connection.
fn exchange(request: &str) -> String {
    let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads one answer, which has its body in chunks.
fn answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    String::from_utf8(answer).unwrap()
}

async fn serve(harness: &Wasmtime, network: &Network, component: &[u8]) -> ContainerSpec {
    let spec = web_of(harness, network, "web", component);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    spec
}

#[tokio::test]
async fn clients_of_http_1_are_answered_as_they_ask() {
    let (harness, network) = (Wasmtime::new(), Network::new("http1"));
    let spec = serve(&harness, &network, &components::http()).await;
    for (request, status) in [
        ("GET / HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK"),
        ("GET / HTTP/1.0\r\nHost: web\r\n\r\n", "HTTP/1.0 200 OK"),
        ("GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK"),
        ("GET http://web/ HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK"),
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("GET / HTTP/1.0\r\nHost: a b\r\n\r\n", "HTTP/1.0 400 Bad Request"),
    ] {
        let answer = network.inside(|| exchange(request)).await;
        assert!(answer.starts_with(&format!("{status}\r\n")), "{request:?}: {answer}");
        if status == "HTTP/1.0 200 OK" {
            assert!(answer.ends_with("\r\n\r\nhello from wat\n"), "a client of HTTP/1.0 reads no chunks: {answer}");
        }
    }
    harness.runtime().remove(&spec.id).await.unwrap();
}

type Part = Result<Frame<Bytes>, std::convert::Infallible>;
type Parts = StreamBody<mpsc::Receiver<Part>>;

#[derive(Clone)]
struct Tasks;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        tokio::spawn(task);
    }
}

/// A connection by prior knowledge.
async fn http2(network: &Network) -> SendRequest<Parts> {
    let stream = network.inside(|| TcpStream::connect("127.0.0.1:8080").unwrap()).await;
    stream.set_nonblocking(true).unwrap();
    let stream = TokioIo::new(tokio::net::TcpStream::from_std(stream).unwrap());
    let (sender, connection) = hyper::client::conn::http2::handshake(Tasks, stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Begins a request; what is sent to the channel is its body.
fn begin(sender: &SendRequest<Parts>, path: &str) -> (mpsc::Sender<Part>, impl Future<Output = Response<Incoming>> + use<>) {
    let (parts, body) = mpsc::channel(1);
    let uri = format!("http://web{path}");
    let request = Request::post(uri).version(Version::HTTP_2).header("te", "trailers").body(StreamBody::new(body)).unwrap();
    let answer = sender.clone().send_request(request);
    (parts, async move { answer.await.unwrap() })
}

fn data(text: &str) -> Part {
    Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
}

fn trailers(status: u16) -> Part {
    Ok(Frame::trailers(HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(status))])))
}

#[tokio::test]
async fn requests_of_http_2_have_streams_and_trailers_in_both_directions() {
    let (harness, network) = (Wasmtime::new(), Network::new("http2"));
    let spec = serve(&harness, &network, &components::trailers()).await;
    let sender = http2(&network).await;
    // Calls on one connection, all open at once. Each is answered part by part.
    let calls: Vec<_> = (0..8).map(|number| (number, begin(&sender, "/call"))).collect();
    for (number, (mut parts, answer)) in calls {
        parts.send(data("first ")).await.unwrap();
        let mut answer = answer.await;
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, Version::HTTP_2));
        let first = answer.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "first ", "the guest answers while it reads");
        parts.send(data("second")).await.unwrap();
        parts.send(trailers(number)).await.unwrap();
        drop(parts);
        let rest = answer.into_body().collect().await.unwrap();
        assert_eq!(rest.trailers().unwrap()["grpc-status"], number.to_string().as_str());
        assert_eq!(rest.to_bytes(), "second");
    }
    until_counted(&*harness.runtime(), &spec, HttpRequests { received: 8, rejected: 0, in_flight: 0 }).await;
    // A request without trailers gets an answer without, and HTTP/1.1 goes on beside.
    let (mut parts, answer) = begin(&sender, "/call");
    parts.send(data("only")).await.unwrap();
    drop(parts);
    let answer = answer.await.into_body().collect().await.unwrap();
    assert!(answer.trailers().is_none());
    assert_eq!(answer.to_bytes(), "only");
    assert!(network.get("127.0.0.1:8080", "/").await.unwrap().starts_with("HTTP/1.1 200 OK"));
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_guest_speaks_grpc() {
    let (harness, network) = (Wasmtime::new(), Network::new("grpc"));
    let spec = serve(&harness, &network, &components::grpc()).await;
    let sender = http2(&network).await;
    for (path, message, wanted) in
        [("/grpc.health.v1.Health/Check", "\0\0\0\0\0", "\0\0\0\0\x02\x08\x01"), ("/it.Echo/Say", "\0\0\0\0\x02hi", "\0\0\0\0\x02hi")]
    {
        let (mut parts, answer) = begin(&sender, path);
        parts.send(data(message)).await.unwrap();
        drop(parts);
        let answer = answer.await;
        assert_eq!(answer.headers()["content-type"], "application/grpc");
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), wanted);
    }
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_server_in_use_stays_open_until_its_clients_have_left() {
    let (harness, network) = (Wasmtime::new(), Network::new("leave"));
    let spec = serve(&harness, &network, &components::http()).await;
    let runtime = harness.runtime();
    let request = "GET / HTTP/1.1\r\nHost: web\r\n\r\n";
    // A client that goes on learns from an answer that it shall leave. One that connects after that is answered too.
    let (has_begun, begun) = tokio::sync::oneshot::channel();
    let clients = network.inside(move || {
        let mut open = TcpStream::connect("127.0.0.1:8080").unwrap();
        open.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (deadline, mut has_begun) = (Instant::now() + Duration::from_secs(20), Some(has_begun));
        loop {
            open.write_all(request.as_bytes()).unwrap();
            let earlier = answer(&mut open);
            if earlier.contains("\r\nconnection: close\r\n") {
                return (earlier, exchange(request));
            }
            assert!(Instant::now() < deadline, "the signal has no effect: {earlier}");
            has_begun.take().into_iter().for_each(|has_begun| has_begun.send(()).unwrap());
        }
    });
    let signal = async {
        begun.await.unwrap();
        runtime.signal(&spec.id, 15).await.unwrap();
    };
    let ((earlier, later), ()) = tokio::join!(clients, signal);
    assert!(earlier.contains("hello from wat\n"), "{earlier}");
    assert_eq!(later.matches("hello from wat\n").count(), 1, "{later}");
    assert!(later.contains("\r\nconnection: close\r\n"), "{later}");
    let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
    assert_eq!((exit.code, exit.signal), (0, None), "{exit:?}");
    assert!(network.get("127.0.0.1:8080", "/").await.is_err(), "the port is closed in the end");
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_server_that_stops_answers_the_requests_of_http_2_that_it_has() {
    let (harness, network) = (Wasmtime::new(), Network::new("goaway"));
    let spec = serve(&harness, &network, &components::trailers()).await;
    let runtime = harness.runtime();
    let (sender, _idle) = (http2(&network).await, http2(&network).await);
    let (mut parts, answer) = begin(&sender, "/call");
    parts.send(data("first ")).await.unwrap();
    let answer = answer.await;
    until_received(&*runtime, &spec, 1).await;
    runtime.signal(&spec.id, 15).await.unwrap();
    // The connection refuses further requests.
    let refused = async {
        while !sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    parts.send(data("second")).await.unwrap();
    drop(parts);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "first second");
    tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
    assert_eq!((exit.code, exit.signal), (0, None), "{exit:?}");
    runtime.remove(&spec.id).await.unwrap();
}

/// What a client sends that then falls silent.
fn unfinished(number: usize) -> Vec<u8> {
    let head = "x".repeat(60 << 10);
    match number % 3 {
        0 => Vec::new(),
        1 => format!("GET / HTTP/1.1\r\nX: {head}").into_bytes(),
        _ => {
            // The preface, empty SETTINGS, HEADERS without an end in which a field of 61,440 bytes begins, and frames that continue it.
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
            bytes.extend(b"\0\0\x08\x01\0\0\0\0\x01\x82\0\x01x\x7f\x81\xdf\x03");
            for part in head.as_bytes().chunks(16_000) {
                let len = u32::try_from(part.len()).unwrap().to_be_bytes();
                bytes.extend([len[1], len[2], len[3], 9, 0, 0, 0, 0, 1]);
                bytes.extend(part);
            }
            bytes
        }
    }
}

#[tokio::test]
async fn clients_that_begin_and_fall_silent_cost_bounded_memory() {
    const CLIENTS: usize = 1_080;
    let (harness, network) = (Wasmtime::new(), Network::new("silent"));
    let mut spec = web_of(&harness, &network, "web", &components::http());
    spec.probe_token = "shown by the node".into();
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let pid = pid_of(&*runtime, &spec.id).await.expect("it runs");
    let files = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (_, most) = nix::sys::resource::getrlimit(files).unwrap();
    nix::sys::resource::setrlimit(files, most.min(4_096), most).unwrap();
    let (grown, probed) = network
        .inside(move || {
            let before = kib(pid, "status", "RssAnon:");
            let mut peak = 0;
            let silent: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let mut stream = TcpStream::connect("127.0.0.1:8080").unwrap();
                    // The server may have closed the connection: it has more than it accepts, or rejects what it reads.
                    let _sent = stream.write_all(&unfinished(number));
                    peak = peak.max(kib(pid, "status", "RssAnon:"));
                    stream
                })
                .collect();
            let probe = "GET / HTTP/1.1\r\nHost: web\r\nSkiff-Probe: shown by the node\r\nConnection: close\r\n\r\n";
            let probed = exchange(probe);
            peak = peak.max(kib(pid, "status", "RssAnon:"));
            drop(silent);
            (peak.saturating_sub(before), probed)
        })
        .await;
    println!("{CLIENTS} clients cost {grown} KiB");
    assert!(probed.contains("hello"), "a probe is answered: {probed}");
    assert!(grown < 128 << 10, "{grown} KiB");
    runtime.remove(&spec.id).await.unwrap();
}
