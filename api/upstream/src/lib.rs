//! Outgoing connections: to webhooks, aggregated servers, nodes and the backends of proxies. The crate has TLS,
//! connection pools, the endpoints of a Service, the addresses that a proxy may connect to, and the forwarding of
//! requests.
//!
//! This crate knows neither verbs nor admission: its callers decide what they send, and to which server.

pub mod backend;
pub mod failure;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod headers;
pub mod keepalive;
pub mod pass;
pub mod pool;
pub mod proxyable;
pub mod resolve;
pub mod reused;
pub mod tls;
pub mod webhook;
