//! What the served kinds look like: their fields, types, list and merge semantics, and the
//! discovery and OpenAPI documents that tell clients so.
//!
//! The fields come from k8s-openapi's types; what those lack (list types and map keys, patch merge
//! keys and strategies, defaults, enumerations) is a table of facts here, checked against the types
//! by a test. The fields of custom resources come from their definitions ([`Structural`]) and show the
//! same tree. Inputs are [`Kind`]s and names, outputs are a walkable [`Schema`] and JSON documents.
//! Nothing here validates, defaults or merges: that is the business of those who walk the schemas.
//!
//! Walk trees are built once for a type and kept, without descriptions. Documents are made anew for
//! each call, since they are large and rarely asked for: whoever serves them keeps what it wants.

mod builtin;
mod custom;
pub mod discovery;
mod facts;
mod numbers;
pub mod openapi;
pub mod regexp;
mod schema;
mod strategy;
mod structural;
mod types;

pub use builtin::of_gvk;
pub use custom::{of_kind, structural};
pub use numbers::{settle_numbers, whole};
pub use schema::{Format, Schema, Shape};
pub use strategy::{ListType, MapType, PatchStrategy};
pub use structural::{Additional, Limits, Pattern, Structural, ValidationRule};

#[cfg(doc)]
use api_model::kind::Kind;
