//! The requests that have a node remove the directory of a volume, or give it a larger capacity. The node may be in the hands of an
//! attacker: it may not answer, or answer slowly, without end or with any text. So a request has a time limit, and of the answer the status
//! counts.

use std::time::Duration;

use api_client::error::chain;
use api_model::local_path::DIRECTORIES;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;

use crate::meta;

/// The node itself answers within 20 s, also when it has not finished.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The bytes of an answer that are read: enough for a `Status` with a message.
const ANSWER_LEN_MAX: usize = 4_096;
/// The characters of an answer that an event repeats.
const WORDS_LEN_MAX: usize = 1_024;

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node has done it.
    Done,
    /// The node is not ready; for an event: why. Nothing was requested.
    Away(String),
    /// It may be undone; for an event: why.
    Failed(String),
}

/// Has the node remove the directory of the volume.
pub async fn remove(client: &kube::Client, node: &str, volume: &PersistentVolume) -> Outcome {
    request(client, node, http::Request::delete(path(node, volume)).body(Body::empty())).await
}

/// Has the node give the directory of the volume the capacity that the volume has.
pub async fn grow(client: &kube::Client, node: &str, volume: &PersistentVolume) -> Outcome {
    let body = Body::from(json!(volume).to_string().into_bytes());
    request(client, node, http::Request::put(path(node, volume)).header(CONTENT_TYPE, "application/json").body(body)).await
}

fn path(node: &str, volume: &PersistentVolume) -> String {
    format!("/api/v1/nodes/{node}/proxy/{DIRECTORIES}/{}", meta::name(&volume.metadata))
}

async fn request(client: &kube::Client, node: &str, request: http::Result<http::Request<Body>>) -> Outcome {
    match timeout(ANSWER_MAX, answer(client, node, request)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::Failed(chain(&error)),
        Err(_) => Outcome::Failed(format!("node {node:?} did not answer within {} s", ANSWER_MAX.as_secs())),
    }
}

async fn answer(client: &kube::Client, node: &str, request: http::Result<http::Request<Body>>) -> kube::Result<Outcome> {
    let request = request.map_err(kube::core::request::Error::BuildRequest).map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request).await?;
    let status = answer.status();
    if status.is_success() {
        return Ok(Outcome::Done);
    }
    let words = words(&beginning(answer.into_body()).await);
    Ok(Outcome::Failed(if words.is_empty() { format!("node {node:?} answered {status}") } else { words }))
}

/// The first bytes of a body; less when it is interrupted.
async fn beginning(mut body: Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_LEN_MAX {
        let Some(Ok(frame)) = body.frame().await else { break };
        let Ok(data) = frame.into_data() else { break };
        bytes.extend_from_slice(data.get(..ANSWER_LEN_MAX - bytes.len()).unwrap_or(data.as_ref()));
    }
    bytes
}

/// The message of a `Status`, or else the text.
fn words(answer: &[u8]) -> String {
    let message = serde_json::from_slice::<Status>(answer).ok().and_then(|status| status.message);
    let text = message.unwrap_or_else(|| String::from_utf8_lossy(answer).into_owned());
    text.trim().chars().take(WORDS_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream::{self, StreamExt as _};
    use http::{Request, Response, StatusCode};
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use serde_json::from_value;

    use super::*;

    /// The pieces of a body, and how many of them were taken. After the last one it stays silent.
    #[derive(Clone)]
    struct Node {
        status: StatusCode,
        piece: Bytes,
        pieces: usize,
        taken: Arc<AtomicUsize>,
    }

    fn node(status: StatusCode, piece: impl Into<Bytes>, pieces: usize) -> Node {
        Node { status, piece: piece.into(), pieces, taken: Arc::default() }
    }

    async fn removal(node: &Node) -> Outcome {
        let node = node.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!((request.method().as_str(), request.uri().path()), ("DELETE", "/api/v1/nodes/n1/proxy/localVolumes/pvc-0a"));
            let node = node.clone();
            async move {
                let taken = Arc::clone(&node.taken);
                let pieces = stream::iter(std::iter::repeat_n(node.piece, node.pieces)).map(move |piece| {
                    taken.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Infallible>(Frame::data(piece))
                });
                Ok::<_, Infallible>(
                    Response::builder().status(node.status).body(StreamBody::new(pieces.chain(stream::pending()))).expect("it"),
                )
            }
        });
        let volume = from_value(json!({"metadata": {"name": "pvc-0a"}})).expect("a volume");
        remove(&kube::Client::new(service, "default"), "n1", &volume).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_counts_and_the_words_go_into_an_event() {
        // The answer goes on without end.
        assert_eq!(removal(&node(StatusCode::OK, "x".repeat(1_000), usize::MAX)).await, Outcome::Done);
        let failed = |words: &str| Outcome::Failed(words.to_owned());
        let status = json!({"kind": "Status", "status": "Failure", "message": "nodes \"n1\" not found", "code": 404}).to_string();
        // The body has no end: what is read of it is enough.
        let padded = format!("{status}{}", " ".repeat(ANSWER_LEN_MAX));
        assert_eq!(removal(&node(StatusCode::NOT_FOUND, padded, 1)).await, failed("nodes \"n1\" not found"));
        assert_eq!(removal(&node(StatusCode::CONFLICT, " ".repeat(ANSWER_LEN_MAX), 1)).await, failed("node \"n1\" answered 409 Conflict"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_answer_is_left_after_its_beginning() {
        let endless = node(StatusCode::INTERNAL_SERVER_ERROR, "x".repeat(1_000), 10_000);
        assert_eq!(removal(&endless).await, Outcome::Failed("x".repeat(WORDS_LEN_MAX)));
        assert_eq!(endless.taken.load(Ordering::SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_has_half_a_minute() {
        let began = tokio::time::Instant::now();
        let silent = node(StatusCode::INTERNAL_SERVER_ERROR, "slow", 1);
        assert_eq!(removal(&silent).await, Outcome::Failed("node \"n1\" did not answer within 30 s".to_owned()));
        assert_eq!(began.elapsed(), ANSWER_MAX);
    }
}
