//! The time that clients have, by tokio's paused clock: no test waits for it. Nothing of it is I/O, because the clock would not wait either.

use std::ops::Range;

use bytes::Bytes;
use http_body_util::{Empty, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::Instant;
use wasmtime_wasi_http::Error;

use super::*;

/// Room for all that a test sends.
const BUFFER_LEN: usize = 64 << 10;
const SECOND: Duration = Duration::from_secs(1);

/// The client's end of a connection that is served. Each answer has a clone of `used`, until nothing of it is left.
fn connect(used: &Arc<()>, is_spare: bool) -> DuplexStream {
    let (client, server) = duplex(BUFFER_LEN);
    let used = used.clone();
    let answer = move |_: Request<Incoming>, _: Arrival| {
        let used = used.clone();
        let error = move |never: Infallible| -> Error {
            let _used = &used;
            match never {}
        };
        let body = Full::new(Bytes::from_static(b"answer")).map_err(error).boxed_unsync();
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    };
    tokio::spawn(async move {
        let (_serving, phase) = watch::channel(Phase::Serving);
        serve_client(server, answer, phase, Arrival { local: None, is_spare }).await;
    });
    client
}

fn within_a_second(limit: Duration) -> Range<Duration> {
    limit..limit + SECOND
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_send_a_whole_head_is_disconnected_when_its_time_is_over() {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n";
    // The connection is checked once in each limit, and the client has a moment for its goodbye.
    let of_http2 = HEAD_TIMEOUT..HEAD_TIMEOUT * 2 + GOODBYE_TIMEOUT + SECOND;
    let cases: [(&[u8], bool, Range<Duration>); 7] = [
        (b"", false, within_a_second(HEAD_TIMEOUT)),
        // It may become HTTP/2.
        (b"PR", false, within_a_second(HEAD_TIMEOUT)),
        (b"GET / HTTP/1.1\r\nHost: we", false, within_a_second(HEAD_TIMEOUT)),
        // The answer is there, and no further request.
        (REQUEST, false, within_a_second(HEAD_TIMEOUT)),
        (b"", true, within_a_second(SPARE_HEAD_TIMEOUT)),
        (b"GET / HTTP/1.1\r\nHost: we", true, within_a_second(SPARE_HEAD_TIMEOUT)),
        (PREFACE, false, of_http2),
    ];
    for (sent, is_spare, wanted) in cases {
        let mut client = connect(&Arc::default(), is_spare);
        let begun = Instant::now();
        client.write_all(sent).await.unwrap();
        let mut received = Vec::new();
        tokio::time::timeout(HEAD_TIMEOUT * 10, client.read_to_end(&mut received)).await.expect("an end").unwrap();
        let (elapsed, sent) = (begun.elapsed(), String::from_utf8_lossy(sent));
        assert!(wanted.contains(&elapsed), "{sent:?}, {is_spare}: {elapsed:?}");
        assert_eq!(received.starts_with(b"HTTP/1.1 200 OK\r\n"), sent.as_bytes() == REQUEST, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_of_http_2_that_gives_no_room_for_its_answer_is_disconnected() {
    let used = Arc::new(());
    let mut http = hyper::client::conn::http2::Builder::new(Tasks);
    // The client answers pings, and its windows stay empty.
    http.timer(Timer::default()).initial_stream_window_size(0);
    let (mut sender, connection) = http.handshake(TokioIo::new(connect(&used, false))).await.unwrap();
    let (begun, connection) = (Instant::now(), tokio::spawn(connection));
    let request = Request::get("http://web/").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), http::StatusCode::OK);
    assert_eq!(Arc::strong_count(&used), 3, "that of the test, that of the connection, and that of the answer");
    // How it ends for the client does not matter.
    let _ended = tokio::time::timeout(HEAD_TIMEOUT * 10, connection).await.expect("an end").unwrap();
    let elapsed = begun.elapsed();
    assert!((WRITE_TIMEOUT..WRITE_TIMEOUT + HEAD_TIMEOUT + SECOND).contains(&elapsed), "{elapsed:?}");
    let until_unused = async {
        while Arc::strong_count(&used) > 1 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SECOND, until_unused).await.expect("the answer ends with its connection");
}
