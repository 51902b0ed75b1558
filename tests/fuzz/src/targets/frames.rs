//! Frames of the protocols that carry commands and forwarded ports.

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use node_spdy::Headers;
use node_spdy::frame::{Decoder, Encoder, Frame, FrameError};
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Limit of one message, in bytes.
const MESSAGE_LEN_MAX: usize = 4 * 1024;

/// SPDY: the decoder returns the same frames however the bytes are split. The encoder's output of these frames decodes
/// to the same frames.
pub fn spdy(input: &[u8]) {
    let (whole, error) = read(input.chunks(input.len().max(1)));
    let (cut, cut_error) = read(input.chunks(3));
    assert_eq!((&whole, &error), (&cut, &cut_error), "frames do not depend on how they come");
    let (mut encoder, mut written) = (Encoder::default(), BytesMut::new());
    whole.iter().for_each(|frame| encoder.put(frame, &mut written));
    let (again, error) = read(std::iter::once(&written[..]));
    // A peer may compress headers better than this encoder, so the encoded frame may be too long.
    if !matches!(error, Some(FrameError::TooLong(_))) {
        assert_eq!(error, None, "{whole:?}");
        assert_eq!(again, whole);
    }
}

/// SPDY's header blocks: several blocks, compressed one after the other, decompress to the same blocks.
pub fn spdy_headers(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pairs = || text.split('\n').filter(|line| !line.contains('\0')).filter_map(|line| line.split_once(':'));
    let headers = Headers::new(pairs());
    let blocks = [Frame::SynStream { id: 1, fin: false, headers: headers.clone() }, Frame::SynReply { id: 1, fin: true, headers }];
    let (mut encoder, mut written) = (Encoder::default(), BytesMut::new());
    blocks.iter().for_each(|frame| encoder.put(frame, &mut written));
    if let (read, None) = read(written.chunks(100)) {
        assert_eq!(read, blocks);
    }
}

/// The frames up to the first error. Consecutive pieces of one data frame are joined.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<FrameError>) {
    let (mut decoder, mut buffer, mut frames) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(frame)) => push(&mut frames, frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn push(frames: &mut Vec<Frame>, frame: Frame) {
    if let (Some(Frame::Data { id: before, fin, bytes: so_far }), Frame::Data { id, fin: last, bytes }) = (frames.last_mut(), &frame)
        && before == id
        && !*fin
    {
        *so_far = Bytes::from([&so_far[..], &bytes[..]].concat());
        *fin = *last;
        return;
    }
    frames.push(frame);
}

/// A websocket client that sends these bytes: the server returns messages of limited length, then ends.
pub fn websocket(input: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(2 * crate::INPUT_LEN_MAX);
        client.write_all(input).await.expect("there is room");
        client.shutdown().await.expect("said");
        let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_LEN_MAX)).max_frame_size(Some(MESSAGE_LEN_MAX));
        let mut socket = WebSocketStream::from_raw_socket(server, Role::Server, Some(config)).await;
        while let Some(Ok(message)) = socket.next().await {
            assert!(message.len() <= MESSAGE_LEN_MAX);
        }
    });
}
