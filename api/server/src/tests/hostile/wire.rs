//! Connections that are slow, silent, endless, or too many.

use super::*;

/// The first bytes of an HTTP/2 client, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// Types of HTTP/2 frames.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The error code of HTTP/2 servers for clients that send too much.
const ENHANCE_YOUR_CALM: u32 = 0xb;
/// `GET https /` from HPACK's static table, and an authority.
const GET_ROOT: &[u8] = b"\x82\x87\x84\x41\x05skiff";
/// Longer than any time limit of the server.
const FOR_EVER: Duration = Duration::from_secs(600);

fn http1() -> TlsConnector {
    crate::tls::tests_connector(&PKI, None)
}

/// An HTTP/2 connector with the administrator's certificate.
fn http2() -> TlsConnector {
    crate::tls::tests_connector_speaking(&PKI, Some(&admin_identity()), &[b"h2"])
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The error of the GOAWAY frame among the frames that the server sent.
fn goodbye(mut bytes: &[u8]) -> Option<u32> {
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let len = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).expect("fits");
        if head[3] == GOAWAY {
            return rest.get(4..8).map(|code| u32::from_be_bytes(code.try_into().expect("four bytes")));
        }
        bytes = rest.get(len..)?;
    }
    None
}

/// The time until the server closes a silent connection, and the server's bytes. The time is paused and passes by
/// itself.
async fn patience(stream: &mut Stream) -> (Duration, String) {
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let answer = tokio::time::timeout(FOR_EVER, heard(stream)).await.expect("the server ends it");
    let waited = started.elapsed();
    tokio::time::resume();
    (waited, answer)
}

#[tokio::test]
async fn who_does_not_ask_in_time_is_left() {
    let cluster = cluster().await;
    let mut silent = connected(&cluster, &http1()).await;
    let (waited, _) = patience(&mut silent).await;
    assert!(waited <= Duration::from_secs(40), "said nothing: {waited:?}");
    let mut slow = connected(&cluster, &http1()).await;
    slow.write_all(b"GET /api HTTP/1.1\r\nhost: skiff\r\nx-slow: ").await.expect("written");
    let (waited, _) = patience(&mut slow).await;
    assert!(waited <= Duration::from_secs(40), "half a head: {waited:?}");
    let mut idle = connected(&cluster, &http1()).await;
    idle.write_all(b"GET /version HTTP/1.1\r\nhost: skiff\r\n\r\n").await.expect("written");
    let (waited, answer) = patience(&mut idle).await;
    assert!(answer.starts_with("HTTP/1.1 ") && waited <= Duration::from_secs(100), "kept alive: {waited:?} {answer}");
    let mut silent = connected(&cluster, &http2()).await;
    let (waited, _) = patience(&mut silent).await;
    assert!(waited <= Duration::from_secs(200), "no preface: {waited:?}");
    let mut idle = connected(&cluster, &http2()).await;
    idle.write_all(PREFACE).await.expect("written");
    let (waited, _) = patience(&mut idle).await;
    assert!(waited <= Duration::from_secs(60), "answers no ping: {waited:?}");
}

#[tokio::test]
async fn a_slow_body_takes_no_longer_than_a_request_may() {
    let cluster = cluster().await;
    let connector = crate::tls::tests_connector(&PKI, Some(&admin_identity()));
    let mut slow = connected(&cluster, &connector).await;
    let head = format!("POST {CONFIG_MAPS} HTTP/1.1\r\nhost: skiff\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n{{\"kind\":");
    slow.write_all(head.as_bytes()).await.expect("written");
    let (waited, answer) = patience(&mut slow).await;
    assert_eq!(status_of(&answer), "504", "{answer}");
    assert!(answer.contains("Timeout: request did not complete within requested timeout - context deadline exceeded"), "{answer}");
    assert!(waited <= Duration::from_secs(100), "{waited:?}");
}

/// The client's machine lost its power: it sends no acknowledgements and no pongs.
#[tokio::test]
async fn a_watch_whose_client_is_gone_ends() {
    let cluster = cluster().await;
    let mut gone = connected(&cluster, &http2()).await;
    let path = format!("{CONFIG_MAPS}?watch=1");
    let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).expect("short")];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x41\x05skiff");
    gone.write_all(&[PREFACE, &frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)].concat()).await.expect("written");
    let resource = cluster.server.core().cache.resource(&api_model::kind::GroupResource::new("", "configmaps"));
    let watched = async {
        while resource.watchers_len() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(COST_MAX, watched).await.expect("a watch");
    let (waited, _) = patience(&mut gone).await;
    assert!(waited <= Duration::from_secs(60), "{waited:?}");
    let ended = async {
        while resource.watchers_len() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(COST_MAX, ended).await.expect("nothing is kept for it");
}

#[tokio::test]
async fn heads_are_bounded() {
    let cluster = cluster().await;
    let (address, _) = served(&cluster).await;
    let long_path = format!("GET /api?{} HTTP/1.1\r\nhost: skiff\r\n\r\n", "a".repeat(100_000));
    let long_value = format!("GET /api HTTP/1.1\r\nhost: skiff\r\nx: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET /api HTTP/1.1\r\nhost: skiff\r\n{}\r\n", "x: y\r\n".repeat(10_000));
    let fitting =
        format!("GET /api?{} HTTP/1.1\r\nhost: skiff\r\nconnection: close\r\nx: {}\r\n\r\n", "a".repeat(60_000), "b".repeat(30_000));
    for (what, request, wanted) in [
        ("a long path", long_path.as_str(), &["414", "431"][..]),
        ("a long value", &long_value, &["431"]),
        ("many headers", &many, &["431"]),
        ("what fits", &fitting, &["200", "403"]),
        ("two lengths", "POST /api HTTP/1.1\r\nhost: skiff\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", &["400"]),
        ("NUL in a header", "GET /api HTTP/1.1\r\nhost: skiff\r\nx: a\0b\r\n\r\n", &["400"]),
        ("no HTTP", "\0\0\0\0\r\n\r\n", &["400"]),
        ("HTTP/2 without saying so", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &["400", "505", ""]),
    ] {
        let mut stream = connected_to(address, &http1()).await;
        let answer = quickly(response(&mut stream, request.as_bytes())).await;
        assert!(wanted.contains(&status_of(&answer)), "{what}: {answer}");
    }
}

/// CVE-2023-44487: each stream is opened and reset at once.
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let cluster = cluster().await;
    let mut stream = connected(&cluster, &http2()).await;
    stream.write_all(PREFACE).await.expect("written");
    let flood: Vec<u8> = (0..20_000_u32)
        .flat_map(|at| {
            let open = frame(HEADERS, END_STREAM | END_HEADERS, 2 * at + 1, GET_ROOT);
            [open, frame(RST_STREAM, 0, 2 * at + 1, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    let answer = quickly(flooded(stream, flood)).await;
    assert_eq!(goodbye(&answer), Some(ENHANCE_YOUR_CALM));
    assert!(cluster.get("/version").await.status.is_success());
}

/// CVE-2024-27316: endless headers.
#[tokio::test]
async fn endless_headers_end_the_connection() {
    let cluster = cluster().await;
    let mut stream = connected(&cluster, &http2()).await;
    stream.write_all(PREFACE).await.expect("written");
    // A header that is not indexed, `x: aaa…`, with a value of 127 + 1 + 126 * 128 bytes.
    let mut line = b"\x00\x01x\x7f\x81\x7e".to_vec();
    line.extend(std::iter::repeat_n(b'a', 16_256));
    let mut flood = frame(HEADERS, END_STREAM, 1, GET_ROOT);
    for _ in 0..2_000 {
        flood.extend(frame(CONTINUATION, 0, 1, &line));
    }
    let answer = quickly(flooded(stream, flood)).await;
    assert!(goodbye(&answer).is_some_and(|code| code != 0), "{answer:?}");
}

/// Sends all bytes, or as many as the server accepts; returns the server's bytes.
async fn flooded(stream: Stream, flood: Vec<u8>) -> Vec<u8> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let mut answer = Vec::new();
    let sending = async move {
        let _as_far_as_it_is_taken = writing.write_all(&flood).await;
        writing
    };
    let (_writing, _end) = tokio::join!(sending, reading.read_to_end(&mut answer));
    answer
}

/// A client that opens all available connections and stays silent does not block other clients: not those of other
/// addresses, not those of its own address, and least of all those with a certificate.
#[tokio::test]
async fn who_has_most_connections_makes_room() {
    const GET: &[u8] = b"GET /version HTTP/1.1\r\nhost: skiff\r\n\r\n";
    let cluster = cluster_with(Config { connections_max: 8, ..config() }, Arc::new(MemoryStore::new())).await;
    let (address, admins) = served(&cluster).await;
    let mut admin = connected_to(address, &admins).await;
    heard_a_version(&mut admin, GET).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.expect("connected"));
    }
    for from in ["127.0.0.2:0", "127.0.0.1:0"] {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(from.parse().expect("an address")).expect("bound");
        let stream = socket.connect(address).await.expect("connected");
        let mut other = http1().connect("127.0.0.1".try_into().expect("a name"), stream).await.expect("a handshake");
        heard_a_version(&mut other, GET).await;
    }
    heard_a_version(&mut admin, GET).await;
}

/// Sends a request. The answer must come long before silent connections are closed.
async fn heard_a_version(stream: &mut Stream, question: &[u8]) {
    let asking = async {
        stream.write_all(question).await.expect("written");
        let mut answer = vec![0; 4096];
        let len = stream.read(&mut answer).await.expect("read");
        String::from_utf8_lossy(&answer[..len]).into_owned()
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), asking).await.expect("in time");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// The server ignores what clients send on a watch's websocket, so it limits the length.
#[tokio::test]
async fn a_websockets_client_says_little() {
    let cluster = cluster().await;
    let connector = crate::tls::tests_connector(&PKI, Some(&admin_identity()));
    let mut stream = connected(&cluster, &connector).await;
    let head = format!(
        "GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nhost: skiff\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("written");
    // The header announces a binary message of 1 GiB; a few MiB of it follow.
    let mut flood = b"\x82\xff\0\0\0\0\x40\0\0\0\0\0\0\0".to_vec();
    flood.extend(std::iter::repeat_n(0, 4 << 20));
    let answer = quickly(flooded(stream, flood)).await;
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
}
