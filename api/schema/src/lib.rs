//! The schemas of the served kinds (fields, types, list and merge semantics), and the discovery and OpenAPI documents.
//!
//! The fields come from k8s-openapi's types. A table of facts adds what the types lack (list types and map keys, patch merge
//! keys and strategies, defaults, enumerations); a test checks the table against the types. The fields of custom resources
//! come from their definitions ([`Structural`]) and have the same tree. The input is [`Kind`]s and names, the output is a
//! [`Schema`] to walk and JSON documents. Validation, defaulting and merging are in other crates, which walk the schemas.
//!
//! A tree is built once per type, without descriptions, and stays in memory. A document is built for each call, because it
//! is large and rarely requested; the server caches what it needs.

mod builtin;
mod custom;
pub mod discovery;
mod facts;
pub mod openapi;
pub mod regexp;
mod schema;
mod strategy;
mod structural;
mod types;

pub use builtin::of_gvk;
pub use custom::{of_kind, structural};
pub use schema::{Format, Schema, Shape};
pub use strategy::{ListType, MapType, PatchStrategy};
pub use structural::{Additional, Limits, Pattern, Structural, ValidationRule};

#[cfg(doc)]
use api_model::kind::Kind;
