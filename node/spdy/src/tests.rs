//! Frames, header blocks and connections, also from peers that mean no good.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use crate::connection::{Connection, Limits, SpdyError, serve};
use crate::frame::{DATA_LEN_MAX, Decoder, Encoder, Frame, FrameError, Reset};
use crate::headers::{BLOCK_LEN_MAX, Deflater, HeaderError, Headers, Inflater};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// Two blocks as zlib itself writes them: the headers of a forwarded connection's two streams.
const ZLIB_BLOCKS: [(&str, &str); 2] = [
    ("78bbe3c6a7c202253a48f95b044eea16061606409ab308125f99a074cc68004e892545a989b9d0c2863515141500000000ffff", "error"),
    ("225333a8a44a04000000ffff", "data"),
];

fn of_forward(kind: &str) -> Headers {
    Headers::new([("port", "8080"), ("requestID", "0"), ("streamType", kind)])
}

#[test]
fn blocks_of_zlib_are_read() {
    let mut inflater = Inflater::default();
    for (block, kind) in ZLIB_BLOCKS {
        let headers = inflater.read(&hex(block)).expect("headers");
        assert_eq!(headers, of_forward(kind));
        assert_eq!(headers.get("streamType"), Some(kind));
    }
}

#[test]
fn blocks_that_are_none_are_rejected() {
    let read = |bytes: &[u8]| Inflater::default().read(bytes);
    assert_eq!(read(&[]), Err(HeaderError::Dictionary));
    // zlib without the dictionary, and with another one.
    assert_eq!(read(&hex("789c63606060000000040001")), Err(HeaderError::Dictionary));
    assert_eq!(read(&hex("78bb00000001000000000000ffff")), Err(HeaderError::Dictionary));
    assert_eq!(read(&hex("78bbe3c6a7c2ffffffff")), Err(HeaderError::Compressed));
    let stored = |body: &[u8]| {
        let len = u16::try_from(body.len()).expect("short");
        [&hex("78bbe3c6a7c200")[..], &len.to_le_bytes(), &(!len).to_le_bytes(), body].concat()
    };
    assert_eq!(read(&stored(&[0, 0, 0, 0])), Ok(Headers::default()));
    assert_eq!(read(&stored(&[0, 0, 0, 1])), Err(HeaderError::Broken));
    assert_eq!(read(&stored(&[0, 0, 0, 0, 9])), Err(HeaderError::Broken));
    assert_eq!(read(&stored(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff])), Err(HeaderError::Broken));
    assert_eq!(read(&stored(&[0xff, 0xff, 0xff, 0xff])), Err(HeaderError::TooLarge));
    assert_eq!(read(&stored(&vec![0; BLOCK_LEN_MAX + 1])), Err(HeaderError::TooLarge));
}

#[test]
fn a_small_block_that_becomes_a_large_one_is_rejected() {
    // One literal zero and then copies of it: the fixed code's length symbol 285 (258 bytes) at distance 1.
    let mut bits: Vec<bool> = vec![false, true, false];
    bits.extend([false, false, true, true, false, false, false, false]);
    for _ in 0..100 {
        bits.extend([true, true, false, false, false, true, false, true]);
        bits.extend([false; 5]);
    }
    bits.resize(bits.len().next_multiple_of(8), false);
    let bytes = bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0_u8, |sum, (at, bit)| sum | u8::from(*bit) << at));
    let bomb: Vec<u8> = hex("78bbe3c6a7c2").into_iter().chain(bytes).collect();
    assert!(bomb.len() < 200);
    assert_eq!(Inflater::default().read(&bomb), Err(HeaderError::TooLarge));
}

#[test]
fn frames_that_are_none_are_rejected() {
    let next = |bytes: &[u8]| Decoder::default().next(&mut BytesMut::from(bytes));
    assert_eq!(next(&[0x80, 2, 0, 6, 0, 0, 0, 4]), Err(FrameError::Version(2)));
    assert_eq!(next(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]), Err(FrameError::TooLong(0x00ff_ffff)));
    assert_eq!(next(&[0x80, 3, 0, 6, 0, 0, 0, 2, 1, 1]), Err(FrameError::Malformed(6)));
    assert_eq!(next(&[0x80, 3, 0, 4, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff]), Err(FrameError::Malformed(4)));
    assert_eq!(next(&[0x80, 3, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0]), Err(FrameError::Malformed(1)));
    // An unknown kind is skipped, and so is an empty data frame.
    assert_eq!(
        next(&[0x80, 3, 0, 99, 0, 0, 0, 1, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 5]),
        Ok(Some(Frame::Ping(5)))
    );
}

fn frames() -> impl Strategy<Value = Frame> {
    let id = 1_u32..0x7fff_ffff;
    let headers = proptest::collection::vec(("[a-z-]{1,12}", "[ -~]{0,40}"), 0..8)
        .prop_map(|pairs| Headers::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))));
    let bytes = proptest::collection::vec(any::<u8>(), 1..200).prop_map(Bytes::from);
    prop_oneof![
        (id.clone(), any::<bool>(), headers.clone()).prop_map(|(id, fin, headers)| Frame::SynStream { id, fin, headers }),
        (id.clone(), any::<bool>(), headers.clone()).prop_map(|(id, fin, headers)| Frame::SynReply { id, fin, headers }),
        (id.clone(), any::<bool>(), headers).prop_map(|(id, fin, headers)| Frame::Headers { id, fin, headers }),
        (id.clone(), any::<bool>(), bytes).prop_map(|(id, fin, bytes)| Frame::Data { id, fin, bytes }),
        id.clone().prop_map(|id| Frame::Reset { id, why: Reset::Cancel }),
        proptest::option::of(0_u32..0x7fff_ffff).prop_map(|initial_window| Frame::Settings { initial_window }),
        id.clone().prop_map(Frame::Ping),
        id.clone().prop_map(|last| Frame::GoAway { last }),
        (id, 1_u32..0x7fff_ffff).prop_map(|(id, more)| Frame::WindowUpdate { id, more }),
    ]
}

/// Pieces of one data frame put together again, so that how the bytes came does not matter.
fn joined(frames: Vec<Frame>) -> Vec<Frame> {
    let mut all: Vec<Frame> = Vec::new();
    let mut open = false;
    for frame in frames {
        match (frame, all.last_mut()) {
            (Frame::Data { id, fin, bytes }, Some(Frame::Data { id: same, fin: ended, bytes: before }))
                if open && *same == id && !*ended =>
            {
                *before = [&before[..], &bytes[..]].concat().into();
                *ended = fin;
            }
            (frame, _) => {
                open = matches!(frame, Frame::Data { .. });
                all.push(frame);
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn what_is_written_is_read_however_it_is_cut(frames in proptest::collection::vec(frames(), 1..12), cut in 1_usize..64) {
        let (mut encoder, mut bytes) = (Encoder::default(), BytesMut::new());
        frames.iter().for_each(|frame| encoder.put(frame, &mut bytes));
        let (mut decoder, mut buffer, mut got) = (Decoder::default(), BytesMut::new(), Vec::new());
        for piece in bytes.chunks(cut) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decoder.next(&mut buffer).expect("frames") {
                got.push(frame);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(joined(got), joined(frames));
    }

    #[test]
    fn any_bytes_are_frames_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::from(&bytes[..]));
        let mut len = 0;
        while let Ok(Some(frame)) = decoder.next(&mut buffer) {
            if let Frame::Data { bytes, .. } = frame {
                prop_assert!(bytes.len() <= DATA_LEN_MAX);
                len += bytes.len();
            }
        }
        prop_assert!(len <= bytes.len());
    }

    #[test]
    fn any_bytes_after_a_good_beginning_are_headers_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let block = [&hex("78bbe3c6a7c2")[..], &bytes].concat();
        let mut inflater = Inflater::default();
        // Whatever it says, it says it.
        let _refused = inflater.read(&block);
        let _refused = inflater.read(&bytes);
    }

    #[test]
    fn blocks_are_read_as_they_were_written(blocks in proptest::collection::vec(proptest::collection::vec(("[a-z]{1,9}", "[ -~]{0,90}"), 0..9), 1..20)) {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for block in &blocks {
            let headers = Headers::new(block.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            let mut bytes = BytesMut::new();
            deflater.write(&headers, &mut bytes);
            prop_assert_eq!(inflater.read(&bytes), Ok(headers));
        }
    }
}

/// A client that knows frames and nothing else.
struct Client {
    io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
    buffer: BytesMut,
}

impl Client {
    fn connect(limits: Limits) -> (Self, Connection, JoinHandle<Result<(), SpdyError>>) {
        let (io, theirs) = tokio::io::duplex(64 * 1_024);
        let (connection, drive) = serve(theirs, limits);
        let client = Self { io, encoder: Encoder::default(), decoder: Decoder::default(), buffer: BytesMut::new() };
        (client, connection, tokio::spawn(drive))
    }

    async fn say(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.put(&frame, &mut bytes);
        self.io.write_all(&bytes).await.expect("written");
    }

    async fn open(&mut self, id: u32) {
        self.say(Frame::SynStream { id, fin: false, headers: of_forward("data") }).await;
        assert_eq!(self.next().await, Some(Frame::SynReply { id, fin: false, headers: Headers::default() }));
    }

    async fn send(&mut self, id: u32, bytes: impl Into<Bytes>) {
        self.say(Frame::Data { id, fin: false, bytes: bytes.into() }).await;
    }

    async fn finish(&mut self, id: u32) {
        self.say(Frame::Data { id, fin: true, bytes: Bytes::new() }).await;
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.buffer).expect("a frame") {
                return Some(frame);
            }
            self.buffer.reserve(64 * 1_024);
            if self.io.read_buf(&mut self.buffer).await.expect("bytes") == 0 {
                return None;
            }
        }
    }
}

fn limits() -> Limits {
    Limits::default()
}

#[tokio::test]
async fn a_stream_goes_both_ways_and_ends_on_both_sides() {
    let (mut client, mut connection, driven) = Client::connect(limits());
    client.open(1).await;
    let mut stream = connection.accept().await.expect("a stream");
    assert_eq!((stream.id, stream.headers.get("port")), (1, Some("8080")));
    client.send(1, "ping").await;
    client.finish(1).await;
    assert_eq!(stream.receiving.next().await, Ok(Some(Bytes::from_static(b"ping"))));
    assert_eq!(stream.receiving.next().await, Ok(None));
    stream.sending.send(Bytes::from_static(b"pong")).await.expect("sent");
    stream.sending.finish().await.expect("finished");
    connection.close().await;
    assert_eq!(client.next().await, Some(Frame::Data { id: 1, fin: false, bytes: Bytes::from_static(b"pong") }));
    assert_eq!(client.next().await, Some(Frame::Data { id: 1, fin: true, bytes: Bytes::new() }));
    assert_eq!(client.next().await, Some(Frame::GoAway { last: 1 }));
    assert_eq!(client.next().await, None);
    drop(client);
    driven.await.expect("joined").expect("a good end");
}

#[tokio::test]
async fn a_reset_ends_both_halves_and_a_dropped_half_resets() {
    let (mut client, mut connection, _driven) = Client::connect(limits());
    client.open(1).await;
    let mut first = connection.accept().await.expect("a stream");
    client.say(Frame::Reset { id: 1, why: Reset::Cancel }).await;
    first.sending.lost().await;
    assert!(first.receiving.next().await.is_err());
    assert!(first.sending.send(Bytes::from_static(b"x")).await.is_err());
    drop(first);
    client.open(3).await;
    drop(connection.accept().await.expect("a stream"));
    assert_eq!(client.next().await, Some(Frame::Reset { id: 3, why: Reset::Cancel }));
}

#[tokio::test]
async fn a_slow_reader_holds_up_nobody_else() {
    let (mut client, mut connection, _driven) = Client::connect(limits());
    client.open(1).await;
    client.open(3).await;
    let mut slow = connection.accept().await.expect("a stream");
    let mut fast = connection.accept().await.expect("a stream");
    let piece = vec![7; DATA_LEN_MAX];
    for _ in 0..100 {
        client.send(1, piece.clone()).await;
    }
    client.send(3, "quick").await;
    assert_eq!(fast.receiving.next().await, Ok(Some(Bytes::from_static(b"quick"))));
    let mut len = 0;
    while len < 100 * DATA_LEN_MAX {
        len += slow.receiving.next().await.expect("bytes").expect("more").len();
    }
}

#[tokio::test]
async fn what_waits_is_bounded_and_comes_whole() {
    let (mut client, mut connection, _driven) = Client::connect(Limits { waiting_len_max: 100_000, ..limits() });
    client.open(1).await;
    let mut stream = connection.accept().await.expect("a stream");
    let mut sending = tokio::spawn(async move {
        for _ in 0..64 {
            client.send(1, vec![7; DATA_LEN_MAX]).await;
        }
        client.finish(1).await;
        client
    });
    // Two MiB do not fit into what may wait and the socket: the client has to wait.
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut sending).await.is_err());
    let mut len = 0;
    while let Some(bytes) = stream.receiving.next().await.expect("bytes") {
        len += bytes.len();
    }
    assert_eq!(len, 64 * DATA_LEN_MAX);
    sending.await.expect("all sent");
}

#[tokio::test]
async fn a_peer_that_paces_is_sent_no_more_than_it_lets() {
    let (mut client, mut connection, _driven) = Client::connect(limits());
    client.say(Frame::Settings { initial_window: Some(1_000) }).await;
    client.open(1).await;
    let mut stream = connection.accept().await.expect("a stream");
    let sending = tokio::spawn(async move { stream.sending.send(vec![7; 1_500].into()).await.map(|()| stream) });
    let sent = |len: usize| Some(Frame::Data { id: 1, fin: false, bytes: vec![7; len].into() });
    assert_eq!(client.next().await, sent(1_000));
    client.say(Frame::WindowUpdate { id: 1, more: 400 }).await;
    assert_eq!(client.next().await, sent(400));
    client.say(Frame::WindowUpdate { id: 1, more: 400 }).await;
    assert_eq!(client.next().await, sent(100));
    sending.await.expect("joined").map(drop).expect("sent");
}

#[tokio::test]
async fn a_reader_tells_that_it_has_read() {
    let (mut client, mut connection, _driven) = Client::connect(limits());
    client.open(1).await;
    let mut stream = connection.accept().await.expect("a stream");
    client.send(1, vec![7; DATA_LEN_MAX]).await;
    let mut len = 0;
    while len < DATA_LEN_MAX {
        len += stream.receiving.next().await.expect("bytes").expect("more").len();
    }
    let Some(Frame::WindowUpdate { id: 1, more }) = client.next().await else { panic!("no report") };
    assert_eq!(usize::try_from(more), Ok(DATA_LEN_MAX));
}

#[tokio::test]
async fn bad_and_surplus_streams_are_rejected() {
    let (mut client, mut connection, _driven) = Client::connect(Limits { streams_max: 1, ..limits() });
    client.open(5).await;
    let _stream = connection.accept().await.expect("a stream");
    for (id, why) in [(2, Reset::ProtocolError), (5, Reset::ProtocolError), (3, Reset::ProtocolError), (7, Reset::RefusedStream)] {
        client.say(Frame::SynStream { id, fin: false, headers: Headers::default() }).await;
        assert_eq!(client.next().await, Some(Frame::Reset { id, why }));
    }
    client.send(99, "x").await;
    assert_eq!(client.next().await, Some(Frame::Reset { id: 99, why: Reset::InvalidStream }));
    client.finish(5).await;
    client.send(5, "after the end").await;
    assert_eq!(client.next().await, Some(Frame::Reset { id: 5, why: Reset::ProtocolError }));
}

#[tokio::test]
async fn pings_are_answered_and_a_flood_is_not_stored() {
    let (mut client, _connection, driven) = Client::connect(limits());
    client.say(Frame::Ping(1)).await;
    assert_eq!(client.next().await, Some(Frame::Ping(1)));
    let flood = tokio::spawn(async move {
        let mut bytes = BytesMut::new();
        Encoder::default().put(&Frame::Ping(3), &mut bytes);
        // Never reads: in the end the connection accepts no more.
        while client.io.write_all(&bytes).await.is_ok() {}
    });
    assert!(matches!(driven.await.expect("joined"), Err(SpdyError::Unread)));
    flood.await.expect("ended");
}

#[tokio::test]
async fn what_is_no_spdy_ends_the_connection() {
    let (mut client, mut connection, driven) = Client::connect(limits());
    client.io.write_all(&[0x80, 9, 0, 1, 0, 0, 0, 0]).await.expect("written");
    assert!(matches!(driven.await.expect("joined"), Err(SpdyError::Frame(FrameError::Version(9)))));
    assert!(connection.accept().await.is_none());
}

#[tokio::test]
async fn streams_end_with_their_connection() {
    let (mut client, mut connection, driven) = Client::connect(limits());
    client.open(1).await;
    let mut stream = connection.accept().await.expect("a stream");
    drop(client);
    driven.await.expect("joined").expect("a good end");
    assert!(stream.receiving.next().await.is_err());
    assert!(stream.sending.send(Bytes::from_static(b"x")).await.is_err());
    assert!(connection.accept().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_in_time_though_it_is_pinged() {
    let (mut client, _connection, driven) = Client::connect(limits());
    let began = tokio::time::Instant::now();
    let pinging = tokio::spawn(async move {
        while driven_is_open(&mut client).await {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
    });
    assert!(matches!(driven.await.expect("joined"), Err(SpdyError::Idle)));
    assert_eq!(began.elapsed().as_secs() / 3_600, 4);
    pinging.await.expect("ended");
}

async fn driven_is_open(client: &mut Client) -> bool {
    let mut bytes = BytesMut::new();
    client.encoder.put(&Frame::Ping(1), &mut bytes);
    client.io.write_all(&bytes).await.is_ok() && client.next().await.is_some()
}
