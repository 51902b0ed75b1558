//! Ports over a websocket (`v4.channel.k8s.io`): each port has a data and an error channel, and the first frame of each channel
//! is the port in two bytes. There is one connection for each port.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::dial::dial;
use super::relay::{FromPod, carry};
use super::{Target, deliver};
use crate::server::channel::{Form, closing};
use crate::server::query_pairs;

/// Protocols, the best first.
pub(super) const PROTOCOLS: [&str; 4] = ["v4.channel.k8s.io", "portforward.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io"];
/// Ports in one request: each takes two channel numbers.
const PORTS_MAX: usize = 64;
/// Frames that may wait, each way.
const FRAMES_MAX: usize = 16;
/// How long nothing may happen; upstream's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 3_600);

/// Why a query's ports cannot be forwarded.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum PortsError {
    #[error("query parameter \"port\" has a bad value: \"{0}\"")]
    Bad(String),
    #[error("query parameter \"port\" is required")]
    None,
    #[error("at most {PORTS_MAX} ports can be forwarded at once")]
    TooMany,
}

/// The ports that a query names.
pub(super) fn ports(query: &str) -> Result<Vec<u16>, PortsError> {
    let named = query_pairs(query).into_iter().filter(|(name, _)| matches!(name.as_str(), "port" | "ports"));
    let texts: Vec<String> = named.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let parsed: Vec<u16> = texts
        .iter()
        .map(|text| text.parse().ok().filter(|port| *port > 0).ok_or_else(|| PortsError::Bad(text.clone())))
        .collect::<Result<_, _>>()?;
    match parsed.len() {
        0 => Err(PortsError::None),
        count if count > PORTS_MAX => Err(PortsError::TooMany),
        _ => Ok(parsed),
    }
}

pub(super) async fn run(socket: WebSocket, ports: Vec<u16>, target: Target) {
    let form = Form::for_protocol(socket.protocol().and_then(|protocol| protocol.to_str().ok()));
    let (sink, from_client) = socket.split();
    let (frames, to_client) = mpsc::channel::<Message>(FRAMES_MAX);
    let mut inputs: Inputs = HashMap::new();
    let mut tasks = JoinSet::new();
    for (index, port) in ports.into_iter().enumerate() {
        let Ok(data) = u8::try_from(index * 2) else { continue };
        let (input, bytes) = mpsc::channel(FRAMES_MAX);
        inputs.insert(data, input);
        tasks.spawn(forward(port, data, form, target.clone(), bytes, frames.clone()));
    }
    drop(frames);
    let active = watch::Sender::new(());
    tokio::select! {
        () = exchange(receive(from_client, form, inputs, &active), send(sink, to_client, &active)) => {}
        () = idle(active.subscribe()) => tracing::info!("a forward was idle for too long"),
    }
    // Its channels are dropped by now, which tells the connections that the client is gone.
    deliver(tasks).await;
}

/// The target of each data channel's bytes.
type Inputs = HashMap<u8, mpsc::Sender<Bytes>>;

/// Ends when everything is sent to the client, or when the client has left and all its input is received.
async fn exchange(receive: impl Future<Output = ()>, send: impl Future<Output = Result<(), axum::Error>>) {
    let mut receive = std::pin::pin!(receive);
    let sent = tokio::select! {
        sent = send => sent,
        () = &mut receive => return,
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "port-forward client is gone");
        // The input that the client sent before it left still counts.
        receive.await;
    }
}

async fn receive(mut from: SplitStream<WebSocket>, form: Form, mut inputs: Inputs, active: &watch::Sender<()>) {
    while let Some(Ok(message)) = from.next().await {
        active.send_replace(());
        if matches!(message, Message::Close(_)) {
            return;
        }
        let Some((channel, bytes)) = form.decode(message) else { continue };
        if let Some(input) = inputs.get(&channel)
            && input.send(bytes).await.is_err()
        {
            inputs.remove(&channel);
        }
    }
}

async fn send(
    mut to: SplitSink<WebSocket, Message>,
    mut frames: mpsc::Receiver<Message>,
    active: &watch::Sender<()>,
) -> Result<(), axum::Error> {
    while let Some(frame) = frames.recv().await {
        active.send_replace(());
        to.send(frame).await?;
    }
    to.send(closing()).await
}

/// Resolves when nothing happens for too long.
async fn idle(mut active: watch::Receiver<()>) {
    while let Ok(Ok(())) = tokio::time::timeout(IDLE_TIMEOUT, active.changed()).await {}
}

/// One port: announced on both its channels, then connected and served.
async fn forward(port: u16, data: u8, form: Form, target: Target, input: mpsc::Receiver<Bytes>, to: mpsc::Sender<Message>) {
    let error_channel = data + 1;
    for channel in [data, error_channel] {
        if to.send(form.encode(channel, &port.to_le_bytes())).await.is_err() {
            return;
        }
    }
    let stream = match dial(&target, port).await {
        Ok(stream) => stream,
        Err(refused) => {
            let text = format!("error forwarding port {port} to pod {}, uid {}: {refused}", target.name, target.uid);
            if to.send(form.encode(error_channel, text.as_bytes())).await.is_err() {
                tracing::debug!("port-forward client is gone");
            }
            return;
        }
    };
    let speak = async |mut from_pod: FromPod| {
        while let Some(bytes) = from_pod.next().await {
            if to.send(form.encode(data, bytes)).await.is_err() {
                return from_pod.drain().await;
            }
        }
    };
    carry(stream, ReceiverStream::new(input), speak).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_checked() {
        assert_eq!(ports("port=80&port=81"), Ok(vec![80, 81]));
        assert_eq!(ports("ports=80,81"), Ok(vec![80, 81]));
        for bad in ["", "port=0", "port=x", "port=70000"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
