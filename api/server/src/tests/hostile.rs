//! Hostile input: each gets the status that upstream returns, at a limited cost.

mod bodies;
mod credentials;
mod paths;
mod wire;

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::nodes::served;
use super::*;

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// Time limit for any single request, in a debug build on a busy machine. Without limits in the server, these requests
/// take minutes or all memory.
const COST_MAX: Duration = Duration::from_secs(30);

/// Runs work that must end within `COST_MAX`.
async fn quickly<T>(work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let outcome = work.await;
    assert!(started.elapsed() < COST_MAX, "took {:?}", started.elapsed());
    outcome
}

/// A TLS connection to the cluster.
async fn connected(cluster: &Cluster, connector: &TlsConnector) -> Stream {
    let (address, _) = served(cluster).await;
    connected_to(address, connector).await
}

async fn connected_to(address: SocketAddr, connector: &TlsConnector) -> Stream {
    let stream = TcpStream::connect(address).await.expect("connected");
    connector.connect("127.0.0.1".try_into().expect("a name"), stream).await.expect("a handshake")
}

/// Sends bytes; returns all that comes back until the server closes the connection.
async fn response(stream: &mut Stream, bytes: &[u8]) -> String {
    // The server may close the connection before it has read all.
    let _sent = stream.write_all(bytes).await;
    heard(stream).await
}

/// All bytes until the server closes the connection, with or without a TLS close.
async fn heard(stream: &mut Stream) -> String {
    let mut answer = Vec::new();
    let _end = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}
