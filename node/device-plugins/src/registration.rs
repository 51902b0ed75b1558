//! The service `v1beta1.Registration` on one connection of a plugin: each call is a `Register`.
//!
//! It is a small server of its own. See [`http2`] for why the headers of a call are not read.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http2::{self, Frame, flag, kind};
use crate::wire::RegisterRequest;

/// How long a connection may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls that may arrive at the same time.
const CALLS_MAX: usize = 4;
/// The bytes of a request.
const MESSAGE_LEN_MAX: usize = 8 << 10;
/// The bytes of the headers of a call.
const HEADERS_LEN_MAX: usize = 64 << 10;
/// The bytes of gRPC's frame around a message.
const PREFIX_LEN: usize = 5;
/// The bytes of the message of an error.
const ERROR_LEN_MAX: usize = 1_024;

/// `:status 200` in HPACK's static table.
const STATUS_200: u8 = 0x88;
/// HTTP/2's codes of errors.
const REFUSED_STREAM: u32 = 0x7;
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// The codes of gRPC. Errors of Go programs that name no code are unknown ones.
#[derive(Clone, Copy)]
enum Code {
    Ok = 0,
    Unknown = 2,
    Unimplemented = 12,
    Internal = 13,
}

/// A call whose request is not complete.
#[derive(Default)]
struct Call {
    message: Vec<u8>,
}

/// Serves a connection until the plugin closes it, or is silent for too long.
pub(crate) async fn serve<S, F>(mut stream: S, register: impl Fn(RegisterRequest) -> F) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Result<(), String>>,
{
    within(http2::read_preface(&mut stream)).await?;
    // SETTINGS_HEADER_TABLE_SIZE and SETTINGS_MAX_CONCURRENT_STREAMS.
    let calls_max = u32::try_from(CALLS_MAX).unwrap_or_default().to_be_bytes();
    let settings = [&[0, 1, 0, 0, 0, 0, 0, 3][..], &calls_max].concat();
    write(&mut stream, &[Frame::new(kind::SETTINGS, 0, 0, settings)]).await?;
    let mut calls: BTreeMap<u32, Call> = BTreeMap::new();
    while let Some(frame) = within(http2::read_frame(&mut stream)).await? {
        let complete = match frame.kind {
            kind::HEADERS => {
                let ends = frame.has(flag::END_STREAM);
                let number = frame.stream;
                skip_headers(&mut stream, frame).await?;
                begin(&mut stream, &mut calls, number).await?;
                ends.then_some(number)
            }
            kind::DATA => {
                let ends = frame.has(flag::END_STREAM).then_some(frame.stream);
                take(&mut stream, &mut calls, &frame).await?;
                ends
            }
            kind::RST_STREAM => {
                calls.remove(&frame.stream);
                None
            }
            kind::SETTINGS | kind::PING if !frame.has(flag::ACK) => {
                let payload = if frame.kind == kind::PING { frame.payload } else { Vec::new() };
                write(&mut stream, &[Frame::new(frame.kind, flag::ACK, 0, payload)]).await?;
                None
            }
            kind::PUSH_PROMISE | kind::CONTINUATION => return Err(http2::malformed("a frame that no client sends here")),
            _ => None,
        };
        if let Some((number, call)) = complete.and_then(|number| Some((number, calls.remove(&number)?))) {
            let answer = match decode(&call.message) {
                Ok(request) => register(request).await.map_err(|message| (Code::Unknown, message)),
                Err(error) => Err(error),
            };
            write(&mut stream, &response(number, answer)).await?;
        }
    }
    Ok(())
}

async fn within<T>(reading: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(IDLE_TIMEOUT, reading).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), frames: &[Frame]) -> io::Result<()> {
    within(http2::write_frames(stream, frames)).await
}

/// Reads the rest of a block of headers.
async fn skip_headers(stream: &mut (impl AsyncRead + Unpin), first: Frame) -> io::Result<()> {
    let (number, mut len, mut is_whole) = (first.stream, first.payload.len(), first.has(flag::END_HEADERS));
    while !is_whole {
        let next = within(http2::read_frame(stream)).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if next.kind != kind::CONTINUATION || next.stream != number {
            return Err(http2::malformed("headers are not continued"));
        }
        // An empty frame counts too.
        len += next.payload.len().max(1);
        if len > HEADERS_LEN_MAX {
            return Err(http2::malformed("the headers are too large"));
        }
        is_whole = next.has(flag::END_HEADERS);
    }
    Ok(())
}

/// Begins a call; the headers after its data begin none.
async fn begin(stream: &mut (impl AsyncWrite + Unpin), calls: &mut BTreeMap<u32, Call>, number: u32) -> io::Result<()> {
    if number.is_multiple_of(2) {
        return Err(http2::malformed("a stream that no client begins"));
    }
    if calls.len() >= CALLS_MAX && !calls.contains_key(&number) {
        return reset(stream, number, REFUSED_STREAM).await;
    }
    calls.entry(number).or_default();
    Ok(())
}

/// Takes a part of a request, and gives the client the room back on the connection. Its room on the stream is larger than a request.
async fn take(stream: &mut (impl AsyncWrite + Unpin), calls: &mut BTreeMap<u32, Call>, frame: &Frame) -> io::Result<()> {
    let data = frame.data().ok_or_else(|| http2::malformed("more padding than data"))?;
    if !frame.payload.is_empty() {
        let room = u32::try_from(frame.payload.len()).unwrap_or_default().to_be_bytes();
        write(stream, &[Frame::new(kind::WINDOW_UPDATE, 0, 0, room.to_vec())]).await?;
    }
    let Some(call) = calls.get_mut(&frame.stream) else { return Ok(()) };
    if call.message.len() + data.len() > MESSAGE_LEN_MAX + PREFIX_LEN {
        calls.remove(&frame.stream);
        return reset(stream, frame.stream, ENHANCE_YOUR_CALM).await;
    }
    call.message.extend(data);
    Ok(())
}

async fn reset(stream: &mut (impl AsyncWrite + Unpin), number: u32, code: u32) -> io::Result<()> {
    write(stream, &[Frame::new(kind::RST_STREAM, 0, number, code.to_be_bytes().to_vec())]).await
}

/// The one message of a request.
fn decode(bytes: &[u8]) -> Result<RegisterRequest, (Code, String)> {
    let internal = |message: &str| (Code::Internal, message.to_owned());
    let Some((prefix, message)) = bytes.split_at_checked(PREFIX_LEN) else { return Err(internal("a request without a message")) };
    let Ok([compressed, len @ ..]) = <[u8; PREFIX_LEN]>::try_from(prefix) else { return Err(internal("a request without a message")) };
    if compressed != 0 {
        return Err((Code::Unimplemented, "compressed messages are not supported".to_owned()));
    }
    if usize::try_from(u32::from_be_bytes(len)).ok() != Some(message.len()) {
        return Err(internal("a request of another length than it says"));
    }
    RegisterRequest::decode(message).map_err(|error| internal(&error.to_string()))
}

/// The frames of an answer. An error has no message, and its status comes with the headers.
fn response(number: u32, answer: Result<(), (Code, String)>) -> Vec<Frame> {
    let headers = [vec![STATUS_200], http2::header("content-type", "application/grpc")].concat();
    let status = |code: Code| http2::header("grpc-status", &(code as u8).to_string());
    let last = flag::END_HEADERS | flag::END_STREAM;
    match answer {
        Ok(()) => vec![
            Frame::new(kind::HEADERS, flag::END_HEADERS, number, headers),
            Frame::new(kind::DATA, 0, number, vec![0; PREFIX_LEN]),
            Frame::new(kind::HEADERS, last, number, status(Code::Ok)),
        ],
        Err((code, message)) => {
            let message = http2::header("grpc-message", &percent_encoded(&message));
            vec![Frame::new(kind::HEADERS, last, number, [headers, status(code), message].concat())]
        }
    }
}

/// gRPC's encoding of messages: printable ASCII characters but the percent sign stay.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes().take(ERROR_LEN_MAX) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
