//! What every part of Skiff agrees on about the Kubernetes object model: the table of served
//! kinds and who acts on their fields, the shape of metadata, selectors, quantities, field errors, formats of labels,
//! texts as Go reads them, users and request attributes, and the read-only view of what is stored. No I/O, nothing asynchronous.

pub mod acted;
pub mod field;
pub mod format;
pub mod go;
pub mod json_path;
pub mod kind;
pub mod message;
pub mod meta;
pub mod percent;
pub mod quantity;
pub mod request;
pub mod selector;
pub mod view;
pub mod zero;

pub use k8s_openapi;
