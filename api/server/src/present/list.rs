//! Lists as a concatenation of the bytes in the cache, sent in pieces, so that a large list needs no additional memory;
//! and the continue tokens of pages.

mod encoded;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, header};
use http_body::{Frame, SizeHint};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::encoded::Encoded;
use super::{Part, Presentation};
use api_cache::{Behind, NamespacedName, Object, Page};
use api_wire::gzip::{self, Compressor};
use api_wire::json;
use api_wire::protobuf::{self, EncodeError, order};
use api_wire::status::{ApiError, ApiResult};

/// Size of one piece of a list, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// How many bytes an object of common size may exceed that.
const OVER_BYTES: usize = 8 * 1024;

/// The response with a list.
pub(crate) async fn respond(presentation: &Presentation, page: Page) -> Response<Body> {
    let metadata = metadata(&page);
    if presentation.is_protobuf() {
        let encoded = Encoded::make(presentation, &page.items).await;
        return match encoded.and_then(|items| ListBody::protobuf(items, &metadata)) {
            Ok(body) => body.answer(presentation),
            Err(error) => ApiError::not_encodable(&error).into_response(),
        };
    }
    let Some(part) = presentation.verbatim_items(&page.items) else {
        return presentation.value(http::StatusCode::OK, &presentation.list(&page, metadata));
    };
    let kind = &presentation.served.kind;
    let (list_kind, version) = match part {
        Part::Whole | Part::Item => (kind.list_kind(), kind.api_version()),
        Part::Metadata(version) => ("PartialObjectMetadataList".to_owned(), version.to_owned()),
    };
    let head =
        format!("{{\"kind\":\"{list_kind}\",\"apiVersion\":\"{version}\",\"metadata\":{},\"items\":[", order::list_metadata(&metadata));
    ListBody::json(head.into(), page.items, part).answer(presentation)
}

fn metadata(page: &Page) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(last) = &page.more {
        json::set(&mut metadata, &["continue"], Token::after(page.revision, last, page.remaining).encode());
    }
    if let Some(remaining) = page.remaining {
        json::set(&mut metadata, &["remainingItemCount"], remaining);
    }
    metadata
}

/// The body of a list.
struct ListBody {
    head: Bytes,
    items: Items,
    tail: &'static [u8],
    /// Number of bytes still to send, before compression.
    remaining: usize,
    done: bool,
    compressor: Option<Compressor>,
}

/// Items still to send.
enum Items {
    Json { items: std::vec::IntoIter<Arc<Object>>, part: Part, first: bool },
    Protobuf(Encoded),
}

impl Items {
    /// Appends the next item; returns whether there was one.
    fn append(&mut self, piece: &mut BytesMut) -> bool {
        match self {
            Self::Json { items, part, first } => {
                let Some(object) = items.next() else { return false };
                if !std::mem::take(first) {
                    piece.extend_from_slice(b",");
                }
                part.write(&object, piece);
                true
            }
            Self::Protobuf(items) => items.append(piece),
        }
    }
}

impl ListBody {
    fn json(head: Bytes, items: Vec<Arc<Object>>, part: Part) -> Self {
        const TAIL: &[u8] = b"]}\n";
        let commas = items.len().saturating_sub(1);
        let remaining = head.len() + commas + TAIL.len() + items.iter().map(|object| part.len(object)).sum::<usize>();
        let items = Items::Json { items: items.into_iter(), part, first: true };
        Self { head, items, tail: TAIL, remaining, done: false, compressor: None }
    }

    fn protobuf(items: Encoded, metadata: &Value) -> Result<Self, EncodeError> {
        let head = items.head(metadata)?;
        let remaining = head.len() + items.len() + protobuf::TAIL.len();
        Ok(Self { head: head.into(), items: Items::Protobuf(items), tail: protobuf::TAIL, remaining, done: false, compressor: None })
    }

    fn answer(mut self, presentation: &Presentation) -> Response<Body> {
        let compress = presentation.gzip && self.remaining >= gzip::THRESHOLD_BYTES;
        self.compressor = compress.then(Compressor::default);
        let mut response = Response::new(Body::new(self));
        if compress {
            gzip::mark(response.headers_mut());
        }
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(presentation.media.content_type()));
        presentation.mark(&mut response);
        response
    }

    fn piece(&mut self) -> Bytes {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES.saturating_add(OVER_BYTES).min(self.remaining));
        piece.extend_from_slice(&std::mem::take(&mut self.head));
        while piece.len() < PIECE_BYTES {
            if !self.items.append(&mut piece) {
                piece.extend_from_slice(self.tail);
                self.done = true;
                break;
            }
        }
        self.remaining = self.remaining.saturating_sub(piece.len());
        piece.freeze()
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if self.done {
                return Poll::Ready(None);
            }
            let piece = self.piece();
            let piece = match (self.compressor.take(), self.done) {
                (None, _) => piece,
                (Some(compressor), true) => compressor.finish_with(&piece).into(),
                (Some(mut compressor), false) => {
                    let ready = compressor.push(&piece);
                    self.compressor = Some(compressor);
                    ready.into()
                }
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }

    fn size_hint(&self) -> SizeHint {
        match self.compressor {
            None if !self.done => SizeHint::with_exact(self.remaining as u64),
            None => SizeHint::with_exact(0),
            Some(_) => SizeHint::default(),
        }
    }
}

/// The content of a continue token, in upstream's encoding, with one additional field.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Token {
    v: String,
    /// -1: the current revision.
    rv: i64,
    start: String,
    /// The number of objects after `start`, if it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<usize>,
}

impl Token {
    fn after(revision: u64, (namespace, name): &NamespacedName, left: Option<usize>) -> Self {
        let rv = i64::try_from(revision).unwrap_or(-1);
        Self { v: "meta.k8s.io/v1".to_owned(), rv, start: format!("{namespace}/{name}\0"), left }
    }

    /// A token for the same position in the current objects.
    pub(crate) fn inconsistent(&self) -> Self {
        Self { v: self.v.clone(), rv: -1, start: self.start.clone(), left: None }
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    pub(crate) fn decode(text: &str) -> ApiResult<Self> {
        let invalid = |why: &str| ApiError::bad_request(format!("continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| invalid(&error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        match token.v.as_str() {
            "meta.k8s.io/v1" if token.rv != 0 => Ok(token),
            "meta.k8s.io/v1" => Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
            _ => Err(invalid("server does not recognize this encoded version")),
        }
    }

    /// The revision; `None`: the current one.
    pub(crate) fn revision(&self) -> Option<u64> {
        u64::try_from(self.rv).ok()
    }

    /// The position of the last item that was sent.
    pub(crate) fn behind(&self) -> Behind {
        let start = self.start.trim_end_matches('\0');
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        Behind { name: (namespace.into(), name.into()), left: self.left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_were_written() {
        for (namespace, name) in [("default", "x"), ("", "node-1")] {
            let token = Token::decode(&Token::after(7, &(namespace.into(), name.into()), Some(3)).encode()).expect("ours");
            assert_eq!(token.revision(), Some(7));
            assert_eq!((token.behind().name, token.behind().left), ((namespace.into(), name.into()), Some(3)));
            assert_eq!((token.inconsistent().revision(), token.inconsistent().behind().left), (None, None));
        }
        for bad in ["", "!", "e30", &URL_SAFE_NO_PAD.encode(r#"{"v":"v9","rv":1,"start":"a"}"#)] {
            assert!(Token::decode(bad).is_err(), "{bad}");
        }
    }
}
