//! The client of a command over a `channel.k8s.io` websocket: stdio on channels, the end as a Status on
//! the error channel.

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;

use super::channel::{CLOSE, ERROR, Form, PROTOCOLS, RESIZE, STDERR, STDIN, STDOUT, closing};
use super::command::{Asked, Client, INPUTS_MAX, Input, Out};

/// Frames that may wait for a slow client.
const FRAMES_MAX: usize = 16;
/// Longest frame taken from a client.
const MESSAGE_LEN_MAX: usize = 1 << 20;

/// Upgrades and has the work done with the client, until it is done or the client leaves.
pub(super) fn serve<F, Fut>(upgrade: WebSocketUpgrade, asked: Asked, work: F) -> Response
where
    F: FnOnce(Client, Asked) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    upgrade.max_message_size(MESSAGE_LEN_MAX).protocols(PROTOCOLS).on_upgrade(move |socket| async move {
        let form = Form::of(socket.protocol().and_then(|protocol| protocol.to_str().ok()));
        let (frames, to_client) = mpsc::channel(FRAMES_MAX);
        let (inputs, input) = mpsc::channel(INPUTS_MAX);
        let out = |channel, wanted| if wanted { Out::Channel { channel, form, frames: frames.clone() } } else { Out::None };
        let (stdout, stderr, error) = (out(STDOUT, asked.stdout), out(STDERR, asked.stderr), out(ERROR, true));
        drop(frames);
        let client = Client { input, stdout, stderr, error, with_status: form.status };
        let mut work = std::pin::pin!(work(client, asked));
        let mut carry = std::pin::pin!(carry(socket, form, inputs, to_client));
        let mut working = true;
        loop {
            tokio::select! {
                () = &mut work, if working => working = false,
                () = &mut carry => return,
            }
        }
    })
}

/// Ends when all frames are sent, or when the client leaves.
async fn carry(socket: WebSocket, form: Form, inputs: mpsc::Sender<Input>, frames: mpsc::Receiver<Message>) {
    let (sink, from_client) = socket.split();
    tokio::select! {
        () = send(sink, frames) => {}
        () = receive(from_client, form, inputs) => {}
    }
}

async fn send(mut sink: SplitSink<WebSocket, Message>, mut frames: mpsc::Receiver<Message>) {
    while let Some(frame) = frames.recv().await {
        if sink.send(frame).await.is_err() {
            return;
        }
    }
    if let Err(error) = sink.send(closing()).await {
        tracing::debug!(%error, "the client is gone");
    }
}

/// Reads what the client sends until it leaves.
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
            // The work is done; what is still said is not heard.
            tracing::trace!("input after the end");
        }
    }
}
