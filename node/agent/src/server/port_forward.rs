//! `/portForward/{namespace}/{pod}`: connections from the client to ports of a Pod, many over one upgraded request. Go's
//! clients use SPDY, plain or inside a websocket (`streams`), others use channels of a websocket (`channels`). Connections are
//! made inside the Pod's network namespace.

mod channels;
mod dial;
mod relay;
mod streams;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use node_spdy::{Limits, SpdyError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::socket_bytes::SocketBytes;
use super::upgrade::Upgrade;
use super::{find, refuse};
use crate::node::Node;

/// The protocol of the SPDY streams.
const STREAMS: &str = "portforward.k8s.io";
/// The same inside a websocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// The longest message in a tunnel: clients write pieces of 32 KiB.
const MESSAGE_LEN_MAX: usize = 1 << 20;
/// How long a Pod may take to read the input of a client that has left.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The Pod that ports are of.
#[derive(Clone, Debug)]
pub(super) struct Target {
    name: String,
    uid: String,
    /// `None` is the node's own.
    network: Option<PathBuf>,
}

pub(super) async fn port_forward(
    State(node): State<Arc<Node>>,
    Path((namespace, pod)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Upgrade,
) -> Response {
    let entry = match find(&node, &namespace, &pod) {
        Ok(entry) => entry,
        Err(refusal) => return refusal,
    };
    let Some(sandbox) = entry.sandbox.clone() else {
        return refuse(StatusCode::BAD_REQUEST, format!("pod \"{pod}\" has no network yet"));
    };
    let uid = entry.pod.metadata.uid.clone().unwrap_or_default();
    let target = Target { name: pod, uid, network: sandbox.network };
    match upgrade {
        Upgrade::None => refuse(StatusCode::BAD_REQUEST, "Upgrade request required"),
        Upgrade::Spdy(upgrade) => upgrade.accept(&[STREAMS], move |io, _| over_spdy(io, target)),
        Upgrade::WebSocket(upgrade) => over_websocket(*upgrade, &query.unwrap_or_default(), target),
    }
}

fn over_websocket(upgrade: WebSocketUpgrade, query: &str, target: Target) -> Response {
    let upgrade = upgrade.max_message_size(MESSAGE_LEN_MAX).protocols(std::iter::once(TUNNEL).chain(channels::PROTOCOLS));
    if upgrade.selected_protocol().is_some_and(|protocol| protocol == TUNNEL) {
        return upgrade.on_upgrade(move |socket| over_spdy(SocketBytes::new(socket), target));
    }
    match channels::ports(query) {
        Ok(ports) => upgrade.on_upgrade(move |socket| channels::run(socket, ports, target)),
        Err(error) => refuse(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

/// Serves SPDY until either side ends. The input of a client that has left is still delivered to the Pod.
async fn over_spdy<T: AsyncRead + AsyncWrite + Send + 'static>(io: T, target: Target) {
    let (connection, drive) = node_spdy::serve(io, Limits::default());
    let (ended, ()) = tokio::join!(drive, streams::serve(connection, target));
    match ended {
        Ok(()) => {}
        Err(SpdyError::Idle) => tracing::info!("a forward was idle for too long"),
        Err(error) => tracing::debug!(error = crate::error::chain(&error), "a forward ended"),
    }
}

/// Waits for the connections of a client that has left: its input is delivered within [`DELIVERY_TIMEOUT`].
async fn deliver(mut forwards: JoinSet<()>) {
    let all = async { while forwards.join_next().await.is_some() {} };
    if timeout(DELIVERY_TIMEOUT, all).await.is_err() {
        tracing::debug!("a Pod did not read what a client had sent before it left");
    }
}
