//! The end of a connection that gets no endpoint: an HTTP client reads why, others get a reset.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The beginnings of HTTP/1 requests.
const METHODS: [&[u8]; 9] = [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"TRACE "];
/// The longest of them.
const METHOD_LEN_MAX: usize = 8;
/// How long a client that has sent nothing is waited for, and how long it may take to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a request that are read after the answer. A connection with unread bytes would be reset, and the client might not
/// read the answer.
const DRAINED_MAX: usize = 1 << 20;

/// Answers an HTTP/1 request with `503 Service Unavailable` and this text; resets every other connection.
pub(super) async fn refuse(mut client: TcpStream, why: &str) {
    let mut head = [0; METHOD_LEN_MAX];
    let len = match timeout(PATIENCE, client.peek(&mut head)).await {
        Ok(Ok(len)) => len,
        Ok(Err(_)) | Err(_) => 0,
    };
    let head = head.get(..len).unwrap_or_default();
    if !METHODS.iter().any(|method| head.starts_with(method)) {
        return reset(client);
    }
    let body = if head.starts_with(b"HEAD ") { String::new() } else { format!("{why}\n") };
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    match timeout(PATIENCE, send(&mut client, answer.as_bytes())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "refusal not sent"),
        Err(_) => tracing::debug!("refusal not read in time"),
    }
}

async fn send(client: &mut TcpStream, answer: &[u8]) -> std::io::Result<()> {
    client.write_all(answer).await?;
    client.shutdown().await?;
    let (mut buffer, mut drained) = ([0; 4096], 0);
    while drained < DRAINED_MAX {
        match client.read(&mut buffer).await? {
            0 => break,
            len => drained += len,
        }
    }
    Ok(())
}

/// Ends a connection at once.
pub(super) fn reset(client: TcpStream) {
    if let Err(error) = client.set_zero_linger() {
        tracing::debug!(%error, "connection closed instead of reset");
    }
}
