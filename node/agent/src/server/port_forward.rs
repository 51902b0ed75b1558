//! `/portForward/{namespace}/{pod}` over a websocket (`v4.channel.k8s.io`): for each port a data and an
//! error channel, the first frame of each being the port in two bytes. Connections are made inside
//! the Pod's network namespace.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::channel::Form;
use super::{find, query_pairs, refuse};
use crate::node::Node;

/// Protocols, the best first.
const PROTOCOLS: [&str; 4] = ["v4.channel.k8s.io", "portforward.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io"];
/// Ports in one request: each takes two channel numbers.
const PORTS_MAX: usize = 64;
/// Bytes in one frame.
const FRAME_LEN: usize = 32 * 1_024;
/// Frames that may wait, each way.
const FRAMES_MAX: usize = 16;
/// How long a connection inside the Pod may take; it is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn port_forward(
    State(node): State<Arc<Node>>,
    Path((namespace, pod)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let ports = match ports(&query.unwrap_or_default()) {
        Ok(ports) => ports,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, message),
    };
    let entry = match find(&node, &namespace, &pod) {
        Ok(entry) => entry,
        Err(refusal) => return refusal,
    };
    let Some(sandbox) = entry.sandbox else {
        return refuse(StatusCode::BAD_REQUEST, format!("pod \"{pod}\" has no network yet"));
    };
    let Ok(upgrade) = upgrade else {
        return refuse(StatusCode::BAD_REQUEST, "port-forward needs a websocket: the request is not an upgrade to one");
    };
    upgrade.protocols(PROTOCOLS).on_upgrade(move |socket| run(socket, ports, sandbox.network))
}

fn ports(query: &str) -> Result<Vec<u16>, String> {
    let named = query_pairs(query).into_iter().filter(|(name, _)| matches!(name.as_str(), "port" | "ports"));
    let texts: Vec<String> = named.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let parsed: Vec<u16> = texts
        .iter()
        .map(|text| {
            text.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("query parameter \"port\" has a bad value: \"{text}\""))
        })
        .collect::<Result<_, _>>()?;
    match parsed.len() {
        0 => Err("query parameter \"port\" is required".to_owned()),
        count if count > PORTS_MAX => Err(format!("at most {PORTS_MAX} ports can be forwarded at once")),
        _ => Ok(parsed),
    }
}

async fn run(socket: WebSocket, ports: Vec<u16>, namespace: Option<PathBuf>) {
    let form = Form::of(socket.protocol().and_then(|protocol| protocol.to_str().ok()));
    let (mut sink, mut from_client) = socket.split();
    let (frames, mut to_client) = mpsc::channel::<Message>(FRAMES_MAX);
    let mut inputs: HashMap<u8, mpsc::Sender<Bytes>> = HashMap::new();
    let mut tasks = JoinSet::new();
    for (index, port) in ports.into_iter().enumerate() {
        let Ok(data) = u8::try_from(index * 2) else { continue };
        let (input, bytes) = mpsc::channel(FRAMES_MAX);
        inputs.insert(data, input);
        tasks.spawn(forward(port, data, form, namespace.clone(), bytes, frames.clone()));
    }
    drop(frames);
    let receive = async {
        while let Some(Ok(message)) = from_client.next().await {
            if matches!(message, Message::Close(_)) {
                return;
            }
            let Some((channel, bytes)) = form.decode(message) else { continue };
            if let Some(input) = inputs.get(&channel)
                && input.send(bytes).await.is_err()
            {
                inputs.remove(&channel);
            }
        }
    };
    let send = async {
        while let Some(frame) = to_client.recv().await {
            if sink.send(frame).await.is_err() {
                return;
            }
        }
        if let Err(error) = sink.send(Message::Close(None)).await {
            tracing::debug!(%error, "port-forward client is gone");
        }
    };
    tokio::select! {
        () = receive => {}
        () = send => {}
    }
    tasks.shutdown().await;
}

/// One port: announced on both its channels, then connected and carried.
async fn forward(port: u16, data: u8, form: Form, namespace: Option<PathBuf>, mut input: mpsc::Receiver<Bytes>, to: mpsc::Sender<Message>) {
    let error_channel = data + 1;
    for channel in [data, error_channel] {
        if to.send(form.encode(channel, &port.to_le_bytes())).await.is_err() {
            return;
        }
    }
    let stream = match connect(namespace, port).await {
        Ok(stream) => stream,
        Err(error) => {
            let text = format!("failed to connect to localhost:{port} inside the pod's namespace: {error}");
            if to.send(form.encode(error_channel, text.as_bytes())).await.is_err() {
                tracing::debug!("port-forward client is gone");
            }
            return;
        }
    };
    let (mut from_pod, mut to_pod) = stream.into_split();
    let up = async {
        while let Some(bytes) = input.recv().await {
            if to_pod.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; FRAME_LEN];
        while let Ok(len @ 1..) = from_pod.read(&mut buffer).await {
            if to.send(form.encode(data, buffer.get(..len).unwrap_or_default())).await.is_err() {
                return;
            }
        }
    };
    // The Pod's side decides: when it has said all, the connection is over.
    tokio::select! {
        () = down => {}
        () = async { up.await; std::future::pending::<()>().await } => {}
    }
}

/// Connects to the Pod's own loopback. A thread enters the namespace, makes the connection and ends:
/// a thread that has been elsewhere must not serve anything else.
async fn connect(namespace: Option<PathBuf>, port: u16) -> io::Result<TcpStream> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("port-forward".to_owned()).spawn(move || {
        if sender.send(connect_in(namespace, port)).is_err() {
            tracing::debug!("port-forward client left while connecting");
        }
    })?;
    let stream = receiver.await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

fn connect_in(namespace: Option<PathBuf>, port: u16) -> io::Result<std::net::TcpStream> {
    if let Some(path) = namespace {
        let file = std::fs::File::open(path)?;
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET)?;
    }
    let dial = |ip: IpAddr| std::net::TcpStream::connect_timeout(&SocketAddr::new(ip, port), CONNECT_TIMEOUT);
    let first = dial(Ipv4Addr::LOCALHOST.into());
    first.or_else(|error| dial(Ipv6Addr::LOCALHOST.into()).map_err(|_| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_checked() {
        assert_eq!(ports("port=80&port=81"), Ok(vec![80, 81]));
        assert_eq!(ports("ports=80,81"), Ok(vec![80, 81]));
        for bad in ["", "port=0", "port=x", "port=70000"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
