//! Connections as other HTTP/2 clients make them, byte by byte.

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::http2::{read_frame, write_frames};

/// A header field of HPACK without Huffman's code, with a name of the static table.
fn indexed(name: u8, value: &str) -> Vec<u8> {
    [&[name, u8::try_from(value.len()).expect("short")], value.as_bytes()].concat()
}

/// What plugins in Go send: the path of the socket is no valid `:authority`.
fn headers(number: u32, flags: u8) -> Frame {
    let method_and_scheme = vec![0x83, 0x86];
    let path = indexed(0x04, "/v1beta1.Registration/Register");
    let authority = indexed(0x01, "/var/lib/kubelet/device-plugins/kubelet.sock");
    Frame::new(kind::HEADERS, flags, number, [method_and_scheme, path, authority].concat())
}

fn message(resource: &str) -> Vec<u8> {
    let request = RegisterRequest { resource_name: resource.to_owned(), ..RegisterRequest::default() };
    let len = u32::try_from(request.encoded_len()).expect("short").to_be_bytes();
    [vec![0], len.to_vec(), request.encode_to_vec()].concat()
}

/// Serves what a client sends, and returns the resources that registered, how the connection ended, and the frames of the answer.
async fn served(client: impl AsyncFnOnce(&mut DuplexStream)) -> (Vec<String>, io::Result<()>, Vec<Frame>) {
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let registered = Mutex::new(Vec::new());
    let register = async |request: RegisterRequest| {
        let resource = request.resource_name;
        if resource.starts_with("bad") {
            return Err(format!("{resource} ist schlecht – {}", "x".repeat(200)));
        }
        registered.lock().push(resource);
        Ok(())
    };
    let talking = async {
        near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
        client(&mut near).await;
        near.shutdown().await.expect("shut");
        let mut frames = Vec::new();
        while let Some(frame) = read_frame(&mut near).await.expect("a frame") {
            frames.push(frame);
        }
        frames
    };
    let serving = async {
        let mut far = far;
        let ended = serve(&mut far, register).await;
        drop(far);
        ended
    };
    let (frames, ended) = tokio::join!(talking, serving);
    (registered.into_inner(), ended, frames)
}

fn of_stream(frames: &[Frame], number: u32) -> Vec<u8> {
    frames.iter().filter(|frame| frame.stream == number).map(|frame| frame.kind).collect()
}

#[tokio::test]
async fn a_client_with_any_authority_registers() {
    let (registered, ended, frames) = served(async |client| {
        let data = message("a");
        let (first, second) = data.split_at(3);
        let padded = [&[2], second, &[0, 0]].concat();
        let frames = [
            Frame::new(kind::SETTINGS, 0, 0, Vec::new()),
            headers(1, 0),
            Frame::new(kind::CONTINUATION, flag::END_HEADERS, 1, indexed(0x0f, "x")),
            Frame::new(kind::DATA, 0, 1, first.to_vec()),
            Frame::new(kind::PING, 0, 0, vec![7; 8]),
            headers(3, flag::END_HEADERS),
            Frame::new(kind::DATA, flag::END_STREAM | flag::PADDED, 1, padded),
            Frame::new(0x77, 0xff, 0, vec![1]),
            Frame::new(kind::DATA, 0, 3, message("b")),
            Frame::new(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3, vec![0x83]),
            headers(5, flag::END_HEADERS),
            Frame::new(kind::RST_STREAM, 0, 5, vec![0; 4]),
            Frame::new(kind::DATA, flag::END_STREAM, 5, message("c")),
        ];
        write_frames(client, &frames).await.expect("written");
    })
    .await;
    ended.expect("an end");
    assert_eq!(registered, ["a", "b"]);
    for number in [1, 3] {
        assert_eq!(of_stream(&frames, number), [kind::HEADERS, kind::DATA, kind::HEADERS], "{frames:?}");
    }
    assert_eq!(of_stream(&frames, 5), [0; 0]);
    assert!(frames.contains(&Frame::new(kind::SETTINGS, flag::ACK, 0, Vec::new())));
    assert!(frames.contains(&Frame::new(kind::PING, flag::ACK, 0, vec![7; 8])));
}

#[tokio::test]
async fn a_refusal_and_what_is_no_request_are_answers() {
    let call = |number: u32, data: Vec<u8>| [headers(number, flag::END_HEADERS), Frame::new(kind::DATA, flag::END_STREAM, number, data)];
    let (registered, ended, frames) = served(async |client| {
        let mut compressed = message("a");
        compressed[0] = 1;
        let mut longer = message("a");
        longer.push(0);
        let calls =
            [call(1, message("bad")), call(3, Vec::new()), call(5, compressed), call(7, longer), call(9, vec![0, 0, 0, 0, 1, 0xff])];
        write_frames(client, calls.as_flattened()).await.expect("written");
    })
    .await;
    ended.expect("an end");
    assert!(registered.is_empty());
    let text = |number: u32| {
        let frame = frames.iter().find(|frame| frame.stream == number).expect("an answer");
        assert!(frame.has(flag::END_STREAM));
        String::from_utf8_lossy(&frame.payload).into_owned()
    };
    assert!(text(1).contains("grpc-status\u{1}2") && text(1).contains("bad ist schlecht %E2%80%93 xxx"), "{}", text(1));
    assert!(text(5).contains("grpc-status\u{2}12"), "{}", text(5));
    for number in [3, 7, 9] {
        assert!(text(number).contains("grpc-status\u{2}13"), "{}", text(number));
    }
}

#[tokio::test]
async fn nothing_that_a_client_sends_is_unbounded() {
    let end = |frames: Vec<Frame>| async move {
        let (registered, ended, frames) = served(async move |client| write_frames(client, &frames).await.expect("written")).await;
        assert!(registered.is_empty());
        (ended.map_err(|error| error.to_string()), frames)
    };
    let endless = std::iter::once(headers(1, 0)).chain((0..70_000).map(|_| Frame::new(kind::CONTINUATION, 0, 1, Vec::new())));
    assert_eq!(end(endless.collect()).await.0, Err("the headers are too large".to_owned()));
    let (ended, frames) = end(vec![headers(1, flag::END_HEADERS), Frame::new(kind::DATA, 0, 1, vec![0; MESSAGE_LEN_MAX + 6])]).await;
    ended.expect("an end");
    assert_eq!(of_stream(&frames, 1), [kind::RST_STREAM]);
    let (ended, frames) = end((0..6).map(|number| headers(number * 2 + 1, flag::END_HEADERS)).collect()).await;
    ended.expect("an end");
    assert_eq!((of_stream(&frames, 9), of_stream(&frames, 11)), (vec![kind::RST_STREAM], vec![kind::RST_STREAM]));
    assert!(end(vec![headers(2, flag::END_HEADERS)]).await.0.is_err());
    assert!(end(vec![Frame::new(kind::DATA, flag::PADDED, 1, vec![9])]).await.0.is_err());
    let (mut near, mut far) = tokio::io::duplex(1 << 16);
    near.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    assert!(serve(&mut far, async |_| Ok(())).await.is_err(), "another protocol");
    let (mut near, mut far) = tokio::io::duplex(1 << 16);
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01").await.expect("written");
    assert!(serve(&mut far, async |_| Ok(())).await.is_err(), "a frame of 16 MiB");
    let mut rest = Vec::new();
    drop(far);
    near.read_to_end(&mut rest).await.expect("the rest");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends() {
    let (near, mut far) = tokio::io::duplex(64);
    let ended = serve(&mut far, async |_| Ok(())).await;
    assert_eq!(ended.expect_err("an end").kind(), io::ErrorKind::TimedOut);
    drop(near);
}
