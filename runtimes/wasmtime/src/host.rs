//! The imports of guests: the linkers, and the state of one running guest. The agent links a new module against the same
//! imports, so that an unknown import is an error at pull time.

mod config;
mod environment;
mod keyvalue;
mod logging;

use std::sync::Arc;

use wasmtime::component::{self, ResourceTable};
use wasmtime::{Engine, Linker};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::kind::Abi;
#[cfg(feature = "shim")]
use crate::limits::Limits;
use crate::outgoing::Outgoing;

#[cfg(feature = "shim")]
pub use keyvalue::redis::Client;
#[cfg(feature = "shim")]
pub use keyvalue::store::Store;
pub use keyvalue::{KeyValue, KeyValueBackend};

/// Behind a preview 1 module.
pub struct ModuleHost {
    /// Args, env, files, streams.
    pub wasi: WasiP1Ctx,
    /// How far its memory may grow.
    #[cfg(feature = "shim")]
    pub limits: Limits,
}

/// Behind a component.
pub struct ComponentHost {
    /// Args, env, files, streams, sockets.
    pub wasi: WasiCtx,
    /// Its handles.
    pub table: ResourceTable,
    /// `wasi:http`.
    pub http: WasiHttpCtx,
    /// Requests that it sends.
    pub outgoing: Outgoing,
    /// What it shares with the other instances of its container.
    pub interfaces: Arc<Interfaces>,
    /// How far its memories may grow.
    #[cfg(feature = "shim")]
    pub limits: Limits,
}

/// What is behind `wasi:cli/environment`, `wasi:config`, `wasi:keyvalue` and `wasi:logging`: one for all instances of a container.
pub struct Interfaces {
    /// The container's environment.
    pub variables: Arc<[(String, String)]>,
    /// The container's args.
    pub args: Arc<[String]>,
    /// The container's working directory, if it is not `/`.
    pub working_dir: Option<Arc<str>>,
    /// The container's store.
    pub keyvalue: KeyValue,
    /// Writes lines to the container's log.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

impl WasiView for ComponentHost {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for ComponentHost {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.outgoing }
    }
}

/// `wasi_snapshot_preview1`.
pub fn module_linker(engine: &Engine) -> wasmtime::Result<Linker<ModuleHost>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_async(&mut linker, |host: &mut ModuleHost| &mut host.wasi)?;
    Ok(linker)
}

/// WASI 0.2 whole (cli, clocks, filesystem, io, random, sockets), `wasi:http`, `wasi:config`, `wasi:keyvalue` and `wasi:logging`; with the
/// async ABI also WASI 0.3 whole, with `wasi:http`. The ABI is that of the engine, and the backend that of the container. To link is the
/// same with every backend.
pub fn component_linker(engine: &Engine, abi: Abi, keyvalue: KeyValueBackend) -> wasmtime::Result<component::Linker<ComponentHost>> {
    let mut linker = component::Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    config::add_to_linker(&mut linker)?;
    keyvalue::add_to_linker(&mut linker, keyvalue)?;
    logging::add_to_linker(&mut linker)?;
    if abi == Abi::Async {
        wasmtime_wasi::p3::add_to_linker(&mut linker)?;
        wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    }
    environment::add_to_linker(&mut linker, abi)?;
    Ok(linker)
}
