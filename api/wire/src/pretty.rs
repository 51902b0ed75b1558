//! Indented JSON for people: clients that send `pretty`, and tools that people run, get it, as upstream.

use std::pin::Pin;
use std::task::{Context, Poll};

use api_model::go::parse_bool;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Response, header};
use http_body::Frame;
use http_body_util::BodyExt as _;

use crate::accept;
use crate::media::Indentable;

/// Programs whose output people read.
const TOOLS: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
/// Answers up to this length are sent as a whole, so that they have a content length.
const WHOLE_BYTES_MAX: usize = 512 << 10;
/// How much is indented at once: nested as deeply as it may be, it becomes some 250 times as long.
const PIECE_BYTES: usize = 4 << 10;

/// Whether a client wants indented JSON. `requested` is the query parameter `pretty`, which decides if it is present.
pub fn is_wanted(headers: &HeaderMap, requested: Option<&str>) -> bool {
    if accept::text(headers).is_some_and(|accept| accept.split([';', ',']).any(|part| part.trim() == "pretty=1")) {
        return true;
    }
    if let Some(requested) = requested.filter(|requested| !requested.is_empty()) {
        return parse_bool(requested).unwrap_or_default();
    }
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    TOOLS.iter().any(|tool| agent.starts_with(tool))
}

/// Indents an answer, if it is to be indented.
pub async fn indent(answer: Response<Body>) -> Response<Body> {
    let is_plain = !answer.headers().contains_key(header::CONTENT_ENCODING);
    if answer.extensions().get::<Indentable>().is_none() || !is_plain {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, whole_or_rest(Indented { body, rest: Bytes::new(), indenter: Indenter::default() }).await)
}

/// The body in one piece when it is short, and otherwise piece by piece.
async fn whole_or_rest(mut indented: Indented) -> Body {
    let mut begun = BytesMut::new();
    while begun.len() <= WHOLE_BYTES_MAX {
        match indented.frame().await {
            None => return Body::from(begun.freeze()),
            Some(Ok(frame)) => begun.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Some(Err(error)) => return Body::from_stream(stream::once(async move { Err::<Bytes, _>(error) })),
        }
    }
    let begun = stream::once(async move { Ok::<_, axum::Error>(begun.freeze()) });
    Body::from_stream(begun.chain(Body::new(indented).into_data_stream()))
}

/// A body that is indented piece by piece.
struct Indented {
    body: Body,
    /// Bytes that are not indented yet.
    rest: Bytes,
    indenter: Indenter,
}

impl http_body::Body for Indented {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(this.indenter.indent(&piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

/// Go's `json.Indent` by two spaces, over JSON that arrives in pieces.
#[derive(Debug, Default)]
struct Indenter {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// A list or map was opened, and nothing of it was read yet.
    opened: bool,
}

impl Indenter {
    fn indent(&mut self, piece: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(piece.len() + piece.len() / 2);
        for &byte in piece {
            if self.in_text {
                self.in_text = self.escaped || byte != b'"';
                self.escaped = !self.escaped && byte == b'\\';
                out.extend_from_slice(&[byte]);
            } else if !byte.is_ascii_whitespace() {
                self.token(byte, &mut out);
            }
        }
        out.freeze()
    }

    fn token(&mut self, byte: u8, out: &mut BytesMut) {
        let closes = matches!(byte, b']' | b'}');
        match (std::mem::take(&mut self.opened), closes) {
            (true, false) => {
                self.depth += 1;
                self.line(out);
            }
            (false, true) => {
                self.depth = self.depth.saturating_sub(1);
                self.line(out);
            }
            (true, true) | (false, false) => {}
        }
        out.extend_from_slice(&[byte]);
        match byte {
            b'{' | b'[' => self.opened = true,
            b',' => self.line(out),
            b':' => out.extend_from_slice(b" "),
            b'"' => self.in_text = true,
            _ => {}
        }
    }

    fn line(&self, out: &mut BytesMut) {
        out.extend_from_slice(b"\n");
        for _ in 0..self.depth {
            out.extend_from_slice(b"  ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn people_and_who_asks_get_it() {
        for (agent, accept, requested, expected) in [
            ("curl/7.88.1", "", None, true),
            ("Wget/1.21", "", None, true),
            ("Mozilla/5.0 (X11)", "", Some(""), true),
            ("kubectl/v1.37.0", "", None, false),
            ("kubectl/v1.37.0", "", Some("true"), true),
            ("kubectl/v1.37.0", "", Some("1"), true),
            ("kubectl/v1.37.0", "application/json;pretty=1", None, true),
            ("curl/7.88.1", "", Some("false"), false),
            ("curl/7.88.1", "", Some("0"), false),
            ("curl/7.88.1", "", Some("maybe"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, agent.parse().expect("text"));
            headers.insert(header::ACCEPT, accept.parse().expect("text"));
            assert_eq!(is_wanted(&headers, requested), expected, "{agent} {accept} {requested:?}");
        }
    }

    #[test]
    fn json_in_pieces_is_indented_as_a_whole() {
        let value = json!({"a": [1, {"b": {}, "c": []}, "}\\\"{[,:"], "d": {"e": null}, "f": "ä", "g": [[], [[]]]});
        let compact = format!("{value}\n");
        let whole = serde_json::to_string_pretty(&value).expect("JSON");
        for len in [1, 2, 7, compact.len()] {
            let mut indenter = Indenter::default();
            let pieces: Vec<u8> = compact.as_bytes().chunks(len).flat_map(|piece| indenter.indent(piece).to_vec()).collect();
            assert_eq!(String::from_utf8(pieces).expect("text"), whole, "in pieces of {len}");
        }
    }

    /// Nested lists cost two spaces a level in each line. The reader of a deep object must not fill the memory with them.
    #[tokio::test]
    async fn deep_nesting_comes_in_small_pieces() {
        let deep = (0..100).fold(Value::from(vec![1; 100_000]), |inner, _| json!([inner]));
        let text = deep.to_string();
        let mut answer = Response::new(Body::from(text));
        answer.extensions_mut().insert(Indentable);
        let mut body = indent(answer).await.into_body();
        let (mut written, mut longest) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a frame").into_data().expect("data");
            longest = longest.max(data.len());
            written.extend_from_slice(&data);
        }
        assert!(longest < 2 << 20, "{longest} bytes at once");
        assert!(written == serde_json::to_string_pretty(&deep).expect("JSON").into_bytes());
    }

    #[tokio::test]
    async fn only_what_is_marked_is_touched() {
        let long: Value = (0..100_000).collect::<Vec<_>>().into();
        for (value, is_marked) in [(json!({"a": 1}), true), (json!({"a": 1}), false), (long, true)] {
            let mut answer = Response::new(Body::from(value.to_string()));
            if is_marked {
                answer.extensions_mut().insert(Indentable);
            }
            let written = axum::body::to_bytes(indent(answer).await.into_body(), usize::MAX).await.expect("a body");
            let wanted = if is_marked { serde_json::to_string_pretty(&value).expect("JSON") } else { value.to_string() };
            assert!(written == wanted.as_bytes(), "{value:.40}");
        }
    }
}
