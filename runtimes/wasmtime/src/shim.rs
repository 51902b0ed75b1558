//! The process that is a WASM container. In order: read what to run, open its mounts, join the Pod's namespaces, leave the node's mounts,
//! create the engine and map the compiled file, open its ports, build a root of its own, wait until the agent has put it into its cgroup
//! or enter it, give up every privilege and enter its AppArmor profile, send `ready`, run the guest, write the exit record.
//!
//! It outlives the agent: after `ready` it needs no other process, and any later agent finds its files (log, pid and exit
//! records). See [`runtimes_shim::launch`] for the other side.

mod attached;
mod authority;
mod builtin;
mod capacity;
mod command;
mod confine;
mod connection;
mod further;
mod guest;
mod handler;
mod http;
mod idle;
mod instances;
mod leaving;
mod listeners;
mod log;
mod records;
mod root;
mod serve;
mod signals;
mod slices;
mod stdio;
mod streams;
mod terminal;
mod ticker;
mod timer;
mod workers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtimes_contract::{ContainerSpec, Exit};
use runtimes_shim::channel::Channel;
use runtimes_shim::cri::Stream;
use runtimes_shim::launch::Refusal;
use runtimes_shim::own_cgroups::OwnCgroups;
use runtimes_shim::state::Made;
use serde::de::DeserializeOwned;
use wasmtime::{Config, Engine};

use crate::CODE;
use crate::kind::{Abi, Kind};
use crate::settings::{CodeSettings, guest_config, has_pool, http_concurrency, pooled_config};
use attached::{Attached, FINISH_WITHIN};
use guest::Guest;
use log::Log;
use records::{Claim, Records};
use stdio::Stdio;
use terminal::Copying;

const OPENING_CGROUPS: &str = "opening the container's cgroup";
const ENTERING_CGROUPS: &str = "entering the container's cgroup";

/// Why a container could not be started.
#[derive(Debug)]
struct Failure {
    refusal: Refusal,
    message: String,
}

impl Failure {
    fn new(refusal: Refusal, message: impl Into<String>) -> Self {
        Self { refusal, message: message.into() }
    }

    /// For `map_err`: a failed operation of the system.
    fn io<E: std::fmt::Display>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |error| Self::new(Refusal::Io, format!("{doing}: {error}"))
    }
}

/// The agent's arguments: state directory, the mount namespace to begin with, what to run.
struct Args {
    dir: PathBuf,
    empty_mounts: PathBuf,
    program: ProgramArgs,
}

/// The agent's arguments about a guest: compiled file, kind, ABI.
struct ProgramArgs {
    code: PathBuf,
    kind: Kind,
    abi: Abi,
}

impl ProgramArgs {
    const USAGE: &str = "CODE KIND ABI";

    fn parse(args: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        let code = args.next()?.into();
        let (kind, abi) = (args.next()?, args.next()?);
        Some(Self { code, kind: kind.to_str()?.parse().ok()?, abi: abi.to_str()?.parse().ok()? })
    }
}

/// Runs one container, or with the argument `exec` a further guest in one; the process ends with it.
pub fn main() {
    let code = if std::env::args_os().nth(1).is_some_and(|arg| arg == "exec") { further::run() } else { run() };
    // SAFETY: ends the process without running destructors of guests that still hold memory.
    unsafe { libc::_exit(code) }
}

fn run() -> i32 {
    let channel = Channel::from_stdin();
    match prepare(&channel) {
        Ok(container) => {
            end_at_panic(container.records.clone());
            channel.ready(None);
            drop(channel);
            container.run()
        }
        Err(failure) => channel.refuse(failure.refusal.word(), &failure.message),
    }
}

/// What is run.
struct Program {
    kind: Kind,
    abi: Abi,
    engine: Engine,
    code: guest::Code,
}

/// Everything that a guest needs, created while there still were privileges.
struct Container {
    program: Program,
    guest: Arc<Guest>,
    attached: Arc<Attached>,
    /// Of the output of its terminal, if it has one.
    copying: Option<Copying>,
    server: Option<serve::Endpoint>,
    records: Arc<Records>,
}

/// A panic of the shim ends the container and becomes its exit message: there is no other place to report it.
fn end_at_panic(records: Arc<Records>) {
    std::panic::set_hook(Box::new(move |panic| {
        records.write_exit(&guest::exit(guest::TRAPPED, None, format!("the shim failed: {panic}")));
        std::process::abort();
    }));
}

fn prepare(channel: &Channel) -> Result<Container, Failure> {
    runtimes_host::process::close_inherited().map_err(Failure::io("closing descriptors"))?;
    nix::unistd::setsid().map_err(Failure::io("becoming a session leader"))?;
    let args = parse_args()?;
    let spec = read_spec(&args)?;
    root::read_page_size();
    confine::take_oom_score(spec.oom_score_adj).map_err(Failure::io("writing /proc/self/oom_score_adj"))?;
    let profile = confine::Profile::open(&spec)?;
    let cgroups = OwnCgroups::open().map_err(Failure::io(OPENING_CGROUPS))?;
    let claim = Claim::open(&args.dir)?;
    let attached = Arc::new(Attached::listen(&args.dir, &spec)?);
    let log = Arc::new(Log::open(&spec.log_path, attached.clone())?);

    let program = args.program;
    let sources = root::Sources::open(&spec, Some(&program.code))?;
    root::join_namespaces(&spec)?;
    let counters = if program.kind.is_server() { Some(serve::counters(&args.dir)?) } else { None };
    sources.leave_node(&args.empty_mounts)?;
    let program = load(&spec, &program)?;
    // Last of what may fail for the content's sake: nobody is let in before.
    let server = counters.map(|counters| serve::Endpoint::open(&spec, counters)).transpose()?;
    let preopens = sources.enter(&spec)?;
    channel.wait_for_go().map_err(Failure::io("waiting for the agent"))?;
    cgroups.enter().map_err(Failure::io(ENTERING_CGROUPS))?;
    let records = Arc::new(claim.write_pid()?);
    confine::drop_privileges(&spec, profile)?;
    // A thread has no more privileges than the process.
    attached.serve_beside()?;
    let (stdio, copying) = stdio_of(log, &attached)?;
    let guest = Arc::new(Guest::new(spec, &preopens, stdio)?);
    Ok(Container { program, guest, attached, copying, server, records })
}

/// The container's terminal, whose output is copied from now on, or its pipes.
fn stdio_of(log: Arc<Log>, attached: &Arc<Attached>) -> Result<(Stdio, Option<Copying>), Failure> {
    match attached.take_terminal() {
        Some((session, master)) => {
            let copying = Copying::begin(master, log.stream(Stream::Stdout))?;
            Ok((Stdio::Session(session), Some(copying)))
        }
        None => Ok((Stdio::Container { log, attached: attached.clone() }, None)),
    }
}

/// Maps the compiled file into an engine of its own, after [`root::Sources::leave_node`]. Signals stop the guest from then on.
fn load(spec: &ContainerSpec, &ProgramArgs { kind, abi, ref code, .. }: &ProgramArgs) -> Result<Program, Failure> {
    let settings = CodeSettings::of(spec);
    let is_pooled = kind.is_server() && has_pool(spec);
    let engine = new_engine(&match is_pooled {
        true => pooled_config(&settings, abi, http_concurrency(spec)),
        false => guest_config(&settings, abi),
    })?;
    let map = |engine: &Engine| guest::Code::map(engine, &Path::new("/").join(CODE), kind);
    let fits_without_pool = || new_engine(&guest_config(&settings, abi)).and_then(|engine| map(&engine)).is_ok();
    let mapped = map(&engine).map_err(|failure| match is_pooled && fits_without_pool() {
        true => beyond_pool(&failure),
        false => Failure::new(failure.refusal, format!("mapping {}: {}", code.display(), failure.message)),
    });
    let code = mapped?;
    guest::check_memory(&code, spec)?;
    signals::install(Some(&engine))?;
    Ok(Program { kind, abi, engine, code })
}

fn new_engine(config: &Config) -> Result<Engine, Failure> {
    Engine::new(config).map_err(|error| Failure::new(Refusal::Missing, format!("making the engine: {error:#}")))
}

/// The reason of a server that can have instances, but none from the pool.
fn beyond_pool(failure: &Failure) -> Failure {
    let message = format!(
        "the server needs more than its pool of instances has; with the annotation wasm.skiff.internal/http-pooling: \"false\" it has no \
         pool: {}",
        failure.message
    );
    Failure::new(Refusal::Start, message)
}

impl Container {
    fn run(self) -> i32 {
        let Self { program, guest, attached, copying, server, records } = self;
        let exit = run_program(program, guest, server);
        let code = exit.code;
        if let Some(copying) = copying {
            copying.finish(FINISH_WITHIN);
        }
        records.write_exit(&exit);
        attached.finish();
        code
    }
}

fn run_program(program: Program, guest: Arc<Guest>, server: Option<serve::Endpoint>) -> Exit {
    let Program { kind, abi, engine, code } = program;
    match workers::first_thread() {
        Ok(runtime) => runtime.block_on(async {
            match (code, server) {
                (guest::Code::Module(module), _) => command::module(&engine, &module, &guest).await,
                (guest::Code::Component(component), Some(endpoint)) => {
                    serve::component(&engine, &component, (kind, abi), guest, endpoint).await
                }
                (guest::Code::Component(component), None) => command::component(&engine, &component, (kind, abi), &guest).await,
            }
        }),
        Err(error) => guest::failed(&guest, &format!("making the event loop: {error}")),
    }
}

fn parse_args() -> Result<Args, Failure> {
    let mut args = std::env::args_os().skip(1);
    let mut parse = || {
        let (dir, empty_mounts) = (args.next()?.into(), args.next()?.into());
        Some(Args { dir, empty_mounts, program: ProgramArgs::parse(&mut args)? })
    };
    let usage = || format!("usage: skiff-shim-wasmtime DIR MOUNTS {}; the node agent starts it", ProgramArgs::USAGE);
    parse().ok_or_else(|| Failure::new(Refusal::Io, usage()))
}

fn read_spec(args: &Args) -> Result<ContainerSpec, Failure> {
    let made: Made = read_json(&args.dir.join("spec.json"))?;
    Ok(made.spec)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let reading = format!("reading {}", path.display());
    let bytes = std::fs::read(path).map_err(Failure::io(reading.clone()))?;
    serde_json::from_slice(&bytes).map_err(Failure::io(reading))
}
