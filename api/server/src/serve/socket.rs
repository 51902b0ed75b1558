//! Answers as messages of a websocket, for clients (mainly browsers) that cannot read a long answer piece by piece. A
//! watch sends one event in a message, a log sends its bytes as they come. The subprotocol decides the form of the
//! messages.

use std::sync::Arc;

use api_tasks::ConnectionSlot;
use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http::{Response, header};

use crate::audit::{self, Trail};
use api_wire::protobuf;

/// Messages are bytes.
const BINARY: &str = "binary.k8s.io";
/// Messages are text in base64.
const BASE64: &str = "base64.binary.k8s.io";

/// Maximum length of a client's message. The server ignores all messages except a close.
const HEARD_BYTES_MAX: usize = 4 * 1024;

/// A client's request for its answer in messages.
pub(crate) struct Socket {
    upgrade: WebSocketUpgrade,
    form: Form,
    /// The slot of the connection.
    slot: Option<Arc<ConnectionSlot>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One line of text in a message: the default for a watch.
    Lines,
    Binary,
    Base64,
    /// One event in protobuf in a message, without the length that precedes it in a stream.
    Events,
}

impl Socket {
    /// The websocket request, if this is one. Call it before the headers are taken.
    pub(crate) async fn wanted(parts: &mut Parts, is_watch: bool) -> Option<Self> {
        let upgrade = WebSocketUpgrade::from_request_parts(parts, &()).await.ok()?.protocols([BINARY, BASE64]);
        let upgrade = upgrade.max_message_size(HEARD_BYTES_MAX).max_frame_size(HEARD_BYTES_MAX);
        let protocol = upgrade.selected_protocol().and_then(|protocol| protocol.to_str().ok());
        let form = match protocol {
            Some(BASE64) => Form::Base64,
            None if is_watch => Form::Lines,
            _ => Form::Binary,
        };
        Some(Self { upgrade, form, slot: super::slot(parts) })
    }

    /// Sends the body of an answer in messages. An error stays a plain answer.
    pub(crate) fn carry(self, answer: Response<Body>, trail: Option<&Arc<Trail>>) -> Response<Body> {
        if !answer.status().is_success() {
            return answer;
        }
        let Self { upgrade, form, slot } = self;
        let is_protobuf = answer.headers().get(header::CONTENT_TYPE).is_some_and(|media| *media == protobuf::MEDIA_WATCH);
        let form = if is_protobuf { Form::Events } else { form };
        let end = audit::completion_of(trail);
        upgrade.on_upgrade(move |socket| async move {
            tokio::select! {
                () = send(socket, answer.into_body(), form) => {}
                () = super::lost(slot.as_deref()) => {}
            }
            drop(end);
        })
    }
}

/// Ends with the body, or when the client leaves.
async fn send(mut socket: WebSocket, body: Body, form: Form) {
    let mut chunks = body.into_data_stream();
    loop {
        tokio::select! {
            chunk = chunks.next() => {
                let Some(Ok(chunk)) = chunk else { break };
                for message in form.messages(&chunk) {
                    if socket.send(message).await.is_err() {
                        return;
                    }
                }
            }
            heard = socket.recv() => {
                if matches!(heard, None | Some(Err(_) | Ok(Message::Close(_)))) {
                    return;
                }
            }
        }
    }
    let closing = Message::Close(Some(CloseFrame { code: close_code::NORMAL, reason: "".into() }));
    if let Err(error) = socket.send(closing).await {
        tracing::debug!(%error, "the client is gone");
    }
}

impl Form {
    /// A chunk of a watch has only whole lines.
    fn messages(self, chunk: &Bytes) -> Vec<Message> {
        match self {
            Self::Events => protobuf::frames(chunk.clone()).into_iter().map(Message::Binary).collect(),
            Self::Binary => vec![Message::Binary(chunk.clone())],
            Self::Base64 => vec![Message::text(STANDARD.encode(chunk))],
            Self::Lines => {
                let lines = chunk.split_inclusive(|byte| *byte == b'\n');
                lines.map(|line| Message::text(String::from_utf8_lossy(line).into_owned())).collect()
            }
        }
    }
}
