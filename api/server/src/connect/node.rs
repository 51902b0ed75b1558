//! A connection to a node's server: TLS with the cluster's authority on both sides.

use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio_rustls::TlsConnector;

use api_upstream::backend::{self, ConnectError, Tls};

use super::Connector;
use super::target::{Kubelet, Target};
use api_wire::status::ApiError;

/// Prefix of the subject of a node's certificate.
const NODE_USER_PREFIX: &str = "system:node:";
/// A node that accepts a request and does not answer within this time counts as unreachable. The body of an answer may
/// take any time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects to the node; both sides authenticate.
pub(super) async fn connect(connector: &Connector, target: &Target) -> Result<http1::SendRequest<Body>, ApiError> {
    dial(connector, &target.kubelet).await.map_err(|error| match error {
        ConnectError::NotAllowed => ApiError::bad_request(error.to_string()),
        error => ApiError::internal(format!("error dialing backend: {error}")),
    })
}

/// Connects to a node's server as the API server.
pub(super) async fn dial(connector: &Connector, kubelet: &Kubelet) -> Result<http1::SendRequest<Body>, ConnectError> {
    dial_as(connector, kubelet, &connector.node_tls.load_full()).await
}

/// Connects to a node's server, whose certificate must name that node, as the user of that certificate.
pub(super) async fn dial_as(
    connector: &Connector,
    kubelet: &Kubelet,
    tls: &TlsConnector,
) -> Result<http1::SendRequest<Body>, ConnectError> {
    let subject = format!("{NODE_USER_PREFIX}{}", kubelet.node);
    let limits = connector.proxyable().with_loopback(connector.core.config.nodes_on_loopback);
    let tls = Tls { connector: tls, name: &kubelet.address.host, subject: Some(&subject) };
    backend::connect(&connector.core.driver, &kubelet.address, &limits, Some(tls)).await
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn ask(
    sender: &mut http1::SendRequest<Body>,
    target: &Target,
    request: Request<Body>,
) -> Result<Response<Incoming>, ApiError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
        Ok(answered) => answered.map_err(|error| failed(target, &error)),
        Err(_) => Err(failed(target, &"timed out waiting for an answer")),
    }
}

/// The error when a connection to the node fails.
pub(super) fn failed(target: &Target, error: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal(format!("error dialing backend: {}: {error}", target.kubelet.address.authority()))
}

/// The node answered with an error; the client gets its text.
pub(super) async fn refused(target: &Target, answer: Response<Incoming>) -> ApiError {
    let status = answer.status();
    let reading = tokio::time::timeout(ANSWER_TIMEOUT, api_wire::body::read(Body::new(answer.into_body())));
    let body = match reading.await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return error,
        Err(_) => return failed(target, &"timed out waiting for an answer"),
    };
    let message = String::from_utf8_lossy(&body).trim().to_owned();
    match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(message),
        StatusCode::NOT_FOUND => ApiError::not_found_text(message),
        _ => ApiError::internal(message),
    }
}
