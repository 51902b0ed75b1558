//! Carries a command's stdio to and from a client, for both `exec` and `attach`: the client's options, its input, and the
//! targets of output and end. The protocol is behind [`Out`] and [`Input`]: see `over_websocket` and `over_spdy`.

use std::io;
use std::time::Duration;

use axum::extract::ws::Message;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use node_spdy::Sending;
use runtimes_contract::{RuntimeError, TerminalSize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::channel::Form;
use super::upgrade::Upgrade;
use super::{over_spdy, over_websocket, refuse};
use crate::error::chain;

/// Bytes of output in one frame.
const FRAME_LEN: usize = 32 * 1_024;
/// How much of a client's input may wait for the command.
pub(super) const INPUTS_MAX: usize = 16;
/// How long a process may take to read the input of a client that has left.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The options. The API server writes `input=1`, clients of the node itself may write `stdin=true`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandOptions {
    pub(super) command: Vec<String>,
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl CommandOptions {
    pub(super) fn parse(query: &str) -> Self {
        let mut options = Self::default();
        for (name, value) in super::query_pairs(query) {
            let on = matches!(value.as_str(), "1" | "true");
            match name.as_str() {
                "command" => options.command.push(value),
                "input" | "stdin" => options.stdin |= on,
                "output" | "stdout" => options.stdout |= on,
                "error" | "stderr" => options.stderr |= on,
                "tty" => options.tty |= on,
                _ => {}
            }
        }
        // A terminal has one output.
        options.stderr &= !options.tty;
        options
    }

    /// Whether there is any stream.
    pub(super) fn check_streams(&self) -> Result<(), Refusal> {
        if self.stdin || self.stdout || self.stderr {
            return Ok(());
        }
        Err(Refusal { code: StatusCode::BAD_REQUEST, message: "you must specify at least 1 of stdin, stdout, stderr".to_owned() })
    }
}

/// Why nothing is run or attached to.
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn end(self) -> End {
        let reason = match self.code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::NOT_FOUND => "NotFound",
            _ => "InternalError",
        };
        End::Failed { reason, message: self.message }
    }
}

/// The client's input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    Stdin(Bytes),
    StdinEnd,
    Resize(TerminalSize),
}

/// The target of one output.
pub(super) enum Out {
    /// No target: the client did not request the output.
    None,
    Channel {
        channel: u8,
        form: Form,
        frames: mpsc::Sender<Message>,
    },
    Stream(Sending),
}

impl Out {
    /// False when the client is gone.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::None => true,
            Self::Channel { channel, form, frames } => frames.send(form.encode(*channel, bytes)).await.is_ok(),
            Self::Stream(sending) => sending.send(Bytes::copy_from_slice(bytes)).await.is_ok(),
        }
    }

    async fn finish(self) {
        if let Self::Stream(sending) = self
            && sending.finish().await.is_err()
        {
            tracing::debug!("the client is gone");
        }
    }
}

/// The client of one command.
pub(super) struct Client {
    /// Closed when the client is gone and all its input has been received.
    pub(super) input: mpsc::Receiver<Input>,
    /// Cancelled when the client is gone.
    pub(super) gone: CancellationToken,
    pub(super) stdout: Out,
    pub(super) stderr: Out,
    pub(super) error: Out,
    /// The end is a JSON Status (v4 and later), else a text.
    pub(super) with_status: bool,
}

/// The other end of the streams.
pub(super) struct Stdio {
    pub(super) stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(super) stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(super) resize: Option<mpsc::Sender<TerminalSize>>,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum End {
    Code(i32),
    Failed { reason: &'static str, message: String },
}

impl End {
    /// `doing` is upstream's word for the failed action.
    pub(super) fn from_result(result: Result<i32, RuntimeError>, doing: &str) -> Self {
        match result {
            Ok(code) => Self::Code(code),
            Err(error @ RuntimeError::Unsupported(_)) => Self::Failed { reason: "BadRequest", message: chain(&error) },
            Err(error) => Self::Failed { reason: "InternalError", message: format!("{doing}: {}", chain(&error)) },
        }
    }

    /// An output that could not be read must not look like an empty one.
    fn unread(error: io::Error) -> Self {
        Self::Failed { reason: "InternalError", message: format!("error reading the output: {}", chain(&error)) }
    }

    /// The text of the error channel; upstream's Status of exec. Older protocols send nothing after a success.
    fn text(&self, with_status: bool) -> String {
        let failure = |reason: &str, message: &str| json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason});
        match self {
            Self::Code(0) if with_status => json!({"metadata": {}, "status": "Success"}).to_string(),
            Self::Code(0) => String::new(),
            Self::Code(code) => {
                let message = format!("command terminated with non-zero exit code: command terminated with exit code {code}");
                if !with_status {
                    return message;
                }
                let mut status = failure("NonZeroExitCode", &message);
                if let Some(fields) = status.as_object_mut() {
                    let causes: Value = json!([{"reason": "ExitCode", "message": code.to_string()}]);
                    fields.insert("details".to_owned(), json!({"causes": causes}));
                }
                status.to_string()
            }
            Self::Failed { message, .. } if !with_status => message.clone(),
            Self::Failed { reason, message } => failure(reason, message).to_string(),
        }
    }
}

/// Upgrades and runs `work` with the client. The work reads the remaining input of a client that leaves: see [`Client::carry`].
///
/// A client that requests a websocket gets it even when the request is rejected, and gets the rejection on the error channel:
/// kubectl takes a rejected upgrade for an old server, tries another protocol and shows the wrong error. A SPDY client gets the
/// rejection as a response, as upstream.
pub(super) fn answer<F, Fut>(upgrade: Upgrade, options: Result<CommandOptions, Refusal>, work: F) -> Response
where
    F: FnOnce(Client, CommandOptions) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    match (upgrade, options) {
        (Upgrade::None, Ok(_)) => refuse(StatusCode::BAD_REQUEST, "Upgrade request required"),
        (Upgrade::None | Upgrade::Spdy(_), Err(refusal)) => refuse(refusal.code, refusal.message),
        (Upgrade::Spdy(upgrade), Ok(options)) => over_spdy::serve(upgrade, options, work),
        (Upgrade::WebSocket(upgrade), Ok(options)) => over_websocket::serve(*upgrade, options, work),
        (Upgrade::WebSocket(upgrade), Err(refusal)) => {
            over_websocket::serve(*upgrade, CommandOptions::default(), |client, _| client.end(refusal.end()))
        }
    }
}

impl Client {
    /// Ends when the client has left.
    pub(super) fn gone(&self) -> impl Future<Output = ()> {
        self.gone.cancelled()
    }

    /// The result of some work; `None` when the client has left before.
    pub(super) async fn while_there<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.gone.cancelled() => None,
        }
    }

    /// Carries stdio until all output is sent and `exit` returns. When the client leaves before, it delivers the client's input
    /// and the end of the input, and ends the session.
    pub(super) async fn carry(mut self, stdio: Stdio, exit: impl Future<Output = End>) {
        let Stdio { stdin, stdout, stderr, resize } = stdio;
        let end = {
            let output = async {
                let out = copy(&mut self.stdout, Some(stdout));
                let err = copy(&mut self.stderr, stderr);
                let (out, err, end) = tokio::join!(out, err, exit);
                out.and(err).map_or_else(End::unread, |()| end)
            };
            tokio::select! {
                end = output => end,
                () = feed(&mut self.input, stdin, resize) => return,
                () = too_late(&self.gone) => return tracing::debug!("a process did not read what a client had sent before it left"),
            }
        };
        self.end(end).await;
    }

    /// Sends the end, and marks it as the end.
    pub(super) async fn end(mut self, end: End) {
        let text = end.text(self.with_status);
        // The end of the stream means success, but old websocket clients wait for a frame.
        let is_heard = !text.is_empty() || matches!(self.error, Out::Channel { .. });
        if is_heard && !self.error.send(text.as_bytes()).await {
            tracing::debug!("the client is gone");
        }
        tokio::join!(self.stdout.finish(), self.stderr.finish(), self.error.finish());
    }
}

/// Passes the client's input on until the client is gone.
async fn feed(
    from: &mut mpsc::Receiver<Input>,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: Option<mpsc::Sender<TerminalSize>>,
) {
    while let Some(input) = from.recv().await {
        match input {
            Input::Stdin(bytes) => {
                let Some(open) = stdin.as_mut() else { continue };
                if open.write_all(&bytes).await.is_err() || open.flush().await.is_err() {
                    // The command does not read any more; its end is reported on its own.
                    stdin = None;
                }
            }
            Input::StdinEnd => stdin = None,
            Input::Resize(size) => {
                if let Some(resize) = &resize
                    && resize.send(size).await.is_err()
                {
                    tracing::debug!("terminal is gone");
                }
            }
        }
    }
}

/// Returns when a process has had time to read the input of a client that has left.
async fn too_late(gone: &CancellationToken) {
    gone.cancelled().await;
    tokio::time::sleep(DELIVERY_TIMEOUT).await;
}

/// Copies a stream to its target, to its end. A client that is gone is no error here.
async fn copy(to: &mut Out, from: Option<Box<dyn AsyncRead + Send + Unpin>>) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; FRAME_LEN];
    loop {
        let len = from.read(&mut buffer).await?;
        if len == 0 || !to.send(buffer.get(..len).unwrap_or_default()).await {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_query_are_read() {
        let wanted = CommandOptions {
            command: vec!["sh".to_owned(), "-c".to_owned(), "a b&c".to_owned()],
            stdin: true,
            stdout: true,
            stderr: false,
            tty: false,
        };
        assert_eq!(CommandOptions::parse("command=sh&command=-c&command=a+b%26c&input=1&output=1&tty=0"), wanted);
        assert_eq!(CommandOptions::parse("command=sh&command=-c&command=a%20b%26c&stdin=true&stdout=true"), wanted);
        assert!(!CommandOptions::parse("output=1&error=1&tty=1").stderr);
        assert!(CommandOptions::default().check_streams().is_err());
    }

    #[test]
    fn ends_read_like_upstreams() {
        assert_eq!(End::Code(0).text(true), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(End::Code(0).text(false), "");
        let status: Value = serde_json::from_str(&End::Code(7).text(true)).expect("JSON");
        assert_eq!(status["details"]["causes"][0], json!({"reason": "ExitCode", "message": "7"}));
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert!(End::Code(7).text(false).ends_with("exit code 7"));
        let refused = Refusal::new(StatusCode::NOT_FOUND, "no such container").end();
        let status: Value = serde_json::from_str(&refused.text(true)).expect("JSON");
        assert_eq!((&status["reason"], &status["message"]), (&json!("NotFound"), &json!("no such container")));
        assert_eq!(refused.text(false), "no such container");
    }
}
