//! `/exec/{namespace}/{pod}/{container}` over a websocket: the command's stdio on channels, its exit
//! code as a Status on the error channel.

use std::sync::Arc;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures::stream::SplitStream;
use futures::{SinkExt as _, StreamExt as _};
use runtimes_contract::{ExecSession, ExecSpec, RuntimeError, TerminalSize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::channel::{CLOSE, ERROR, Form, PROTOCOLS, RESIZE, STDERR, STDIN, STDOUT};
use super::refuse;
use crate::error::chain;
use crate::node::Node;

/// Bytes of output in one frame.
const FRAME_LEN: usize = 32 * 1_024;
/// Frames that may wait for a slow client.
const FRAMES_MAX: usize = 16;
/// Longest frame taken from a client.
const MESSAGE_LEN_MAX: usize = 1 << 20;

/// What is asked for. The API server writes `input=1`, clients of the node itself may write `stdin=true`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    command: Vec<String>,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Asked {
    fn parse(query: &str) -> Self {
        let mut asked = Self::default();
        for (name, value) in super::query_pairs(query) {
            let on = matches!(value.as_str(), "1" | "true");
            match name.as_str() {
                "command" => asked.command.push(value),
                "input" | "stdin" => asked.stdin |= on,
                "output" | "stdout" => asked.stdout |= on,
                "error" | "stderr" => asked.stderr |= on,
                "tty" => asked.tty |= on,
                _ => {}
            }
        }
        asked
    }
}

pub(super) async fn exec(
    State(node): State<Arc<Node>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let asked = Asked::parse(&query.unwrap_or_default());
    if asked.command.is_empty() {
        return fail(upgrade, StatusCode::BAD_REQUEST, "you must specify at least 1 command".to_owned());
    }
    if !(asked.stdin || asked.stdout || asked.stderr) {
        return fail(upgrade, StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr".to_owned());
    }
    let Some(entry) = node.directory.find(&namespace, &pod) else {
        return fail(upgrade, StatusCode::NOT_FOUND, format!("pod \"{namespace}/{pod}\" not found"));
    };
    let Some((id, handler)) = entry.containers.get(&container).and_then(|instance| instance.running.clone()) else {
        return fail(upgrade, StatusCode::NOT_FOUND, format!("container not found (\"{container}\")"));
    };
    let Some(runtime) = node.parts.by_handler(&handler).cloned() else {
        return fail(upgrade, StatusCode::INTERNAL_SERVER_ERROR, format!("no runtime for \"{handler}\" is configured"));
    };
    let Ok(upgrade) = upgrade else {
        return refuse(StatusCode::BAD_REQUEST, "exec needs a websocket: the request is not an upgrade to one");
    };
    let spec = ExecSpec { args: asked.command.clone(), stdin: asked.stdin, tty: asked.tty };
    match runtime.exec(&id, spec).await {
        Ok(session) => upgrade.max_message_size(MESSAGE_LEN_MAX).protocols(PROTOCOLS).on_upgrade(move |socket| run(socket, session, asked)),
        Err(error @ RuntimeError::Unsupported(_)) => fail(Ok(upgrade), StatusCode::BAD_REQUEST, chain(&error)),
        Err(error) => {
            let message = format!("error executing command in container: {}", chain(&error));
            fail(Ok(upgrade), StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

/// `/attach/{namespace}/{pod}/{container}`: containers here have no terminal that a second client could join.
pub(super) async fn attach(
    Path((_, pod, container)): Path<(String, String, String)>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let message = format!("attach is not supported: container {container} of pod {pod} keeps no stdin or terminal; use logs or exec");
    fail(upgrade, StatusCode::NOT_IMPLEMENTED, message)
}

/// Says why nothing runs. A client that wants a websocket gets one and hears of it on the error
/// channel: kubectl takes a refused upgrade for an old server, tries another protocol and shows the
/// wrong complaint.
fn fail(upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>, code: StatusCode, message: String) -> Response {
    let Ok(upgrade) = upgrade else { return refuse(code, message) };
    upgrade.protocols(PROTOCOLS).on_upgrade(move |mut socket| async move {
        let form = form(&socket);
        let end = if form.status { failure(reason(code), &message).to_string() } else { message };
        let sent = async {
            socket.send(form.encode(ERROR, end.as_bytes())).await?;
            socket.send(closing()).await
        };
        if let Err(error) = sent.await {
            tracing::debug!(%error, "the client is gone");
        }
    })
}

/// The Status reason that goes with an HTTP status.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::NOT_IMPLEMENTED => "MethodNotAllowed",
        _ => "InternalError",
    }
}

fn form(socket: &WebSocket) -> Form {
    Form::of(socket.protocol().and_then(|protocol| protocol.to_str().ok()))
}

/// Carries frames until the command has ended and all it wrote is sent. A client that leaves takes
/// the command with it.
async fn run(socket: WebSocket, session: ExecSession, asked: Asked) {
    let form = form(&socket);
    let (mut sink, from_client) = socket.split();
    let (frames, mut to_client) = mpsc::channel::<Message>(FRAMES_MAX);
    let ExecSession { stdin, stdout, stderr, resize, exit } = session;
    let output = async {
        let out = copy(asked.stdout.then_some(STDOUT), form, Some(stdout), frames.clone());
        let err = copy(asked.stderr.then_some(STDERR), form, stderr, frames.clone());
        let (_, _, code) = tokio::join!(out, err, exit);
        let end = end(form, code);
        if frames.send(form.encode(ERROR, end.as_bytes())).await.is_err() {
            tracing::debug!("exec client is gone");
        }
        drop(frames);
    };
    let input = take(from_client, form, stdin, resize);
    let send = async {
        while let Some(frame) = to_client.recv().await {
            if sink.send(frame).await.is_err() {
                return;
            }
        }
        if let Err(error) = sink.send(closing()).await {
            tracing::debug!(%error, "exec client is gone");
        }
    };
    let (mut output, mut send, mut input) = (std::pin::pin!(output), std::pin::pin!(send), std::pin::pin!(input));
    let mut ended = false;
    loop {
        tokio::select! {
            () = &mut output, if !ended => ended = true,
            () = &mut send => return,
            () = &mut input, if !ended => return,
        }
    }
}

/// The normal end: a client takes anything else for a broken stream.
fn closing() -> Message {
    Message::Close(Some(CloseFrame { code: close_code::NORMAL, reason: "".into() }))
}

/// Reads what the client sends until it leaves.
async fn take(
    mut from: SplitStream<WebSocket>,
    form: Form,
    mut stdin: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    resize: Option<mpsc::Sender<TerminalSize>>,
) {
    while let Some(Ok(message)) = from.next().await {
        if matches!(message, Message::Close(_)) {
            return;
        }
        let Some((channel, bytes)) = form.decode(message) else { continue };
        match channel {
            STDIN => {
                let Some(open) = stdin.as_mut() else { continue };
                if open.write_all(&bytes).await.is_err() || open.flush().await.is_err() {
                    // The command does not read any more; its end is reported on its own.
                    stdin = None;
                }
            }
            CLOSE if bytes.first() == Some(&STDIN) => stdin = None,
            RESIZE => {
                if let (Some(resize), Ok(size)) = (&resize, serde_json::from_slice(&bytes))
                    && resize.send(size).await.is_err()
                {
                    tracing::debug!("terminal is gone");
                }
            }
            _ => {}
        }
    }
}

/// Carries a stream to a channel, or to nowhere when the client did not ask for it.
async fn copy(channel: Option<u8>, form: Form, from: Option<Box<dyn AsyncRead + Send + Unpin>>, to: mpsc::Sender<Message>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; FRAME_LEN];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..len).unwrap_or_default();
        if let Some(channel) = channel
            && to.send(form.encode(channel, bytes)).await.is_err()
        {
            return;
        }
    }
}

/// What the error channel says at the end; upstream's Status of exec.
fn end(form: Form, code: Result<i32, RuntimeError>) -> String {
    match code {
        Ok(0) if form.status => json!({"metadata": {}, "status": "Success"}).to_string(),
        Ok(0) => String::new(),
        Ok(code) => {
            let message = format!("command terminated with non-zero exit code: command terminated with exit code {code}");
            if !form.status {
                return message;
            }
            let mut status = failure("NonZeroExitCode", &message);
            if let Some(fields) = status.as_object_mut() {
                fields.insert("details".to_owned(), json!({"causes": [{"reason": "ExitCode", "message": code.to_string()}]}));
            }
            status.to_string()
        }
        Err(error) => {
            let message = format!("error executing command in container: {}", chain(&error));
            if form.status { failure("InternalError", &message).to_string() } else { message }
        }
    }
}

fn failure(reason: &str, message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_query_are_read() {
        let wanted = Asked {
            command: vec!["sh".to_owned(), "-c".to_owned(), "a b&c".to_owned()],
            stdin: true,
            stdout: true,
            stderr: false,
            tty: false,
        };
        assert_eq!(Asked::parse("command=sh&command=-c&command=a+b%26c&input=1&output=1&tty=0"), wanted);
        assert_eq!(Asked::parse("command=sh&command=-c&command=a%20b%26c&stdin=true&stdout=true"), wanted);
    }

    #[test]
    fn ends_read_like_upstreams() {
        let (new, old) = (Form::of(Some("v4.channel.k8s.io")), Form::of(None));
        assert_eq!(end(new, Ok(0)), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(end(old, Ok(0)), "");
        let status: Value = serde_json::from_str(&end(new, Ok(7))).expect("JSON");
        assert_eq!(status["details"]["causes"][0], json!({"reason": "ExitCode", "message": "7"}));
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert!(end(old, Ok(7)).ends_with("exit code 7"));
    }
}
