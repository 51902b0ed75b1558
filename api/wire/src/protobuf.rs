//! Objects of built-in kinds in protobuf, as Go clients read and write them: an envelope that names the kind, and in it
//! upstream's message. Conversion is from and to JSON, the one form that the rest of the server uses. A table made from
//! published definitions has the message of each kind and the number of each field. Kinds without messages, custom resources
//! above all, have no protobuf form.

mod decode;
mod encode;
mod envelope;
pub mod order;
mod read;
mod special;
mod table;
#[cfg(test)]
mod tests;
mod write;

use serde_json::Value;
use thiserror::Error;

pub use self::envelope::{ListForm, TAIL, decode, frame, frames};
use self::table::Message;

/// The media type.
pub const MEDIA: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a watch: events one after the other, each preceded by its length.
pub const MEDIA_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const MAGIC: &[u8] = b"k8s\0";

/// Why a body was rejected. The words are those of upstream's decoder.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// The body does not begin as an object in protobuf does.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Magic,
    /// The message ends early.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has too many bytes.
    #[error("proto: integer overflow")]
    Overflow,
    /// The field number is invalid.
    #[error("proto: illegal tag {0} (wire type {1})")]
    IllegalTag(u64, u64),
    /// The wire type is invalid.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u64),
    /// A field has another wire type than its definition.
    #[error("proto: wrong wireType = {0} for field {1}")]
    WrongWireType(u8, &'static str),
    /// A text is no UTF-8.
    #[error("proto: text that is not UTF-8")]
    Utf8,
    /// The message is nested too deeply.
    #[error("proto: messages are nested too deeply")]
    Deep,
    /// A time is out of range.
    #[error("proto: a time that is none")]
    Time,
    /// JSON within the message is damaged.
    #[error("proto: raw JSON that is none")]
    Json,
    /// Not a kind that has a protobuf form here.
    #[error("the object's kind has no protobuf form")]
    UnknownKind,
}

/// Why something cannot be sent as protobuf.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// Objects of that kind have no message.
    #[error("object {0} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message")]
    NoForm(String),
    /// The object of that kind has fields that its message lacks.
    #[error("object {kind} cannot be encoded to a protobuf message")]
    Fields {
        /// The kind.
        kind: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// A kind's form in protobuf.
#[derive(Clone, Debug)]
pub struct Form {
    api_version: String,
    kind: String,
    message: &'static Message,
}

impl Form {
    /// The protobuf form of a kind, if it has one.
    pub fn of(api_version: &str, kind: &str) -> Result<Self, EncodeError> {
        match table::root(api_version, kind) {
            Some(message) => Ok(Self { api_version: api_version.to_owned(), kind: kind.to_owned(), message }),
            None => Err(EncodeError::NoForm(format!("{api_version}, Kind={kind}"))),
        }
    }

    /// Whether a kind has one.
    pub fn exists(api_version: &str, kind: &str) -> bool {
        table::root(api_version, kind).is_some()
    }

    /// The message of an object, without envelope, as in a list. It contains the fields of the JSON that the message has:
    /// partial metadata uses the metadata of a whole object.
    pub fn message(&self, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
        // Nearly always less than the JSON: names are numbers.
        let mut out = Vec::with_capacity(json.len() / 2);
        encode::object(self.message, json, &mut out).map_err(|source| EncodeError::Fields { kind: self.kind.clone(), source })?;
        Ok(out)
    }

    /// An object in its envelope.
    pub fn encode(&self, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
        let message = self.message(json)?;
        let mut out = self.head(message.len());
        out.extend_from_slice(&message);
        out.extend_from_slice(envelope::TAIL);
        Ok(out)
    }
}

/// A message whose envelope names its kind. A message without a version, such as the list of versions, is of the first version.
pub fn encode(value: &Value) -> Result<Vec<u8>, EncodeError> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    Form::of(text("apiVersion").unwrap_or("v1"), text("kind").unwrap_or_default())?.encode(value.to_string().as_bytes())
}
