//! SPDY/3.1 as Kubernetes' clients use it for `exec`, `attach` and `port-forward`, plain or inside a websocket: frames
//! ([`frame`]), header blocks ([`headers`]) and the server's side of a connection ([`connection`]). The crate handles the bytes
//! of one connection; the caller knows the meaning of its streams.
//!
//! SPDY was withdrawn long before Kubernetes stopped using it, and no maintained crate implements it. This crate implements
//! what such a connection needs: no push, no priorities, no credentials. Everything that a peer sends has a limit.

pub mod connection;
mod dictionary;
pub mod frame;
pub mod headers;
mod shared;
mod stream;

pub use connection::{Connection, Limits, SpdyError, serve};
pub use headers::Headers;
pub use stream::{Lost, Receiving, Sending, Stream};

#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
mod tests;
