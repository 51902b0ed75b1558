//! OpenAPI documents: what `kubectl explain`, client-side validation and patch strategies are read
//! from. Version 3 has an index and one document for each group and version; version 2 is one document
//! for all, as JSON or as protobuf.
//!
//! Documents are large (core/v1 is a megabyte) and asked for rarely, so nothing of them is kept here but
//! their hashes. A document depends on nothing but the kinds of its group and version.

mod definitions;
mod gnostic;
mod operations;
mod parameters;
mod render;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock};

use api_model::kind::Kind;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::discovery::{groups, versions};

/// The Kubernetes version whose types the documents describe.
const KUBERNETES_VERSION: &str = "v1.37.0";

/// `/openapi/v3`: the index of one document for each group and version. `hash` in each address changes
/// when the document does, so that clients may keep what they have.
///
/// The first call makes every document once to hash it; later ones only those whose kinds changed.
pub fn v3_index(kinds: &[Arc<Kind>]) -> Value {
    let mut paths = Map::new();
    for group in groups(kinds) {
        for version in versions(group, kinds) {
            let path = path_of(group, version);
            let hash = v3_hash(group, version, kinds).unwrap_or_default();
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
        }
    }
    json!({"paths": paths})
}

/// The hash that [`v3_index`] gives for a document: also its `ETag`. `None` for a version that is not served.
pub fn v3_hash(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<String> {
    /// For each path the kinds it was hashed for. Bounded by the groups and versions ever served.
    type Hashes = Mutex<HashMap<String, (Vec<Arc<Kind>>, String)>>;
    static HASHES: LazyLock<Hashes> = LazyLock::new(Mutex::default);
    let own = own_kinds(group, version, kinds);
    let path = path_of(group, version);
    if let Some((_, hash)) = HASHES.lock().get(&path).filter(|(hashed, _)| *hashed == own) {
        return Some(hash.clone());
    }
    let hash = hash_of(&v3(group, version, kinds)?);
    HASHES.lock().insert(path, (own, hash.clone()));
    Some(hash)
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`; `None` for a version that is not served.
pub fn v3(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<Value> {
    let own = own_kinds(group, version, kinds);
    if own.is_empty() {
        return None;
    }
    let paths: Map<String, Value> = operations::paths(&own).iter().map(|item| (item.path.clone(), render::v3_path(item))).collect();
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
        "paths": paths,
        "components": {"schemas": definitions::definitions(&own), "securitySchemes": security()},
    }))
}

/// `/openapi/v2` as JSON.
pub fn v2(kinds: &[Arc<Kind>]) -> Value {
    let paths: Map<String, Value> = operations::paths(kinds).iter().map(|item| (item.path.clone(), render::v2_path(item))).collect();
    let definitions: Map<String, Value> =
        definitions::definitions(kinds).into_iter().map(|(name, schema)| (name, render::v2_schema(schema))).collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION},
        "paths": paths,
        "definitions": definitions,
        "security": [{"BearerToken": []}],
        "securityDefinitions": security(),
    })
}

/// An OpenAPI v2 document as gnostic's protobuf, the content type
/// `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    gnostic::document(document)
}

/// The hash of a document, upper-case hex as upstream's.
pub fn hash_of(document: &Value) -> String {
    let mut hash = Hashing(Sha256::new());
    // Writing into a hash cannot fail, and a JSON value always serializes.
    let _ = serde_json::to_writer(&mut hash, document);
    hash.0.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

struct Hashing(Sha256);

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn own_kinds(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Vec<Arc<Kind>> {
    kinds.iter().filter(|kind| kind.group == group && kind.version == version).cloned().collect()
}

/// `api/v1` or `apis/GROUP/VERSION`.
fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn security() -> Value {
    json!({"BearerToken": {"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}})
}

#[cfg(test)]
mod tests;
