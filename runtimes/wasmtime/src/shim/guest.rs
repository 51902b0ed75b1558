//! What every guest of this container gets: its args, environment, directories, streams and limits; and the meaning of its end.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use runtimes_contract::{ContainerSpec, Exit, HttpSettings, Resources, WasmProposal};
use runtimes_shim::launch::Refusal;
use runtimes_shim::record::now_ms;
use wasmtime::component::{Component, ResourceTable};
use wasmtime::{Engine, Module, Trap};
use wasmtime_wasi::filesystem::WasiFilesystemCtx;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSocketsCtx};
use wasmtime_wasi::{I32Exit, WasiCtx, WasiCtxBuilder, WasiView as _};
use wasmtime_wasi_http::WasiHttpCtx;

use super::root::Preopen;
use super::stdio::Stdio;
use super::{Failure, signals};
use crate::budget::Budget;
use crate::host::{Client, ComponentHost, Interfaces, KeyValue, KeyValueBackend, Store};
use crate::kind::Kind;
use crate::limits::Limits;
use crate::outbound::Outbound;
use crate::outgoing::Outgoing;
use crate::settings::{http_concurrency, memory_len_max};

/// The exit code of a guest that trapped: the one of an aborted process.
pub const TRAPPED: i32 = 134;

/// The bytes of a page of WebAssembly.
const WASM_PAGE_LEN: u64 = 64 << 10;

/// The highest number of sockets, streams, pollables and the like of one instance.
const HANDLES_MAX: usize = 65_536;
/// The handles for which an instance has room at first: those of a short request.
const HANDLES_AT_FIRST: usize = 8;

/// Mapped machine code.
pub enum Code {
    /// Of a preview 1 module.
    Module(Module),
    /// Of a component.
    Component(Component),
}

impl Code {
    /// Maps a file of the compile cache.
    pub fn map(engine: &Engine, path: &Path, kind: Kind) -> Result<Self, Failure> {
        // SAFETY: the agent wrote the file, keeps it root's alone, and has checked its hash.
        let code = unsafe {
            match kind {
                Kind::Module => Module::deserialize_file(engine, path).map(Self::Module),
                Kind::Command | Kind::AsyncCommand | Kind::Http | Kind::Service | Kind::Plugin => {
                    Component::deserialize_file(engine, path).map(Self::Component)
                }
            }
        };
        code.map_err(|error| unmappable(&format!("{error:#}")))
    }
}

/// In wasmtime's error about code for another CPU, which has no type.
const OTHER_CPU: &str = "native host";

fn unmappable(message: &str) -> Failure {
    if !message.contains(OTHER_CPU) {
        return Failure::new(Refusal::Io, message);
    }
    let remedy = "this CPU lacks what the machine code was compiled for; start the node again, which compiles it for this CPU";
    Failure::new(Refusal::Missing, format!("{remedy}: {message}"))
}

/// Refuses a guest that can have no instance within the container's limit of memory. A server without this check would start, and then
/// fail each request.
pub fn check_memory(code: &Code, spec: &ContainerSpec) -> Result<(), Failure> {
    // With this proposal a page may have one byte, and the number of pages says nothing. The instance then fails by itself.
    if spec.proposals.contains(&WasmProposal::CustomPageSizes) {
        return Ok(());
    }
    let required = match code {
        Code::Module(module) => Some(module.resources_required()),
        Code::Component(component) => component.resources_required(),
    };
    let needed = required.and_then(|required| required.max_initial_memory_size).unwrap_or(0).saturating_mul(WASM_PAGE_LEN);
    let limit = spec.resources.memory_limit_bytes;
    match limit.zip(memory_len_max(limit).and_then(|room| u64::try_from(room).ok())) {
        Some((limit, room)) if needed > room => {
            let message = format!(
                "the memory limit is too low: the WebAssembly begins with {} KiB of memory, and of the limit of {} KiB it may have {} KiB",
                needed.div_ceil(1024),
                limit / 1024,
                room / 1024
            );
            Err(Failure::new(Refusal::Start, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// The container as its guests see it.
pub struct Guest {
    spec: ContainerSpec,
    stdio: Stdio,
    /// The directories, open, as each instance gets them. Clones have the same descriptors.
    filesystem: WasiFilesystemCtx,
    /// What each instance may do in the network. Clones have the same check.
    sockets: WasiSocketsCtx,
    budget: Arc<Budget>,
    interfaces: Arc<Interfaces>,
    outbound: Option<Arc<Outbound>>,
}

impl Guest {
    /// The spec, the visible directories, and where output goes and input comes from. Opens the directories, so the process must have the
    /// container's user already.
    pub fn new(mut spec: ContainerSpec, preopens: &[Preopen], stdio: Stdio) -> Result<Self, Failure> {
        let budget = Arc::new(Budget::new(memory_len_max(spec.resources.memory_limit_bytes)));
        let interfaces = Arc::new(Interfaces {
            variables: std::mem::take(&mut spec.env).into(),
            args: std::mem::take(&mut spec.args).into(),
            working_dir: spec.working_dir.to_str().filter(|dir| *dir != "/").map(Arc::from),
            keyvalue: match spec.keyvalue_redis.take() {
                Some(server) => KeyValue::Redis(Arc::new(Client::new(server, &budget))),
                None => KeyValue::Memory(Arc::new(Store::new(&budget))),
            },
            log: stdio.messages(),
        });
        let outbound = spec.outbound_hosts.take().map(|hosts| Arc::new(Outbound::from(hosts)));
        let mut wasi = prototype(preopens, outbound.as_ref())?;
        let (filesystem, sockets) = (wasi.filesystem().clone(), wasi.sockets().clone());
        Ok(Self { spec, stdio, filesystem, sockets, budget, interfaces, outbound })
    }

    /// The state of one instance of a component. Its args and environment are not in `wasi`: they are in the interfaces that all instances
    /// share.
    pub fn component_host(&self) -> wasmtime::Result<ComponentHost> {
        let mut wasi = WasiCtxBuilder::new();
        self.stdio.connect(&mut wasi)?;
        let mut wasi = wasi.build();
        self.share_with(&mut wasi);
        Ok(ComponentHost {
            wasi,
            table: self.table(),
            http: WasiHttpCtx::new(),
            outgoing: Outgoing(self.outbound.clone()),
            interfaces: self.interfaces.clone(),
            limits: self.limits(),
        })
    }

    /// WASI for the instance of a preview 1 module.
    pub fn module_wasi(&self) -> wasmtime::Result<WasiP1Ctx> {
        let mut wasi = WasiCtxBuilder::new();
        wasi.args(&self.interfaces.args);
        wasi.envs(&self.interfaces.variables);
        self.stdio.connect(&mut wasi)?;
        let mut wasi = wasi.build_p1();
        self.share_with(wasi.ctx().ctx);
        Ok(wasi)
    }

    /// Gives an instance the directories and the network.
    fn share_with(&self, wasi: &mut WasiCtx) {
        *wasi.filesystem() = self.filesystem.clone();
        *wasi.sockets() = self.sockets.clone();
    }

    /// What is behind `wasi:keyvalue`.
    pub fn keyvalue(&self) -> KeyValueBackend {
        self.interfaces.keyvalue.backend()
    }

    /// The token of the node's probes.
    pub fn probe_token(&self) -> &str {
        &self.spec.probe_token
    }

    /// The requests that it handles at once.
    pub fn http_concurrency(&self) -> u32 {
        http_concurrency(&self.spec)
    }

    /// How it is served.
    pub fn http(&self) -> &HttpSettings {
        &self.spec.http
    }

    /// The limits of the container.
    pub fn resources(&self) -> &Resources {
        &self.spec.resources
    }

    /// Gives a program, or an instance for its next request, the fuel that it may use. Without the setting, none is counted.
    pub fn set_fuel<T>(&self, store: &mut wasmtime::Store<T>) -> wasmtime::Result<()> {
        self.spec.fuel.map_or(Ok(()), |fuel| store.set_fuel(fuel))
    }

    /// The reason why a guest failed, with the setting that did it.
    pub fn explained(&self, error: wasmtime::Error) -> wasmtime::Error {
        match self.spec.fuel.filter(|_| error.downcast_ref::<Trap>() == Some(&Trap::OutOfFuel)) {
            Some(fuel) => error.context(format!("the guest used up its fuel of {fuel} (annotation wasm.skiff.internal/fuel)")),
            None => error,
        }
    }

    /// The share of one instance in the budget.
    pub fn limits(&self) -> Limits {
        Limits::new(&self.budget)
    }

    /// The handles of one instance.
    fn table(&self) -> ResourceTable {
        let mut table = ResourceTable::with_capacity(HANDLES_AT_FIRST);
        table.set_max_capacity(HANDLES_MAX);
        table
    }

    /// Writes a message about the guest, beside its own output.
    pub fn say(&self, text: &str) {
        self.stdio.messages()(text);
    }
}

/// The directories and the network of all instances, and nothing of a single one. File access runs on helper threads, also for a single
/// guest: where blocking is allowed, wasmtime-wasi sleeps in the kernel too, and no signal ends that.
fn prototype(preopens: &[Preopen], outbound: Option<&Arc<Outbound>>) -> Result<WasiCtx, Failure> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.inherit_network().allow_ip_name_lookup(true).allow_tcp(true).allow_udp(true);
    if let Some(outbound) = outbound.cloned() {
        wasi.allow_ip_name_lookup(outbound.needs_names());
        wasi.socket_addr_check(move |address, purpose| check(outbound.clone(), address, purpose));
    }
    for preopen in preopens {
        let opened = wasi.preopened_dir(&preopen.dir, &preopen.name, preopen.permissions);
        opened.map_err(Failure::io(format!("opening the container's directory {}", preopen.name)))?;
    }
    Ok(wasi.build())
}

type Allowed = Pin<Box<dyn Future<Output = bool> + Send + Sync>>;

/// Clients of a guest are no concern of the list, but the datagrams that it sends to them are.
fn check(outbound: Arc<Outbound>, address: SocketAddr, purpose: SocketAddrUse) -> Allowed {
    match purpose {
        SocketAddrUse::TcpConnect | SocketAddrUse::UdpSend => Box::pin(async move { outbound.allows(address).await }),
        SocketAddrUse::TcpBind
        | SocketAddrUse::TcpListen
        | SocketAddrUse::TcpAccept
        | SocketAddrUse::UdpBind
        | SocketAddrUse::UdpReceive => Box::pin(async { true }),
    }
}

/// The end of a guest that ran as a program. A trap is also written to the log.
pub fn ended(guest: &Guest, result: wasmtime::Result<i32>) -> Exit {
    if let Some(signal) = signals::stopping() {
        return exit(128 + signal, Some(signal), String::new());
    }
    match result {
        Ok(code) => exit(code & 0xff, None, String::new()),
        Err(error) => match error.downcast_ref::<I32Exit>() {
            Some(I32Exit(code)) => exit(code & 0xff, None, String::new()),
            None => failed(guest, &format!("{:?}", guest.explained(error))),
        },
    }
}

/// The end of a container whose guest could not continue.
pub fn failed(guest: &Guest, message: &str) -> Exit {
    guest.say(&format!("{}\n", message.trim_end()));
    exit(TRAPPED, None, message.to_owned())
}

/// An end that is not an out-of-memory kill.
pub fn exit(code: i32, signal: Option<i32>, message: String) -> Exit {
    Exit { code, signal, oom_killed: false, finished_at_ms: now_ms(), message }
}
