//! OpenAPI documents, for `kubectl explain`, client-side validation and patch strategies. Version 3 has an index and one
//! document for each group and version. Version 2 is one document for all kinds, as JSON or as protobuf.
//!
//! Documents are large (core/v1 has a megabyte) and rarely requested, so only their hashes stay in memory. A document depends
//! only on the kinds of its group and version.

mod definitions;
mod gnostic;
mod operations;
mod others;
mod parameters;
mod render;

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::{fmt, io};

use api_model::kind::Kind;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use self::others::{Others, Unfit, v2_others, v2_part};
use crate::discovery::{groups, versions};
use crate::types::Types;

/// The content type of OpenAPI v2 as protobuf. Clients accept this name or one with `@` instead of the dot before `v1.0`.
/// The response must have this name, since Go's parser of media types rejects `@`.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The Kubernetes version whose types the documents describe.
const KUBERNETES_VERSION: &str = "v1.37.0";

/// `/openapi/v3`: the index of the documents of all groups and versions. The `hash` in each URL changes with the document,
/// so that clients can cache it.
///
/// The first call builds every document for its hash; later calls build only documents whose kinds changed.
pub fn v3_index(kinds: &[Arc<Kind>]) -> Value {
    let mut paths = Map::new();
    let types = LazyCell::<Types>::new(Types::described);
    for group in groups(kinds) {
        for version in versions(group, kinds) {
            let path = path_of(group, version);
            let hash = hash_of(&types, group, version, kinds).unwrap_or_default();
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
        }
    }
    json!({"paths": paths})
}

/// The hash of a document in [`v3_index`], which is also its `ETag`. `None` for a version that is not served.
pub fn v3_hash(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<String> {
    hash_of(&LazyCell::new(Types::described), group, version, kinds)
}

fn hash_of(types: &LazyCell<Types>, group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<String> {
    /// The hash of each path, with the kinds of the hashed document. The number of groups and versions limits the size.
    type Hashes = Mutex<HashMap<String, (Vec<Arc<Kind>>, String)>>;
    static HASHES: LazyLock<Hashes> = LazyLock::new(Mutex::default);
    let own = own_kinds(group, version, kinds);
    let path = path_of(group, version);
    if let Some((_, hash)) = HASHES.lock().get(&path).filter(|(hashed, _)| *hashed == own) {
        return Some(hash.clone());
    }
    let mut hash = Hashing(Sha256::new());
    // A write into a hash cannot fail.
    let _ = write_v3(&mut hash, types, &own);
    let hash: String = hash.0.finalize().iter().map(|byte| format!("{byte:02X}")).collect();
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
    let mut schemas = Map::new();
    definitions::each(&Types::described(), &own, &mut |name, schema, _| drop(schemas.insert(name.to_owned(), schema)));
    Some(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": security()},
    }))
}

/// [`v3`] as JSON text, written piece by piece. This takes a quarter of the memory.
pub fn v3_json(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Option<Vec<u8>> {
    let own = own_kinds(group, version, kinds);
    if own.is_empty() {
        return None;
    }
    let mut out = Vec::new();
    write_v3(&mut out, &Types::described(), &own).ok()?;
    Some(out)
}

fn write_v3(out: &mut impl io::Write, types: &Types, own: &[Arc<Kind>]) -> io::Result<()> {
    write!(out, r#"{{"openapi":"3.0.0","info":{},"components":{{"securitySchemes":{},"schemas":"#, info(), security())?;
    let mut schemas = Entries::new(out);
    definitions::each(types, own, &mut |name, schema, _| schemas.put(name, &schema));
    schemas.end()?;
    out.write_all(br#"},"paths":"#)?;
    let mut paths = Entries::new(out);
    operations::paths(own).iter().for_each(|item| paths.put(&item.path, &render::v3_path(item)));
    paths.end()?;
    out.write_all(b"}")
}

/// `/openapi/v2` as JSON.
pub fn v2(kinds: &[Arc<Kind>]) -> Value {
    let paths: Map<String, Value> = operations::paths(kinds).iter().map(|item| (item.path.clone(), render::v2_path(item))).collect();
    let mut schemas = Map::new();
    definitions::each(&Types::described(), kinds, &mut |name, schema, author| {
        drop(schemas.insert(name.to_owned(), render::v2_definition(schema, author)))
    });
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": schemas,
        "security": [{"BearerToken": []}],
        "securityDefinitions": security(),
    })
}

/// [`v2`] as JSON text, written piece by piece, with the parts of other servers' documents.
pub fn v2_json(kinds: &[Arc<Kind>], others: &Others) -> Vec<u8> {
    let mut out = Vec::new();
    // A write into memory cannot fail.
    let _ = write_v2(&mut out, kinds, others);
    out
}

fn write_v2(out: &mut impl io::Write, kinds: &[Arc<Kind>], others: &Others) -> io::Result<()> {
    let security = security();
    write!(
        out,
        r#"{{"swagger":"2.0","info":{},"security":[{{"BearerToken":[]}}],"securityDefinitions":{security},"definitions":"#,
        info()
    )?;
    let mut schemas = Entries::new(out);
    definitions::each(&Types::described(), kinds, &mut |name, schema, author| {
        schemas.put(name, &others.completed(name, render::v2_definition(schema, author)))
    });
    others.definitions.iter().for_each(|(name, schema)| schemas.put(name, schema));
    schemas.end()?;
    if !others.parameters.is_empty() {
        out.write_all(br#","parameters":"#)?;
        let mut parameters = Entries::new(out);
        others.parameters.iter().for_each(|(name, parameter)| parameters.put(name, parameter));
        parameters.end()?;
    }
    out.write_all(br#","paths":"#)?;
    let mut paths = Entries::new(out);
    operations::paths(kinds).iter().for_each(|item| paths.put(&item.path, &render::v2_path(item)));
    others.paths.iter().for_each(|(path, item)| paths.put(path, item));
    paths.end()?;
    out.write_all(b"}")
}

/// An OpenAPI v2 document as gnostic's protobuf. Its content type is [`V2_PROTOBUF`].
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    let mut encoder = gnostic::Encoder::new(document);
    let entries = |section: &str| document.get(section).and_then(Value::as_object).into_iter().flatten();
    entries("paths").for_each(|(path, item)| encoder.path(path, item));
    entries("definitions").for_each(|(name, schema)| encoder.definition(name, schema));
    entries("parameters").for_each(|(name, parameter)| encoder.parameter(name, parameter));
    encoder.finish()
}

/// [`v2_protobuf`] of [`v2`] of these kinds, written piece by piece, with the parts of other servers' documents.
pub fn v2_protobuf_of(kinds: &[Arc<Kind>], others: &Others) -> Vec<u8> {
    let frame = json!({"swagger": "2.0", "info": info(), "security": [{"BearerToken": []}], "securityDefinitions": security()});
    let mut encoder = gnostic::Encoder::new(&frame);
    operations::paths(kinds).iter().for_each(|item| encoder.path(&item.path, &render::v2_path(item)));
    others::values(&others.paths).for_each(|(path, item)| encoder.path(path, &item));
    definitions::each(&Types::described(), kinds, &mut |name, schema, author| {
        encoder.definition(name, &others.completed(name, render::v2_definition(schema, author)));
    });
    others::values(&others.definitions).for_each(|(name, schema)| encoder.definition(name, &schema));
    others::values(&others.parameters).for_each(|(name, parameter)| encoder.parameter(name, &parameter));
    encoder.finish()
}

/// Writes the entries of a JSON object. The first error ends the writing; [`Entries::end`] returns it.
struct Entries<'a, W: io::Write> {
    out: &'a mut W,
    result: io::Result<()>,
    before: &'static str,
}

impl<'a, W: io::Write> Entries<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Self { out, result: Ok(()), before: "{" }
    }

    /// `value` is JSON text.
    fn put(&mut self, name: &str, value: &impl fmt::Display) {
        if self.result.is_ok() {
            self.result = write!(self.out, "{}{}:{value}", self.before, Value::from(name));
            self.before = ",";
        }
    }

    fn end(self) -> io::Result<()> {
        self.result?;
        self.out.write_all(if self.before == "{" { b"{}" } else { b"}" })
    }
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

fn info() -> Value {
    json!({"title": "Kubernetes", "version": KUBERNETES_VERSION})
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
