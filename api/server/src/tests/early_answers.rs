//! Answers over HTTP/2 to requests whose body was not read: the server drains the rest, so that it does not reset the
//! stream during the answer.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::nodes::served;
use super::*;

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// The first bytes of an HTTP/2 client, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `POST https /` from HPACK's static table, and an authority.
const POST_ROOT: &[u8] = b"\x83\x87\x84\x41\x05skiff";
const PATIENCE: Duration = Duration::from_secs(20);

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&len[1..], &[kind, flags], &1_u32.to_be_bytes(), payload].concat()
}

/// An open request.
async fn begun(cluster: &Cluster) -> Stream {
    let (address, _) = served(cluster).await;
    let connector = crate::tls::tests_connector_speaking(&PKI, None, &[b"h2"]);
    let stream = TcpStream::connect(address).await.expect("connected");
    let mut stream = connector.connect("127.0.0.1".try_into().expect("a name"), stream).await.expect("a handshake");
    stream.write_all(&[PREFACE, &frame(HEADERS, END_HEADERS, POST_ROOT)].concat()).await.expect("written");
    stream
}

/// Types and flags of the frames of the stream, up to the first that satisfies `wish`.
async fn frames_until(stream: &mut Stream, wish: impl Fn(u8, u8) -> bool) -> Vec<(u8, u8)> {
    let mut seen = Vec::new();
    let reading = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.expect("a frame");
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(len).expect("fits")];
            stream.read_exact(&mut payload).await.expect("its payload");
            if head[8] == 1 {
                seen.push((head[3], head[4]));
                if wish(head[3], head[4]) {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("nothing such came"));
    seen
}

fn ends(kind: u8, flags: u8) -> bool {
    kind == RST_STREAM || flags & END_STREAM != 0
}

#[tokio::test]
async fn an_answer_ends_when_the_body_that_nobody_wants_is_read() {
    let cluster = cluster().await;
    let mut stream = begun(&cluster).await;
    let answer = frames_until(&mut stream, |kind, _| kind == DATA).await;
    assert!(answer.iter().all(|(kind, flags)| !ends(*kind, *flags)), "whole, but not over: {answer:?}");
    // Less than the initial window, which is valid before the settings.
    for _ in 0..5 {
        stream.write_all(&frame(DATA, 0, &[b'x'; 10_000])).await.expect("written");
    }
    stream.write_all(&frame(DATA, END_STREAM, b"x")).await.expect("written");
    let rest = frames_until(&mut stream, ends).await;
    assert_eq!(rest.last().map(|(kind, _)| *kind), Some(DATA), "{rest:?}");
}

#[tokio::test]
async fn a_body_that_never_ends_is_not_waited_for_long() {
    let cluster = cluster().await;
    let mut stream = begun(&cluster).await;
    frames_until(&mut stream, |kind, _| kind == DATA).await;
    let rest = frames_until(&mut stream, ends).await;
    assert!(rest.iter().all(|(kind, _)| *kind == DATA), "the answer ends first: {rest:?}");
}
