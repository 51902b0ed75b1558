//! The client of a command over a `channel.k8s.io` websocket: stdio on channels, the end as a Status on
//! the error channel.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::channel::{CLOSE, ERROR, Form, PROTOCOLS, RESIZE, STDERR, STDIN, STDOUT, closing};
use super::command::{Client, CommandOptions, INPUTS_MAX, Input, Out};

/// Frames that may wait for a slow client.
const FRAMES_MAX: usize = 16;
/// The longest frame that is accepted from a client.
const MESSAGE_LEN_MAX: usize = 1 << 20;
/// How long the client may take to hang up after the end.
const LINGER: Duration = Duration::from_secs(5);

/// Upgrades and has the work done with the client.
pub(super) fn serve<F, Fut>(upgrade: WebSocketUpgrade, options: CommandOptions, work: F) -> Response
where
    F: FnOnce(Client, CommandOptions) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    upgrade.max_message_size(MESSAGE_LEN_MAX).protocols(PROTOCOLS).on_upgrade(move |socket| async move {
        let form = Form::for_protocol(socket.protocol().and_then(|protocol| protocol.to_str().ok()));
        let (frames, to_client) = mpsc::channel(FRAMES_MAX);
        let (inputs, input) = mpsc::channel(INPUTS_MAX);
        let out = |channel, wanted| if wanted { Out::Channel { channel, form, frames: frames.clone() } } else { Out::None };
        let (stdout, stderr, error) = (out(STDOUT, options.stdout), out(STDERR, options.stderr), out(ERROR, true));
        drop(frames);
        let gone = CancellationToken::new();
        let client = Client { input, gone: gone.clone(), stdout, stderr, error, with_status: form.status };
        let carry = async {
            carry(socket, form, inputs, to_client, &gone).await;
            gone.cancel();
        };
        tokio::join!(work(client, options), carry);
    })
}

/// Ends when all frames are sent, or when the client has left and all its input has been received. `gone` is cancelled when a
/// frame does not reach the client any more: a process that does not read its input would otherwise delay the end.
async fn carry(socket: WebSocket, form: Form, inputs: mpsc::Sender<Input>, frames: mpsc::Receiver<Message>, gone: &CancellationToken) {
    let (sink, from_client) = socket.split();
    let mut received = std::pin::pin!(receive(from_client, form, inputs));
    let sent = tokio::select! {
        sent = send(sink, frames) => sent,
        () = &mut received => return,
    };
    match sent {
        // Closing at once could lose what the client has not read yet.
        Ok(()) => drop(timeout(LINGER, received).await),
        // The input that the client sent before it left still counts.
        Err(error) => {
            tracing::debug!(%error, "the client is gone");
            gone.cancel();
            received.await;
        }
    }
}

/// Sends all frames, and then the end.
async fn send(mut sink: SplitSink<WebSocket, Message>, mut frames: mpsc::Receiver<Message>) -> Result<(), axum::Error> {
    while let Some(frame) = frames.recv().await {
        sink.send(frame).await?;
    }
    sink.send(closing()).await
}

/// Reads the client's input until it leaves.
async fn receive(mut from: SplitStream<WebSocket>, form: Form, inputs: mpsc::Sender<Input>) {
    while let Some(Ok(message)) = from.next().await {
        if matches!(message, Message::Close(_)) {
            return;
        }
        let Some((channel, bytes)) = form.decode(message) else { continue };
        let input = match channel {
            STDIN => Input::Stdin(bytes),
            CLOSE if bytes.first() == Some(&STDIN) => Input::StdinEnd,
            RESIZE => match serde_json::from_slice(&bytes) {
                Ok(size) => Input::Resize(size),
                Err(_) => continue,
            },
            _ => continue,
        };
        if inputs.send(input).await.is_err() {
            // The work is done; further input is ignored.
            tracing::trace!("input after the end");
        }
    }
}
