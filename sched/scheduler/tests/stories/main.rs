//! The scheduler with the real API server in this process, on a store in memory: Pods with claims, gangs of Pods, and extenders over HTTP on loopback.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "what a story cannot do fails it")]

mod bind;
mod broken;
mod devices;
mod extender;
mod filter;
mod gangs;
mod images;
mod preempt;
mod support;
mod tls;
mod volumes;
