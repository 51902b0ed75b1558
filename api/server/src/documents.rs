//! Discovery and OpenAPI documents. Each is made at the first request for it and kept. Clients that have it do not get it again
//! (`ETag`).

use std::collections::HashMap;
use std::sync::Arc;

use api_model::kind::Kind;
use api_schema::{discovery, openapi};
use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::aggregation::Aggregation;
use crate::external_metrics;
use api_wire::accept;
use api_wire::media::{Encoding, Indentable};
use api_wire::pretty;
use api_wire::protobuf::order;
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};
use api_wire::{gzip, protobuf};

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_BETA: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const AGGREGATED_PROTOBUF: &str = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_BETA_PROTOBUF: &str = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// A document at an address with its hash never changes. Clients may keep it for a year, as upstream.
const CACHED_FOR_GOOD: &str = "public, immutable, max-age=31536000";

/// The documents that were made for one table of kinds.
#[derive(Clone, Default)]
pub(crate) struct Documents {
    made: Arc<Mutex<Made>>,
    /// Held while a large document is made.
    build_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Made {
    /// The state that the documents were made of.
    of: Moment,
    documents: HashMap<Name, Document>,
}

/// The number of the table of kinds, and the number of changes of other servers' documents.
type Moment = (u64, u64);

impl Documents {
    fn known(&self, of: Moment, name: &Name) -> Option<Document> {
        let made = self.made.lock();
        made.documents.get(name).filter(|_| made.of == of).cloned()
    }

    /// A document that takes long to make. One is made at a time, on a thread for blocking work; requests for it wait.
    async fn made(
        &self,
        name: Name,
        now: impl Fn() -> Moment,
        make: impl FnOnce() -> Option<Bytes> + Send + 'static,
    ) -> ApiResult<Document> {
        let build_lock = Arc::clone(&self.build_lock).lock_owned().await;
        let of = now();
        if let Some(document) = self.known(of, &name) {
            return Ok(document);
        }
        let documents = self.clone();
        // The client may leave: the lock is held until the document is made.
        let making = api_tasks::blocking("api-server/documents", move || {
            let _permit = build_lock;
            let document = Document::new(make()?);
            documents.keep(of, name, document.clone());
            Some(document)
        });
        making.await.map_err(ApiError::internal)?.ok_or_else(ApiError::no_such_resource)
    }

    fn keep(&self, of: Moment, name: Name, document: Document) {
        // The old documents are freed after the lock is released.
        let mut old = Made { of, documents: HashMap::new() };
        let mut made = self.made.lock();
        if made.of < of {
            std::mem::swap(&mut *made, &mut old);
        }
        // A document of an older table is not stored.
        if made.of == of {
            made.documents.insert(name, document);
        }
    }
}

/// Which document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Api(Flavour, Encoding),
    Apis(Flavour, Encoding),
    Group(String, Encoding),
    Resources(String, String, Encoding),
    OpenApiV2 { protobuf: bool },
    OpenApiV3Index,
    OpenApiV3(String, String),
}

/// Which discovery document the client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flavour {
    Legacy,
    Aggregated,
    AggregatedBeta,
}

#[derive(Clone)]
struct Document {
    bytes: Bytes,
    etag: HeaderValue,
}

/// Answers a path of discovery or OpenAPI.
pub(crate) async fn answer(documents: &Documents, aggregation: &Arc<Aggregation>, parts: &Parts) -> ApiResult<Response<Body>> {
    let name = name(parts.uri.path(), &parts.headers).ok_or_else(ApiError::no_such_resource)?;
    let (media, is_discovery) = (name.media(), name.is_discovery() && name.encoding() == Encoding::Json);
    let (of, registry) = (now(aggregation), &aggregation.core.registry);
    let document = match documents.known(of, &name) {
        Some(document) => document,
        None if name.takes_long() => {
            let (making, made) = (Arc::clone(aggregation), name.clone());
            documents.made(name, || now(aggregation), move || make(&making, &making.core.registry.table().kinds, &made)).await?
        }
        None => {
            let kinds = if name.is_discovery() { external_metrics::discovered(&aggregation.core) } else { registry.table().kinds.clone() };
            let document = Document::new(make(aggregation, &kinds, &name).ok_or_else(ApiError::no_such_resource)?);
            documents.keep(of, name, document.clone());
            document
        }
    };
    match requested_hash(parts) {
        None => Ok(document.respond(parts, media, is_discovery)),
        Some(hash) if document.is_hashed(hash) => {
            let mut response = document.respond(parts, media, is_discovery);
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(CACHED_FOR_GOOD));
            Ok(response)
        }
        Some(_) => Ok(document.moved(parts.uri.path())),
    }
}

fn now(aggregation: &Aggregation) -> Moment {
    (aggregation.core.registry.table().number, aggregation.number())
}

/// The hash in the addresses that the index of OpenAPI v3 gives.
fn requested_hash(parts: &Parts) -> Option<&str> {
    let query = parts.uri.query().filter(|_| parts.uri.path().starts_with("/openapi/v3/"))?;
    query.split('&').find_map(|pair| pair.strip_prefix("hash="))
}

fn name(path: &str, headers: &HeaderMap) -> Option<Name> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (flavour, encoding) = flavour(headers);
    let plain = accept::of_errors(headers);
    Some(match segments.as_slice() {
        ["api"] => Name::Api(flavour, encoding),
        ["apis"] => Name::Apis(flavour, encoding),
        ["api", version] => Name::Resources(String::new(), (*version).to_owned(), plain),
        ["apis", group] => Name::Group((*group).to_owned(), plain),
        ["apis", group, version] => Name::Resources((*group).to_owned(), (*version).to_owned(), plain),
        ["openapi", "v2"] => Name::OpenApiV2 { protobuf: accept(headers).contains("proto-openapi.spec.v2") },
        ["openapi", "v3"] => Name::OpenApiV3Index,
        ["openapi", "v3", "api", version] => Name::OpenApiV3(String::new(), (*version).to_owned()),
        ["openapi", "v3", "apis", group, version] => Name::OpenApiV3((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    })
}

fn accept(headers: &HeaderMap) -> &str {
    accept::text(headers).unwrap_or_default()
}

/// The first of the client's media ranges that is one of ours.
fn flavour(headers: &HeaderMap) -> (Flavour, Encoding) {
    let ranges = accept(headers).split(',').map(|range| range.split(';').map(str::trim).collect::<Vec<_>>());
    for range in ranges {
        let has = |part: &str| range.contains(&part);
        let media = range.first().copied().unwrap_or_default();
        let encoding = if media == protobuf::MEDIA { Encoding::Protobuf } else { Encoding::Json };
        if has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList") {
            if has("v=v2") {
                return (Flavour::Aggregated, encoding);
            }
            if has("v=v2beta1") {
                return (Flavour::AggregatedBeta, encoding);
            }
        } else if matches!(media, JSON | "*/*" | "application/*" | protobuf::MEDIA) {
            return (Flavour::Legacy, encoding);
        }
    }
    (Flavour::Legacy, Encoding::Json)
}

fn make(aggregation: &Aggregation, kinds: &[Arc<Kind>], name: &Name) -> Option<Bytes> {
    let value: Value = match name {
        Name::Api(Flavour::Legacy, _) => discovery::api_versions(&aggregation.core.config.advertise_address.to_string()),
        Name::Apis(Flavour::Legacy, _) => aggregation.with_groups(discovery::api_group_list(kinds), kinds),
        Name::Api(flavour, _) => discovery::aggregated(kinds, true, *flavour == Flavour::AggregatedBeta),
        Name::Apis(flavour, _) => {
            aggregation.with_discovery(discovery::aggregated(kinds, false, *flavour == Flavour::AggregatedBeta), kinds)
        }
        Name::Group(group, _) => aggregation.group(discovery::api_group(group, kinds), group, kinds)?,
        Name::Resources(group, version, _) => discovery::api_resource_list(group, version, kinds)?,
        Name::OpenApiV2 { protobuf: false } => return Some(openapi::v2_json(kinds, &aggregation.with_openapi_v2(kinds)).into()),
        Name::OpenApiV2 { protobuf: true } => return Some(openapi::v2_protobuf_of(kinds, &aggregation.with_openapi_v2(kinds)).into()),
        Name::OpenApiV3Index => aggregation.with_openapi(openapi::v3_index(kinds)),
        Name::OpenApiV3(group, version) => return openapi::v3_json(group, version, kinds).map(Into::into),
    };
    match name.encoding() {
        Encoding::Protobuf => protobuf::encode(&value).ok().map(Into::into),
        _ if name.is_discovery() => Some(order::line(&value).into()),
        _ => Some(value.to_string().into()),
    }
}

impl Name {
    /// Whether the document contains those of other servers, which may be large.
    fn takes_long(&self) -> bool {
        matches!(self, Self::OpenApiV2 { .. })
    }

    fn is_discovery(&self) -> bool {
        matches!(self, Self::Api(..) | Self::Apis(..) | Self::Group(..) | Self::Resources(..))
    }

    fn encoding(&self) -> Encoding {
        match self {
            Self::Api(_, encoding) | Self::Apis(_, encoding) | Self::Group(_, encoding) | Self::Resources(_, _, encoding) => *encoding,
            _ => Encoding::Json,
        }
    }

    fn media(&self) -> &'static str {
        match (self, self.encoding()) {
            (Self::Api(Flavour::Aggregated, _) | Self::Apis(Flavour::Aggregated, _), Encoding::Protobuf) => AGGREGATED_PROTOBUF,
            (Self::Api(Flavour::AggregatedBeta, _) | Self::Apis(Flavour::AggregatedBeta, _), Encoding::Protobuf) => {
                AGGREGATED_BETA_PROTOBUF
            }
            (Self::Api(Flavour::Aggregated, _) | Self::Apis(Flavour::Aggregated, _), _) => AGGREGATED,
            (Self::Api(Flavour::AggregatedBeta, _) | Self::Apis(Flavour::AggregatedBeta, _), _) => AGGREGATED_BETA,
            (Self::OpenApiV2 { protobuf: true }, _) => openapi::V2_PROTOBUF,
            (_, Encoding::Protobuf) => protobuf::MEDIA,
            _ => JSON,
        }
    }
}

impl Document {
    fn new(bytes: Bytes) -> Self {
        let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02X}")).collect();
        // Hexadecimal digits in quotes are a valid header.
        let etag = HeaderValue::from_str(&format!("\"{hash}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { bytes, etag }
    }

    fn hash(&self) -> &str {
        self.etag.to_str().unwrap_or_default().trim_matches('"')
    }

    fn is_hashed(&self, hash: &str) -> bool {
        self.hash() == hash
    }

    /// A redirect to the present document, for a client that asks for an older one.
    fn moved(&self, path: &str) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        if let Ok(location) = HeaderValue::from_str(&format!("{path}?hash={}", self.hash())) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }

    fn respond(&self, parts: &Parts, media: &'static str, is_discovery: bool) -> Response<Body> {
        let headers = &parts.headers;
        let is_indented = is_discovery && pretty::is_wanted(headers, Query::parse(parts.uri.query()).get("pretty"));
        let mut response = if headers.get(header::IF_NONE_MATCH) == Some(&self.etag) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            gzip::respond(self.bytes.clone(), gzip::accepted(headers) && !is_indented)
        };
        if is_discovery {
            response.extensions_mut().insert(Indentable);
        }
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        response.headers_mut().insert(header::ETAG, self.etag.clone());
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        response
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_takes_long_is_made_once_and_leaves_the_runtime_alone() {
        let (documents, times) = (Documents::default(), Arc::new(AtomicUsize::new(0)));
        let (begun, begins) = std::sync::mpsc::channel();
        let (go_on, gate) = std::sync::mpsc::channel();
        let gate = Arc::new(Mutex::new(gate));
        let requests = (0..8).map(|_| {
            let (times, begun, gate) = (Arc::clone(&times), begun.clone(), Arc::clone(&gate));
            let make = move || {
                times.fetch_add(1, Ordering::SeqCst);
                begun.send(()).expect("waited for");
                gate.lock().recv().expect("let go on");
                Some(Bytes::from_static(b"made"))
            };
            let name = Name::OpenApiV2 { protobuf: false };
            let documents = documents.clone();
            tokio::spawn(async move { documents.made(name, || (1, 1), make).await.expect("made").bytes })
        });
        let requests: Vec<_> = requests.collect();
        // This runtime has one thread, and that is not held up.
        while begins.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        go_on.send(()).expect("somebody makes it");
        for request in requests {
            assert_eq!(request.await.expect("answered"), "made");
        }
        assert_eq!(times.load(Ordering::SeqCst), 1);
        let later = documents.made(Name::OpenApiV2 { protobuf: false }, || (1, 2), || Some(Bytes::from_static(b"another"))).await;
        assert_eq!(later.expect("made").bytes, "another", "what it is made of has changed");
    }
}
