//! The activator with real sockets on loopback. What the kernel says about a connection is given: the rules that send connections
//! here are tested with those of all Services.

mod packets;

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::*;

const FRONT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 80);
const PODS: [u8; 4] = [127, 0, 0, 1];

/// An activator, and what its connections share.
struct World {
    address: SocketAddrV4,
    activations: watch::Sender<Arc<Activations>>,
    slots: Arc<Slots>,
    cancel: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn world(limits: Limits, original: Original) -> World {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr().expect("bound").port());
    let activator = Activator { listener, address, original, service_cidr: "10.96.0.0/12".parse().expect("a range") };
    let (activations, present) = watch::channel(Arc::default());
    let (slots, cancel) = (Arc::new(Slots::new(limits)), CancellationToken::new());
    tokio::spawn(activator.run(Shared { present, slots: Arc::clone(&slots) }, cancel.clone()));
    let world = World { address, activations, slots, cancel };
    world.set(&[]);
    world
}

impl World {
    /// The Service's endpoints, by the ports on loopback.
    fn set(&self, ports: &[u16]) {
        let endpoints = ports.iter().map(|port| SocketAddrV4::new(PODS.into(), *port)).collect();
        let activation = Activation { service: ("default".to_owned(), "web".to_owned()), endpoints };
        let front = Front { ip: Some(*FRONT.ip()), port: FRONT.port() };
        self.activations.send_replace(Arc::new(Activations { fronts: [(front, activation)].into(), ..Activations::default() }));
    }

    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    async fn until_waiting(&self, count: u32) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let waiting: u32 = self.slots.waiting().iter().map(|(_, waiting)| waiting).sum();
            if waiting == count {
                return;
            }
            assert!(Instant::now() < deadline, "{waiting} wait instead of {count}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Answers each connection with its number and what it has sent, up to a line's end.
async fn pod(listener: TcpListener) {
    let mut number = 0;
    while let Ok((mut stream, _)) = listener.accept().await {
        number += 1;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(stream.read_u8().await.expect("a line"));
        }
        stream.write_all(format!("{number} ").as_bytes()).await.expect("written");
        stream.write_all(&line).await.expect("written");
    }
}

/// Sends a line and reads the whole answer.
async fn ask(mut client: TcpStream, line: &str) -> io::Result<String> {
    let asking = async {
        client.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await?
}

fn service(_: &TcpStream) -> io::Result<SocketAddrV4> {
    Ok(FRONT)
}

#[tokio::test]
async fn connections_wait_for_a_pod_and_all_are_answered() {
    let world = world(Limits::default(), service).await;
    let mut asking = Vec::new();
    for number in 0..20 {
        asking.push(tokio::spawn(ask(world.client().await, if number % 2 == 0 { "GET / HTTP/1.1\n" } else { "anything\n" })));
    }
    world.until_waiting(20).await;
    tokio::time::timeout(Duration::from_secs(1), world.slots.wanted.notified()).await.expect("notified");

    // The Pod is ready before it listens.
    let reserved = tokio::net::TcpSocket::new_v4().expect("a socket");
    reserved.bind(SocketAddrV4::new(PODS.into(), 0).into()).expect("a port");
    world.set(&[reserved.local_addr().expect("bound").port()]);
    world.until_waiting(20).await;
    tokio::spawn(pod(reserved.listen(64).expect("listening")));
    let mut numbers = Vec::new();
    for (number, asking) in asking.into_iter().enumerate() {
        let answer = asking.await.expect("no panic").expect("an answer");
        let (count, line) = answer.split_once(' ').expect("two parts");
        assert_eq!(line, if number % 2 == 0 { "GET / HTTP/1.1\n" } else { "anything\n" });
        numbers.push(count.parse::<u32>().expect("a number"));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>(), "each connection came to the Pod once");
    world.until_waiting(0).await;
}

#[tokio::test]
async fn waits_end_with_a_reason() {
    let world = world(Limits { wait: Duration::from_millis(300), ..Limits::default() }, service).await;
    let began = Instant::now();
    let answer = ask(world.client().await, "GET / HTTP/1.1\r\nhost: web\r\n\r\n").await.expect("an answer");
    assert!(began.elapsed() >= Duration::from_millis(300), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.starts_with("HTTP/1.1 503 Service Unavailable\r\n") && head.contains(&format!("content-length: {}\r\n", body.len())),
        "{head}"
    );
    assert_eq!(body, "no Pod of Service default/web was ready within 0 s\n");
    // A large request is no obstacle to the answer.
    let large = format!("POST / HTTP/1.1\r\ncontent-length: 300000\r\n\r\n{}", "x".repeat(300_000));
    assert!(ask(world.client().await, &large).await.expect("an answer").ends_with("was ready within 0 s\n"));
    let failure = ask(world.client().await, "\u{16}\u{3}\u{1}").await.expect_err("TLS is not answered");
    assert_eq!(failure.kind(), io::ErrorKind::ConnectionReset);
    world.until_waiting(0).await;
}

#[tokio::test]
async fn more_than_the_bound_is_refused_at_once() {
    let limits = Limits { of_service: 2, ..Limits::default() };
    let world = world(limits, service).await;
    let waiting = [tokio::spawn(ask(world.client().await, "a\n")), tokio::spawn(ask(world.client().await, "b\n"))];
    world.until_waiting(2).await;
    let answer = ask(world.client().await, "GET / HTTP/1.1\r\n\r\n").await.expect("an answer");
    let wanted = "2 connections to Service default/web wait or have waited on this node, which are the most at once\n";
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with(wanted), "{answer}");

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    world.set(&[listener.local_addr().expect("bound").port()]);
    tokio::spawn(pod(listener));
    for asking in waiting {
        asking.await.expect("no panic").expect("an answer");
    }
    assert_eq!(ask(world.client().await, "c\n").await.expect("room again"), "3 c\n");
}

#[tokio::test]
async fn a_service_that_is_gone_or_another_ends_the_wait() {
    let world = world(Limits::default(), service).await;
    let asking = tokio::spawn(ask(world.client().await, "GET / HTTP/1.1\r\n\r\n"));
    world.until_waiting(1).await;
    // Another Service got the address, and has an endpoint.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let endpoints = vec![SocketAddrV4::new(PODS.into(), listener.local_addr().expect("bound").port())];
    let activation = Activation { service: ("other".to_owned(), "web".to_owned()), endpoints };
    let front = Front { ip: Some(*FRONT.ip()), port: FRONT.port() };
    world.activations.send_replace(Arc::new(Activations { fronts: [(front, activation)].into(), ..Activations::default() }));
    let answer = asking.await.expect("no panic").expect("an answer");
    assert!(answer.ends_with("connections to Service default/web do not wait any more\n"), "{answer}");
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err(), "the other Service's Pod got nothing");
}

#[tokio::test]
async fn what_no_rule_has_sent_is_reset() {
    let nowhere: [Original; 3] = [
        // A connection without translation.
        original,
        |_| Ok(SocketAddrV4::new(*FRONT.ip(), 81)),
        |_| Ok(SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 2), 80)),
    ];
    for original in nowhere {
        let world = world(Limits::default(), original).await;
        let failure = ask(world.client().await, "GET / HTTP/1.1\r\n\r\n").await.expect_err("no answer");
        assert_eq!(failure.kind(), io::ErrorKind::ConnectionReset);
        assert!(world.slots.waiting().is_empty());
    }
}
