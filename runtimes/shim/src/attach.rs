//! Attaching to a running container: its shim listens on a socket in the container's directory ([`hub`]), the agent connects to
//! it ([`connect`]). The container's output goes to every attached client and to the log; the clients' input goes to its stdin.
//!
//! Both sides send frames: a kind, a length in four bytes, the bytes.

mod client;
mod frame;
pub mod hub;

pub use client::connect;
pub use hub::Hub;

/// The socket's name in the container's directory.
const SOCKET: &str = "attach.sock";

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]
mod tests;
