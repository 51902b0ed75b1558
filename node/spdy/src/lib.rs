//! SPDY/3.1 as Kubernetes' clients speak it for `exec`, `attach` and `port-forward`, plain or inside a
//! websocket: frames ([`frame`]), header blocks ([`headers`]) and the server's side of a connection
//! ([`connection`]). Bytes of one connection go in and out; which streams mean what is the caller's.
//!
//! SPDY was withdrawn long before Kubernetes let go of it, and no kept-up crate has it. Of the protocol
//! there is what such a connection needs: no push, no priorities, no credentials. Everything that a
//! peer sends has a limit.

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
