//! The presentation of objects to one client: the shared bytes, another kind's view, a table, or metadata alone; in JSON, YAML or
//! protobuf.

use std::sync::Arc;

use api_model::kind::Kind;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) mod conversion;
pub(crate) mod list;
pub(crate) mod stream;

use crate::registry::{External, Internal, Served};
use api_cache::{Change, Delivery, FrameStatus, Object, Page, write_line};
use api_wire::accept::{self, Answer, negotiate};
use api_wire::gzip;
use api_wire::json;
use api_wire::media::{Encoding, Form, Indentable, Media};
use api_wire::pretty;
use api_wire::protobuf::{self, EncodeError, order};
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};
use api_wire::table::{IncludeObject, partial, row, table};
use api_wire::yaml;

/// The form and the encoding that a client asked for, for one kind.
#[derive(Clone, Debug)]
pub(crate) struct Presentation {
    pub(crate) served: Arc<Served>,
    pub(crate) media: Media,
    include: IncludeObject,
    pub(crate) gzip: bool,
}

/// A part of an object's bytes in the cache, which is sent without parsing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// An item of a list, which states kind and version for all items.
    Item,
    /// A PartialObjectMetadata of that version.
    Metadata(&'static str),
}

/// The text around the metadata of a PartialObjectMetadata, without its version.
const PARTIAL: [&[u8]; 3] = [b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"", b"\",\"metadata\":", b"}"];

impl Part {
    /// Writes it.
    pub(crate) fn write(self, object: &Object, out: &mut BytesMut) {
        let version = match self {
            Self::Whole => return object.write(out),
            Self::Item => return object.write_item(out),
            Self::Metadata(version) => version,
        };
        let [kind, metadata, end] = PARTIAL;
        out.extend_from_slice(kind);
        out.extend_from_slice(version.as_bytes());
        out.extend_from_slice(metadata);
        object.write_metadata(out);
        out.extend_from_slice(end);
    }

    /// Its length in bytes.
    pub(crate) fn len(self, object: &Object) -> usize {
        match self {
            Self::Whole => object.json_len(),
            Self::Item => object.item_len(),
            Self::Metadata(version) => PARTIAL.concat().len() + version.len() + object.metadata_len(),
        }
    }
}

impl Presentation {
    pub(crate) fn negotiate(served: &Arc<Served>, headers: &HeaderMap, query: &Query, answer: Answer) -> ApiResult<Self> {
        let has_protobuf = || served.custom.is_none() && protobuf::Form::exists(&served.kind.api_version(), &served.kind.kind);
        let media = negotiate(accept::text(headers), answer, &has_protobuf)?;
        let include = query.get("includeObject");
        let include = IncludeObject::parse(include).ok_or_else(|| {
            ApiError::bad_request(format!("unrecognized includeObject value: {}", Value::from(include.unwrap_or_default())))
        })?;
        // Answers that are indented for people are not compressed.
        let gzip = gzip::accepted(headers) && !pretty::is_wanted(headers, query.get("pretty"));
        Ok(Self { served: Arc::clone(served), media, include, gzip })
    }

    /// [`Presentation::negotiate`] for an answer that is always the object itself: of subresources and reviews.
    pub(crate) fn plain(served: &Arc<Served>, headers: &HeaderMap, query: &Query) -> ApiResult<Self> {
        let mut presentation = Self::negotiate(served, headers, query, Answer::Object)?;
        presentation.media.form = Form::Object;
        Ok(presentation)
    }

    /// The part of an object's bytes in the cache that the client gets, if the object is up to date with its kind's definition. None:
    /// the client gets something else.
    fn verbatim(&self) -> Option<Part> {
        let is_verbatim = self.media.encoding == Encoding::Json && !self.served.is_view();
        match self.media.form {
            _ if !is_verbatim => None,
            Form::Object => Some(Part::Whole),
            Form::Metadata => Some(Part::Metadata(self.media.meta_version())),
            Form::Table => None,
        }
    }

    /// [`Presentation::verbatim`] of these objects, if all of them are up to date.
    pub(crate) fn verbatim_of<'o>(&self, objects: impl IntoIterator<Item = &'o Arc<Object>>) -> Option<Part> {
        self.verbatim().filter(|_| objects.into_iter().all(|object| self.served.is_current(object)))
    }

    /// [`Presentation::verbatim_of`] as items of a list. As upstream, only items of custom resources have a kind and a version.
    pub(crate) fn verbatim_items(&self, objects: &[Arc<Object>]) -> Option<Part> {
        let part = self.verbatim_of(objects)?;
        Some(if part == Part::Whole && self.served.custom.is_none() { Part::Item } else { part })
    }

    /// The answer to a request for an object.
    pub(crate) fn object(&self, status: StatusCode, object: &Object) -> Response<Body> {
        if self.verbatim() == Some(Part::Whole) && self.served.is_current(object) {
            return self.respond(status, object.line());
        }
        if self.is_protobuf() {
            return self.respond_encoded(status, self.encoded(object));
        }
        self.unstored(status, &self.served.current(object))
    }

    pub(crate) fn is_protobuf(&self) -> bool {
        self.media.encoding == Encoding::Protobuf
    }

    /// The protobuf form of an object for the client.
    pub(crate) fn form(&self) -> Result<protobuf::Form, EncodeError> {
        match self.media.form {
            Form::Metadata => protobuf::Form::of(self.media.meta_version(), "PartialObjectMetadata"),
            Form::Object | Form::Table => protobuf::Form::of(&self.served.kind.api_version(), &self.served.kind.kind),
        }
    }

    /// The protobuf form of a list of such objects.
    pub(crate) fn list_form(&self) -> Result<protobuf::ListForm, EncodeError> {
        match self.media.form {
            Form::Metadata => protobuf::ListForm::of(self.media.meta_version(), "PartialObjectMetadataList"),
            Form::Object | Form::Table => protobuf::ListForm::of(&self.served.kind.api_version(), &self.served.kind.list_kind()),
        }
    }

    /// An object for the client, in JSON.
    pub(crate) fn json(&self, object: &Object) -> Bytes {
        if self.served.is_view() || !self.served.is_current(object) {
            return self.served.external(&self.served.current(object)).to_string().into();
        }
        let part = match self.media.form {
            Form::Metadata => Part::Metadata(self.media.meta_version()),
            Form::Object | Form::Table => Part::Whole,
        };
        let mut out = BytesMut::with_capacity(part.len(object));
        part.write(object, &mut out);
        out.freeze()
    }

    fn encoded(&self, object: &Object) -> Result<Vec<u8>, EncodeError> {
        self.form()?.encode(&self.json(object))
    }

    fn respond_encoded(&self, status: StatusCode, encoded: Result<Vec<u8>, EncodeError>) -> Response<Body> {
        match encoded {
            Ok(bytes) => self.respond(status, bytes.into()),
            Err(error) => ApiError::not_encodable(&error).into_response(),
        }
    }

    /// An object that is not stored, such as that of a dry run.
    pub(crate) fn unstored(&self, status: StatusCode, object: &Internal) -> Response<Body> {
        let value = self.in_form(object);
        self.value(status, &value)
    }

    /// A value of another kind than the path's, such as a Scale: itself, or as a table.
    pub(crate) fn foreign(&self, status: StatusCode, kind: &Kind, value: &Value) -> Response<Body> {
        if self.media.form != Form::Table {
            return self.value(status, value);
        }
        let version = self.media.meta_version();
        let metadata = json!({"resourceVersion": api_model::meta::resource_version(value)});
        let row = row(version, (kind, value), value, self.include, api_clock::now());
        self.value(status, &table(version, metadata, kind, vec![row], true))
    }

    /// An object in the form that the client asks for.
    fn in_form<'o>(&self, object: &'o Internal) -> External<'o> {
        let external = self.served.external(object);
        match self.media.form {
            Form::Object => external,
            Form::Metadata => External::new(partial(self.media.meta_version(), &external)),
            Form::Table => {
                let metadata = json!({"resourceVersion": api_model::meta::resource_version(object)});
                let row = self.row(object, api_clock::now());
                External::new(table(self.media.meta_version(), metadata, &self.served.kind, vec![row], true))
            }
        }
    }

    /// A row of a table. The columns of a view are those of the internal form, which holds the most.
    fn row(&self, object: &Internal, now: Timestamp) -> Value {
        let kind = if self.served.is_view() { &self.served.stored } else { &self.served.kind };
        row(self.media.meta_version(), (kind, object), &self.served.external(object), self.include, now)
    }

    /// Any JSON, in the client's encoding.
    pub(crate) fn value(&self, status: StatusCode, value: &Value) -> Response<Body> {
        let bytes = match self.media.encoding {
            Encoding::Json => order::line(value),
            Encoding::Yaml => yaml::text(value).into_bytes(),
            Encoding::Protobuf => return self.respond_encoded(status, protobuf::encode(value)),
        };
        self.respond(status, Bytes::from(bytes))
    }

    fn respond(&self, status: StatusCode, bytes: Bytes) -> Response<Body> {
        let mut response = gzip::respond(bytes, self.gzip);
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media.content_type()));
        self.mark(&mut response);
        response
    }

    /// Marks an answer that may be indented.
    pub(crate) fn mark(&self, response: &mut Response<Body>) {
        if self.media.encoding == Encoding::Json {
            response.extensions_mut().insert(Indentable);
        }
    }

    /// A list that is not sent verbatim.
    pub(crate) fn list(&self, page: &Page, metadata: Value) -> Value {
        if self.media.form == Form::Table {
            let now = api_clock::now();
            let rows = page.items.iter().map(|object| self.row(&self.served.current(object), now)).collect();
            return table(self.media.meta_version(), metadata, &self.served.kind, rows, true);
        }
        self.list_of(page.items.iter().map(|object| self.served.external(&self.served.current(object)).into_value()), metadata)
    }

    /// A list of objects in external form.
    pub(crate) fn list_of(&self, values: impl Iterator<Item = Value>, metadata: Value) -> Value {
        let version = self.media.meta_version();
        let kind = &self.served.kind;
        match self.media.form {
            Form::Object => {
                let is_typed = self.served.custom.is_none();
                let items: Vec<Value> = values.map(|value| if is_typed { item(value) } else { value }).collect();
                json!({"kind": kind.list_kind(), "apiVersion": kind.api_version(), "metadata": metadata, "items": items})
            }
            Form::Metadata => {
                let items: Vec<Value> = values.map(|value| partial(version, &value)).collect();
                json!({"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": metadata, "items": items})
            }
            Form::Table => {
                let now = api_clock::now();
                table(version, metadata, kind, values.map(|value| row(version, (kind, &value), &value, self.include, now)).collect(), true)
            }
        }
    }

    /// A watch's line for an object. `first` is whether the client has seen no table columns yet.
    pub(crate) fn write_line(&self, change: Change, object: &Object, first: bool, out: &mut BytesMut) -> FrameStatus {
        if self.is_protobuf() {
            let (frame, written) = framed(change, self.encoded(object));
            out.extend_from_slice(&frame);
            return written;
        }
        match self.verbatim().filter(|_| self.served.is_current(object)) {
            Some(part) => write_line(change.word(), out, |out| part.write(object, out)),
            None => {
                let text = order::text(&self.in_watch(&self.served.current(object), first));
                write_line(change.word(), out, |out| out.extend_from_slice(&text));
            }
        }
        FrameStatus::Complete
    }

    /// A watch's lines for a delivery.
    pub(crate) fn lines(&self, delivery: &Delivery, mut first: bool) -> (Bytes, FrameStatus) {
        let objects = || delivery.changes().iter().filter_map(|(change, event)| Some((*change, event.object(*change)?)));
        if self.verbatim_of(objects().map(|(_, object)| object)) == Some(Part::Whole) {
            return (delivery.lines(), FrameStatus::Complete);
        }
        let mut lines = || {
            let mut lines = BytesMut::new();
            let mut write =
                |(change, object): (Change, &Arc<Object>)| self.write_line(change, object, std::mem::take(&mut first), &mut lines);
            let written =
                if objects().any(|line| write(line) == FrameStatus::Failed) { FrameStatus::Failed } else { FrameStatus::Complete };
            (lines.freeze(), written)
        };
        let is_shared = self.is_protobuf() && self.media.form == Form::Object && !self.served.is_view();
        if is_shared { delivery.frames(lines) } else { lines() }
    }

    fn in_watch(&self, object: &Internal, first: bool) -> Value {
        let mut value = self.in_form(object).into_value();
        if self.media.form == Form::Table && !first {
            json::set(&mut value, &["columnDefinitions"], Value::Null);
        }
        value
    }

    /// A watch's bookmark: everything up to `revision` was sent.
    pub(crate) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            json::set(&mut metadata, &["annotations"], json!({"k8s.io/initial-events-end": "true"}));
        }
        let kind = &self.served.kind;
        let object = match self.media.form {
            Form::Object => json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata}),
            Form::Metadata => json!({"kind": "PartialObjectMetadata", "apiVersion": self.media.meta_version(), "metadata": metadata}),
            Form::Table => {
                let row = json!({"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": self.media.meta_version(), "metadata": metadata}});
                table(self.media.meta_version(), json!({"resourceVersion": revision.to_string()}), kind, vec![row], false)
            }
        };
        self.line("BOOKMARK", &object)
    }

    /// A watch's ERROR, its last event.
    pub(crate) fn failure(&self, error: &ApiError) -> Bytes {
        self.line("ERROR", &error.to_value())
    }

    fn line(&self, word: &str, value: &Value) -> Bytes {
        if self.is_protobuf() {
            return protobuf::encode(value).map_or_else(|error| unframed(&error), |bytes| protobuf::frame(word, &bytes));
        }
        let mut line = BytesMut::new();
        write_line(word, &mut line, |out| out.extend_from_slice(&order::text(value)));
        line.freeze()
    }
}

/// An object without kind and version, which its list states for all items.
fn item(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

/// A watch's frame in protobuf; for an object without a protobuf form, a frame with the error.
fn framed(change: Change, encoded: Result<Vec<u8>, EncodeError>) -> (Bytes, FrameStatus) {
    match encoded {
        Ok(bytes) => (protobuf::frame(change.word(), &bytes), FrameStatus::Complete),
        Err(error) => (unframed(&error), FrameStatus::Failed),
    }
}

fn unframed(error: &EncodeError) -> Bytes {
    // A Status has a protobuf form.
    let status = protobuf::encode(&ApiError::not_encodable(error).to_value()).unwrap_or_default();
    protobuf::frame("ERROR", &status)
}
