//! Scheduler plugins as WebAssembly components of the world `skiff:scheduler` (`wit/scheduler.wit`).
//!
//! A profile of the scheduler's configuration declares a plugin by its image. The image comes in by [`Images`], its component is
//! compiled by `runtimes-wasmtime`, and runs in this process, in a sandbox: memory, instructions and time are bounded, and it can
//! import nothing but a log. The plugins go out as [`sched_framework::ExternalPlugins`]. A version of an image that cannot be used is
//! reported, and the version before it stays in use.

mod host;
mod instance;
mod load;
mod metrics;
mod plugin;
mod sandbox;
mod set;
mod ticker;
mod values;
mod wasi;

pub use load::{Images, ImagesError, Module};
pub use set::WasmPlugins;
