//! The wire formats: paths, queries, media types and their negotiation, bodies in JSON, YAML and protobuf, tables,
//! errors as `metav1.Status`, compression, warnings. A request or a value goes in, a typed value or bytes come out.
//!
//! The crate knows no verbs and no stored objects. Lists and watches, which are made from the cache's bytes, are in
//! `api-server` (`present`).

pub mod accept;
pub mod answer;
pub mod body;
pub mod deadline;
pub mod gzip;
pub mod holding;
pub mod json;
pub mod media;
pub mod options;
pub mod path;
pub mod pretty;
pub mod protobuf;
pub mod query;
pub mod status;
pub mod table;
pub mod warnings;
pub mod yaml;
