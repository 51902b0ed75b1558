//! The media type of an answer, and which view of an object it contains.

use crate::protobuf;

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// The view of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object as it is.
    Object,
    /// As a row of a `meta.k8s.io` Table.
    Table,
    /// `PartialObjectMetadata`, and `PartialObjectMetadataList` for lists.
    Metadata,
}

/// A chosen representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    /// How it is written.
    pub encoding: Encoding,
    /// The view of an object.
    pub form: Form,
    /// Whether `Form::Table` and `Form::Metadata` are of `meta.k8s.io/v1beta1`.
    pub beta: bool,
}

impl Media {
    /// Plain JSON.
    pub const JSON: Self = Self { encoding: Encoding::Json, form: Form::Object, beta: false };

    /// `apiVersion` of tables and partial metadata.
    pub fn meta_version(self) -> &'static str {
        if self.beta { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
    }

    /// The `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => protobuf::MEDIA,
        }
    }

    /// The content type of a watch.
    pub fn stream_content_type(self) -> &'static str {
        match self.encoding {
            Encoding::Protobuf => protobuf::MEDIA_WATCH,
            _ => self.content_type(),
        }
    }
}

/// Marks an answer in JSON that may be indented: objects, lists, tables, Statuses and discovery, but no streams.
#[derive(Clone, Copy, Debug)]
pub struct Indentable;
