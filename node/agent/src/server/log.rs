//! `GET /containerLogs/{namespace}/{pod}/{container}`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodStatus;
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{find, refuse};
use crate::container;
use crate::layout::PodName;
use crate::logs::read::{Options, send};
use crate::node::{Entry, Instance, Node};

/// Chunks that may wait for a slow reader.
const CHUNKS_MAX: usize = 16;

/// The query, as the API server passes `PodLogOptions` on.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LogOptions {
    follow: Option<bool>,
    previous: Option<bool>,
    tail_lines: Option<u64>,
    limit_bytes: Option<u64>,
    since_seconds: Option<i64>,
    since_time: Option<String>,
    timestamps: Option<bool>,
    stream: Option<String>,
}

pub(super) async fn logs(
    State(node): State<Arc<Node>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(query): Query<LogOptions>,
) -> Response {
    match open(&node, &namespace, &pod, &container, &query).await {
        Ok(body) => ([(header::CONTENT_TYPE, "text/plain")], body).into_response(),
        Err(refusal) => refusal,
    }
}

async fn open(node: &Node, namespace: &str, pod: &str, container: &str, query: &LogOptions) -> Result<Body, Response> {
    let options = options(query).map_err(|error| refuse(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    let entry = find(node, namespace, pod)?;
    let bad = |message: String| refuse(StatusCode::BAD_REQUEST, message);
    let Some(instance) = entry.containers.get(container) else {
        // The container is in the Pod's spec, but has not started yet.
        let why = if has(&entry, container) {
            waiting(&entry, container, pod)
        } else {
            format!("container \"{container}\" in pod \"{pod}\" not found")
        };
        return Err(bad(why));
    };
    let names = PodName::of(&entry.pod);
    let attempt = match (query.previous.unwrap_or(false), instance.attempt) {
        (false, attempt) => attempt,
        (true, 0) => return Err(bad(format!("previous terminated container \"{container}\" in pod \"{pod}\" not found"))),
        (true, attempt) => attempt - 1,
    };
    let path = node.layout.log(&names, container, attempt);
    if !tokio::fs::try_exists(&path).await.unwrap_or(false) {
        return Err(bad(waiting(&entry, container, pod)));
    }
    let previous = attempt != instance.attempt;
    let (sender, chunks) = mpsc::channel(CHUNKS_MAX);
    api_tasks::request("node-agent/logs", send(path, options, ended(node, instance, previous), sender));
    Ok(Body::from_stream(ReceiverStream::new(chunks)))
}

/// Why a query is invalid.
#[derive(Debug, Error)]
enum OptionError {
    #[error("invalid sinceTime: {0}")]
    SinceTime(jiff::Error),
    #[error("invalid stream: {0}")]
    Stream(String),
}

fn options(query: &LogOptions) -> Result<Options, OptionError> {
    let since = match (&query.since_time, query.since_seconds) {
        (Some(time), _) => Some(time.parse::<Timestamp>().map_err(OptionError::SinceTime)?),
        (None, Some(seconds)) => api_clock::now().checked_sub(SignedDuration::from_secs(seconds)).ok(),
        (None, None) => None,
    };
    let stream = match query.stream.as_deref() {
        None | Some("" | "All") => None,
        Some("Stdout") => Some("stdout".to_owned()),
        Some("Stderr") => Some("stderr".to_owned()),
        Some(other) => return Err(OptionError::Stream(other.to_owned())),
    };
    Ok(Options {
        follow: query.follow.unwrap_or(false),
        tail_lines: query.tail_lines,
        limit_bytes: query.limit_bytes,
        timestamps: query.timestamps.unwrap_or(false),
        since,
        stream,
    })
}

/// Resolves when the instance writes no more.
fn ended(node: &Node, instance: &Instance, previous: bool) -> BoxFuture<'static, ()> {
    let running = instance.running.clone().filter(|_| !previous);
    let found = running.and_then(|(id, handler)| Some((id, node.parts.by_handler(&handler)?.clone())));
    let Some((id, runtime)) = found else { return async {}.boxed() };
    async move {
        if let Err(error) = runtime.wait(&id).await {
            tracing::debug!(container = %id, %error, "end of a followed container not seen");
        }
    }
    .boxed()
}

/// Whether the Pod has a container of that name.
fn has(entry: &Entry, container: &str) -> bool {
    container::find_any(&entry.pod, container).is_some()
}

/// Upstream's word for a container that has no log yet (`validateContainerLogStatus`).
fn waiting(entry: &Entry, container: &str, pod: &str) -> String {
    let PodStatus { container_statuses: main, init_container_statuses: init, ephemeral_container_statuses: ephemeral, .. } = &*entry.status;
    let state = [main, init, ephemeral]
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container)
        .and_then(|status| status.state.clone());
    match state.and_then(|state| state.waiting) {
        Some(waiting) => {
            let reason = waiting.reason.unwrap_or_default();
            let why = match reason.as_str() {
                "ErrImagePull" => "image can't be pulled".to_owned(),
                "ImagePullBackOff" => "trying and failing to pull image".to_owned(),
                _ => reason,
            };
            format!("container \"{container}\" in pod \"{pod}\" is waiting to start: {why}")
        }
        None => format!("container \"{container}\" in pod \"{pod}\" is not available"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resize::Allocation;

    #[test]
    fn a_container_without_a_log_waits_in_upstreams_words() {
        let say = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "more"}});
            let status = json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]});
            let entry = Entry {
                status: Arc::new(serde_json::from_value(status).expect("a status")),
                ..Entry::taken(&Arc::default(), &Allocation::default(), false)
            };
            let text = waiting(&entry, "c", "p");
            text.strip_prefix("container \"c\" in pod \"p\" is waiting to start: ").expect("the same words").to_owned()
        };
        for (reason, wanted) in [
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
            ("ErrImageNeverPull", "ErrImageNeverPull"),
            ("InvalidImageName", "InvalidImageName"),
            ("ContainerCreating", "ContainerCreating"),
        ] {
            assert_eq!(say(reason), wanted);
        }
    }
}
