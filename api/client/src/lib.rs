//! How every other part talks to the API server: kube's `Client`, over TLS or over the server's
//! own tower service in the same process; informers; the event recorder; leases, leader election and
//! the fence around a leader's writes; what nodes report in their Leases.

pub mod connect;
pub mod demand;
pub mod error;
pub mod events;
pub mod fence;
pub mod informer;
pub mod lease;

pub use kube;
