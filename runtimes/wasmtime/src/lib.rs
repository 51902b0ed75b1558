//! WASM containers. The agent's half ([`WasmtimeRuntime`], feature `compile`) compiles a module once,
//! ahead of time, in a confined process, into a cache on disk, and starts one shim a container. The shim's half (feature
//! `shim`, binary `skiff-shim-wasmtime`) maps the compiled file and runs it: preview 1 modules,
//! preview 2 commands, and `wasi:http/proxy` components served on a port. There is no compiler in it.
//!
//! The agent's half also compiles and maps components that another part of Skiff calls in its own process ([`Components`]), and
//! tells what a module is ([`Inspector`]).
//!
//! Both halves share the engine settings and the imports, so what compiles here runs there.

#[cfg(feature = "host")]
mod budget;
#[cfg(any(feature = "compile", feature = "shim"))]
mod builtin;
#[cfg(feature = "host")]
mod host;
#[cfg(any(feature = "compile", feature = "shim"))]
mod innermost;
mod kind;
#[cfg(feature = "shim")]
mod limits;
#[cfg(feature = "host")]
mod outbound;
#[cfg(feature = "host")]
mod outgoing;
#[cfg(feature = "host")]
mod settings;

#[cfg(feature = "compile")]
mod cache;
#[cfg(feature = "compile")]
mod compile;
#[cfg(feature = "compile")]
mod components;
#[cfg(feature = "compile")]
mod inspect;
#[cfg(feature = "compile")]
mod outline;
#[cfg(feature = "compile")]
mod runtime;
#[cfg(feature = "shim")]
pub mod shim;
#[cfg(any(feature = "compile", feature = "shim"))]
mod user;

#[cfg(feature = "compile")]
pub use cache::{CompiledModule, compiled_module};
#[cfg(feature = "compile")]
pub use compile::serve_compile;
#[cfg(feature = "compile")]
pub use components::Components;
#[cfg(feature = "compile")]
pub use inspect::{Detail, Inspector, ModuleReport, Names, serve_inspect};
pub use kind::Kind;
#[cfg(feature = "compile")]
pub use runtime::{Config, WasmtimeRuntime};

/// The compiled file in the root of a shim that has left the mounts of the node.
#[cfg(any(feature = "compile", feature = "shim"))]
const CODE: &str = "code.cwasm";

/// The user and group that a guest's shim runs as when its Pod names none: nobody.
pub const NOBODY: u32 = 65_534;
