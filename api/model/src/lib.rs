//! The parts of the Kubernetes object model that all parts of Skiff share: the table of served kinds and of the parts
//! that act on their fields, metadata, selectors, quantities, huge pages, resizes, schedules, the decoder of bodies, field errors, formats of
//! labels, Go's reading of texts, users and request attributes, and the read-only view of the stored objects. No I/O, no async code.

pub mod acted;
pub mod cron;
pub mod decode;
pub mod field;
pub mod format;
pub mod go;
pub mod huge_pages;
pub mod json_path;
pub mod kind;
pub mod local_path;
pub mod message;
pub mod meta;
pub mod numbers;
pub mod percent;
pub mod pod_resize;
pub mod quantity;
pub mod request;
pub mod selector;
pub mod storage;
pub mod sysctl;
pub mod view;
pub mod zero;

pub use k8s_openapi;
