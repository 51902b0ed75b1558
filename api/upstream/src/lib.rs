//! Outgoing connections: to webhooks, aggregated servers, nodes and the backends of proxies. TLS, pools of connections that
//! are used again, the endpoints behind a Service, the addresses that a proxy may lead to, and a request passed on whole.
//!
//! This crate knows no verb and no admission: its callers decide what is sent to whom.

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
