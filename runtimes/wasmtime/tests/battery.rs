//! The battery on wasmtime, and what is particular to WASM containers. Needs root and cgroups; run it
//! with the shim built: `cargo nextest run -p runtimes-wasmtime --features shim`.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

#[path = "battery/components.rs"]
mod components;
#[path = "battery/copying.rs"]
mod copying;
#[path = "battery/cores.rs"]
mod cores;
#[path = "battery/cost.rs"]
mod cost;
#[path = "battery/exec.rs"]
mod exec;
#[path = "battery/first_start.rs"]
mod first_start;
#[path = "battery/fuel.rs"]
mod fuel;
#[path = "battery/guests.rs"]
mod guests;
#[path = "battery/harness.rs"]
mod harness;
#[path = "battery/http.rs"]
mod http;
#[path = "battery/interfaces.rs"]
mod interfaces;
#[path = "battery/keyvalue.rs"]
mod keyvalue;
#[path = "battery/memory.rs"]
mod memory;
#[path = "battery/modules.rs"]
mod modules;
#[path = "battery/names.rs"]
mod names;
#[path = "battery/outbound.rs"]
mod outbound;
#[path = "battery/proposals.rs"]
mod proposals;
#[path = "battery/protocols.rs"]
mod protocols;
#[path = "battery/reuse.rs"]
mod reuse;
#[path = "battery/sockets.rs"]
mod sockets;
#[path = "battery/wasi_0_3.rs"]
mod wasi_0_3;
#[path = "battery/wasm.rs"]
mod wasm;

runtimes_battery::battery!(harness::Wasmtime::new());
