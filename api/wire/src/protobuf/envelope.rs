//! The bytes around messages: the envelope that names an object's kind, lists, and the frames of a watch.

use api_model::decode::Decoded;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::read::{self, Reader, Wire};
use super::table::{self, Kind, Shape};
use super::{EncodeError, Form, MAGIC, ProtobufError, decode as messages, write};

/// The fields after an object in its envelope: no encoding, no media type.
pub const TAIL: &[u8] = &[0x1a, 0, 0x22, 0];
/// The number of the field that holds an object in its envelope.
const RAW: u32 = 2;
/// Bytes of the length before a watch's event.
const FRAME_LEN: usize = 4;

/// Decodes an object in its envelope.
pub fn decode(body: &[u8]) -> Result<Decoded, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let (mut raw, mut type_meta): (&[u8], &[u8]) = (&[], &[]);
    let mut reader = Reader::new(envelope);
    while let Some((tag, wire)) = reader.next()? {
        match (tag, wire) {
            (1, Wire::Bytes(bytes)) => type_meta = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (1, _) => return Err(ProtobufError::WrongWireType(wire.number(), "TypeMeta")),
            (2, _) => return Err(ProtobufError::WrongWireType(wire.number(), "Raw")),
            _ => {}
        }
    }
    let api_version = read::text(read::last_bytes(type_meta, 1)?)?;
    let kind = read::text(read::last_bytes(type_meta, 2)?)?;
    let message = table::root(api_version, kind).ok_or(ProtobufError::UnknownKind)?;
    let mut object: Map<String, Value> = messages::object(message, raw)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Decoded { value: Value::Object(object), duplicates: Vec::new() })
}

impl Form {
    /// The bytes before a message of that length in its envelope.
    pub fn head(&self, len: usize) -> Vec<u8> {
        let mut type_meta = Vec::with_capacity(self.api_version.len() + self.kind.len() + 4);
        write::bytes(&mut type_meta, 1, self.api_version.as_bytes());
        write::bytes(&mut type_meta, 2, self.kind.as_bytes());
        let mut out = Vec::with_capacity(MAGIC.len() + type_meta.len() + len + 16);
        out.extend_from_slice(MAGIC);
        write::bytes(&mut out, 1, &type_meta);
        write::head(&mut out, RAW, len);
        out
    }
}

/// The form of a kind's lists.
#[derive(Clone, Debug)]
pub struct ListForm {
    list: Form,
    items: u32,
}

impl ListForm {
    /// The form of lists of that version and kind.
    pub fn of(api_version: &str, kind: &str) -> Result<Self, EncodeError> {
        let list = Form::of(api_version, kind)?;
        let numbered = |name| list.message.named(name).map(|(_, field)| field);
        match (numbered("metadata"), numbered("items")) {
            (Some(_), Some(items)) if items.shape == Shape::List && matches!(items.kind, Kind::Message(_)) => {
                Ok(Self { items: items.tag, list })
            }
            _ => Err(EncodeError::NoForm(format!("{api_version}, Kind={kind}"))),
        }
    }

    /// The bytes before the items: the envelope, which has the length of everything, and the list's metadata. `items_len` is
    /// the sum of the items' [`ListForm::item_len`].
    pub fn head(&self, metadata: &Value, items_len: usize) -> Result<Vec<u8>, EncodeError> {
        let metadata = serde_json::json!({ "metadata": metadata });
        let message = self.list.message(metadata.to_string().as_bytes())?;
        let mut out = self.list.head(message.len() + items_len);
        out.extend_from_slice(&message);
        Ok(out)
    }

    /// The bytes of an item with a message of that length in the list.
    pub fn item_len(&self, message_len: usize) -> usize {
        write::varint_len(u64::from(self.items) << 3) + write::varint_len(message_len as u64) + message_len
    }

    /// The bytes before an item's message.
    pub fn item_head(&self, out: &mut Vec<u8>, message_len: usize) {
        write::head(out, self.items, message_len);
    }
}

/// A watch's event around an object in its envelope.
pub fn frame(word: &str, object: &[u8]) -> Bytes {
    let mut raw = Vec::with_capacity(object.len() + 8);
    write::bytes(&mut raw, 1, object);
    let mut event = Vec::with_capacity(raw.len() + word.len() + 16 + FRAME_LEN);
    event.extend_from_slice(&[0; FRAME_LEN]);
    write::bytes(&mut event, 1, word.as_bytes());
    write::bytes(&mut event, 2, &raw);
    // No object is nearly as long as four bytes can express.
    let len = u32::try_from(event.len() - FRAME_LEN).unwrap_or(u32::MAX);
    if let Some(head) = event.first_chunk_mut::<FRAME_LEN>() {
        *head = len.to_be_bytes();
    }
    event.into()
}

/// The events in several frames, without their lengths.
pub fn frames(mut frames: Bytes) -> Vec<Bytes> {
    let mut events = Vec::new();
    while let Some(len) = frames.first_chunk::<FRAME_LEN>() {
        let len = u32::from_be_bytes(*len) as usize;
        let mut rest = frames.split_off(FRAME_LEN);
        let next = rest.split_off(len.min(rest.len()));
        events.push(rest);
        frames = next;
    }
    events
}
