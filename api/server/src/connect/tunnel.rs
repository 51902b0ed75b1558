//! An upgraded connection from the client to the node and back.

use std::time::Duration;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf};

use api_upstream::headers::{is_upgrade, pass_on_protocols};
use api_upstream::pass::Upgraded as Ends;

use super::Connector;
use super::node;
use super::target::Target;
use crate::audit;
use crate::call::Call;
use crate::core::Core;
use crate::serve;
use api_wire::status::{ApiError, ApiResult};

/// Headers of an upgrade that concern both ends, not a single hop.
const PASSED_ON: &[&str] = &[
    "connection",
    "upgrade",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "x-accepted-stream-protocol-versions",
    "x-stream-protocol-version",
];

/// How long a client may take to close the connection after the node has closed it.
const LINGER: Duration = Duration::from_secs(10);

/// Forwards the client's upgrade request to the node. If the node agrees, joins the two connections.
pub(super) async fn open(connector: &Connector, call: &Call, target: &Target, mut parts: Parts) -> ApiResult<Response<Body>> {
    if !is_upgrade(&call.headers) {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let Some(client) = parts.extensions.remove::<hyper::upgrade::OnUpgrade>() else {
        return Err(ApiError::bad_request("Upgrade request required: this connection cannot be upgraded"));
    };
    let mut request =
        Request::builder().method(parts.method.clone()).uri(&target.path).header(header::HOST, target.kubelet.address.authority());
    if let Some(headers) = request.headers_mut() {
        pass_on(&call.headers, headers);
    }
    let request = request.body(Body::empty()).map_err(ApiError::internal)?;
    let mut sender = node::connect(connector, target).await?;
    let mut answer = node::ask(&mut sender, target, request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(node::refused(target, answer).await);
    }
    let node = hyper::upgrade::on(&mut answer);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    pass_on(answer.headers(), response.headers_mut());
    join_beside(&call.core, Ends { client, backend: node }, &parts);
    Ok(response)
}

/// Joins two upgraded connections in a background task.
pub(crate) fn join_beside(core: &Core, Ends { client, backend }: Ends, parts: &Parts) {
    let (shutdown, end, slot) = (core.shutdown.clone(), audit::completion(parts), serve::slot(parts));
    core.tasks.request("api-server/tunnel", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = join(client, backend) => {}
            () = serve::lost(slot.as_deref()) => {}
        }
        drop(end);
    });
}

/// Copies the headers for the other end.
fn pass_on(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from.iter().filter(|(name, _)| PASSED_ON.contains(&name.as_str())) {
        to.append(HeaderName::clone(name), value.clone());
    }
    pass_on_protocols(from, to);
}

/// Copies in both directions. Each direction ends alone, so that the data of a client that leaves at once is not lost:
/// the node ends the tunnel after it has read that data.
async fn join(client: hyper::upgrade::OnUpgrade, node: hyper::upgrade::OnUpgrade) {
    let (client, node) = match tokio::try_join!(client, node) {
        Ok((client, node)) => (tokio::io::split(TokioIo::new(client)), tokio::io::split(TokioIo::new(node))),
        Err(error) => return tracing::debug!(%error, "a tunnel to a node was not opened"),
    };
    let mut to_node = std::pin::pin!(pour(client.0, node.1));
    let mut to_client = std::pin::pin!(pour(node.0, client.1));
    tokio::select! {
        () = &mut to_node => to_client.await,
        // The node has finished. The client's data is no longer needed, but the client may need time to read the rest.
        () = &mut to_client => drop(tokio::time::timeout(LINGER, to_node).await),
    }
}

/// Copies in one direction until the end, and passes the end on.
async fn pour(mut from: ReadHalf<TokioIo<Upgraded>>, mut to: WriteHalf<TokioIo<Upgraded>>) {
    let copied = tokio::io::copy(&mut from, &mut to).await;
    if let Err(error) = copied.and(to.shutdown().await) {
        tracing::debug!(%error, "one way of a tunnel to a node ended");
    }
}
