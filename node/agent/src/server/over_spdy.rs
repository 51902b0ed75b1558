//! The client of a command over SPDY/3.1: a stream for each of stdin, stdout, stderr, error and resize,
//! named by its `streamType` header.

use std::time::Duration;

use axum::response::Response;
use node_spdy::{Connection, Limits, Receiving, Stream};
use runtimes_contract::TerminalSize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::command::{Client, CommandOptions, INPUTS_MAX, Input, Out};
use super::upgrade::SpdyUpgrade;

/// Protocols, the best first. (v5 is for websockets only: SPDY always could half-close.)
const PROTOCOLS: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// How long a client may take to open its streams; upstream's default.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(30);
/// The streams of one command, and a few for clients that open too many.
const STREAMS_MAX: usize = 16;
/// Longest text of a terminal's new size.
const SIZE_LEN_MAX: usize = 1_024;

/// Upgrades and has the work done with the client.
pub(super) fn serve<F, Fut>(upgrade: SpdyUpgrade, options: CommandOptions, work: F) -> Response
where
    F: FnOnce(Client, CommandOptions) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    upgrade.accept(&PROTOCOLS, move |io, protocol| async move {
        let (mut connection, drive) = node_spdy::serve(io, Limits { streams_max: STREAMS_MAX, ..Limits::default() });
        let gone = CancellationToken::new();
        let work = async {
            match timeout(STREAMS_TIMEOUT, Streams::accept(&mut connection, &options, protocol)).await {
                Ok(Some(streams)) => streams.with_client(&options, protocol, &gone, |client| work(client, options.clone())).await,
                Ok(None) => {}
                Err(_) => tracing::debug!("timed out waiting for client to create streams"),
            }
            connection.close().await;
        };
        let drive = async {
            if let Err(error) = drive.await {
                tracing::debug!(%error, "a SPDY connection ended");
            }
            gone.cancel();
        };
        tokio::join!(work, drive);
    })
}

/// The streams of a command that are open so far.
#[derive(Default)]
struct Streams {
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    error: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    /// Waits for all streams that the client has announced; `None` when it leaves before.
    async fn accept(connection: &mut Connection, options: &CommandOptions, protocol: Option<&str>) -> Option<Self> {
        let mut streams = Self::default();
        let resizes = options.tty && protocol.is_some_and(|protocol| protocol.starts_with("v4") || protocol.starts_with("v3"));
        while !streams.are_whole(options, resizes) {
            let stream = connection.accept().await?;
            let slot = match stream.headers.get("streamtype") {
                Some("stdin") => &mut streams.stdin,
                Some("stdout") => &mut streams.stdout,
                Some("stderr") => &mut streams.stderr,
                Some("error") => &mut streams.error,
                Some("resize") => &mut streams.resize,
                // Dropped, it is broken off.
                _ => continue,
            };
            *slot = Some(stream);
        }
        Some(streams)
    }

    fn are_whole(&self, options: &CommandOptions, resizes: bool) -> bool {
        let has = |stream: &Option<Stream>, wanted: bool| stream.is_some() || !wanted;
        has(&self.stdin, options.stdin)
            && has(&self.stdout, options.stdout)
            && has(&self.stderr, options.stderr)
            && has(&self.resize, resizes)
            && self.error.is_some()
    }

    /// Runs the work, and beside it passes the client's input on, until the client is gone.
    async fn with_client<Fut: Future<Output = ()>>(
        self,
        options: &CommandOptions,
        protocol: Option<&str>,
        gone: &CancellationToken,
        work: impl FnOnce(Client) -> Fut,
    ) {
        let (inputs, input) = mpsc::channel(INPUTS_MAX);
        let out = |stream: Option<Stream>, wanted: bool| match stream {
            Some(stream) if wanted => Out::Stream(stream.sending),
            _ => Out::None,
        };
        // Both halves of these stay: a dropped half would break the stream off.
        let (stdin, resize) = (self.stdin.map(halves), self.resize.map(halves));
        let (stdin, _stdin_permit) = stdin.unzip();
        let (resize, _resize_permit) = resize.unzip();
        let client = Client {
            input,
            gone: gone.clone(),
            stdout: out(self.stdout, options.stdout),
            stderr: out(self.stderr, options.stderr),
            error: out(self.error, true),
            with_status: protocol.is_some_and(|protocol| protocol.starts_with("v4")),
        };
        let reading = async move {
            tokio::join!(read_stdin(stdin, &inputs), read_sizes(resize, &inputs));
            gone.cancelled().await;
        };
        let (mut work, mut reading) = (std::pin::pin!(work(client)), std::pin::pin!(reading));
        let mut is_reading = true;
        loop {
            tokio::select! {
                () = &mut work => return,
                () = &mut reading, if is_reading => is_reading = false,
            }
        }
    }
}

fn halves(stream: Stream) -> (Receiving, node_spdy::Sending) {
    (stream.receiving, stream.sending)
}

async fn read_stdin(stdin: Option<Receiving>, inputs: &mpsc::Sender<Input>) {
    let Some(mut stdin) = stdin else { return };
    loop {
        let input = match stdin.next().await {
            Ok(Some(bytes)) => Input::Stdin(bytes),
            Ok(None) | Err(_) => Input::StdinEnd,
        };
        let over = input == Input::StdinEnd;
        if inputs.send(input).await.is_err() || over {
            return;
        }
    }
}

/// Sizes are JSON texts, one after the other; a frame may end anywhere in one.
async fn read_sizes(resize: Option<Receiving>, inputs: &mpsc::Sender<Input>) {
    let Some(mut resize) = resize else { return };
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = resize.next().await {
        text.extend_from_slice(&bytes);
        for size in take_sizes(&mut text) {
            if inputs.send(Input::Resize(size)).await.is_err() {
                return;
            }
        }
        if text.len() > SIZE_LEN_MAX {
            return tracing::debug!("a terminal's size that never ends");
        }
    }
}

/// Removes the complete sizes from the beginning of a text and returns them.
fn take_sizes(text: &mut Vec<u8>) -> Vec<TerminalSize> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<TerminalSize>();
    let mut sizes = Vec::new();
    let mut used = 0;
    while let Some(Ok(size)) = values.next() {
        sizes.push(size);
        used = values.byte_offset();
    }
    text.drain(..used);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_however_they_are_cut() {
        let mut text = b"{\"Width\":80,\"Height\":24}\n{\"Width\":1".to_vec();
        assert_eq!(take_sizes(&mut text), [TerminalSize { width: 80, height: 24 }]);
        text.extend_from_slice(b"00,\"Height\":30}\n");
        assert_eq!(take_sizes(&mut text), [TerminalSize { width: 100, height: 30 }]);
        assert!(text.trim_ascii().is_empty());
        let mut bad = b"what?".to_vec();
        assert_eq!(take_sizes(&mut bad), []);
    }
}
