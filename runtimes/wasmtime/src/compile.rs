//! From WASM bytes to machine code. Pure but for CPU time: bytes go in, an artifact or an error about the image comes out. A
//! confined process does it ([`process`]).

mod abi;
mod bounds;
mod process;
mod proposals;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wasmtime::{Engine, Module, OptLevel, component::Component};

use crate::host::{KeyValueBackend, component_linker, module_linker};
use crate::kind::{Abi, Kind};
use crate::settings::{config, plugin_config};

pub(crate) use abi::abi_of;
pub(crate) use bounds::{LARGE_FROM, LONG_FROM, QUICK_FROM, bounds, low_priority, machine_bytes};
pub use process::serve_compile;
pub(crate) use process::{Answer, Question};

/// Largest WASM file that is compiled.
pub const MODULE_LEN_MAX: u64 = 256 << 20;

/// The most characters of the text of an error about a module.
pub(crate) const ERROR_LEN_MAX: usize = 512;
/// The most characters of what a confined process says about a module: such a text, and what it means. The module may have made the
/// process say anything.
pub(crate) const ANSWER_LEN_MAX: usize = 1024;

/// What runs the machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The shim of a container.
    Container,
    /// A part of Skiff, in its own process.
    Plugin,
}

/// How much the compiler optimizes. The code of both does the same with the same checks and the same proposals; it differs in its
/// speed, and in the time until it is there. The record 24 has what it costs, and why there is no faster compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Optimization {
    /// For the first start of a large module.
    None,
    /// For all others.
    Full,
}

/// Machine code of one module or component.
pub struct Compiled {
    /// The bytes that wasmtime maps.
    pub code: Vec<u8>,
    /// How it is run.
    pub kind: Kind,
    /// What the engine that runs it must have.
    pub abi: Abi,
}

/// Why a file cannot be run; the image is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Complaint {
    /// Not WASM at all.
    #[error("not a WebAssembly binary: it starts with {0:02x?} instead of \\0asm")]
    NotWasm(Vec<u8>),
    /// Machine code, such as a `.cwasm` file of wasmtime.
    #[error("machine code (an ELF file), not a WebAssembly binary: each node compiles the .wasm file for its own CPU")]
    MachineCode,
    /// Does not validate, or uses a proposal that is switched off.
    #[error("invalid WebAssembly: {0}")]
    Invalid(String),
    /// Uses a proposal that a setting of the container would switch on.
    #[error(
        "the WebAssembly uses {0}, which is off by default; the annotation wasm.skiff.internal/proposals: \"{0}\" of its Pod \
         switches it on"
    )]
    Off(String),
    /// The module imports what the runtime does not provide.
    #[error(
        "{0}; offered are wasi_snapshot_preview1 for modules; WASI 0.2 (cli, clocks, filesystem, http, io, random, sockets), WASI 0.3 \
         (cli, clocks, filesystem, http, random, sockets), wasi:config 0.2.0-rc.1, wasi:keyvalue 0.2.0-draft and 0.2.0-draft2, and wasi:logging 0.1.0-draft for components"
    )]
    Import(String),
    /// Exports nothing that can be run.
    #[error("{0}")]
    NoEntry(&'static str),
    /// A core module where a component is needed.
    #[error("a core WebAssembly module, not a component: a plugin is a component (`wasm-tools component new` makes one of a module)")]
    CoreModule,
}

/// The engine that compiles what needs this ABI. Its settings are those of what runs the code, except the optimization: an engine maps
/// the code of both.
pub(crate) fn engine(question: &Question, abi: Abi) -> wasmtime::Result<Engine> {
    let mut settings = match question.purpose {
        Purpose::Container => config(&question.settings, abi),
        Purpose::Plugin => plugin_config(),
    };
    settings.cranelift_opt_level(match question.optimization {
        Optimization::None => OptLevel::None,
        Optimization::Full => OptLevel::Speed,
    });
    Engine::new(&settings)
}

/// A hash of everything that the machine code depends on: wasmtime's version, settings, target, CPU features.
pub fn fingerprint(engine: &Engine) -> String {
    /// Passes what wasmtime hashes to a hash that is the same in every process.
    struct Stable(Sha256);
    impl std::hash::Hasher for Stable {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Stable(Sha256::new());
    std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut hasher);
    hex(&hasher.0.finalize())
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compiles, then checks that all imports are provided and that there is something to run. Takes seconds for large files. The ABI is that
/// of the engine.
pub fn compile(engine: &Engine, abi: Abi, purpose: Purpose, bytes: &[u8]) -> Result<Compiled, Complaint> {
    match (bytes.first_chunk::<8>(), purpose) {
        (Some(b"\0asm\x01\0\0\0"), Purpose::Container) => module(engine, bytes),
        (Some(b"\0asm\x01\0\0\0"), Purpose::Plugin) => Err(Complaint::CoreModule),
        (Some([b'\0', b'a', b's', b'm', _, _, 1, 0]), Purpose::Container) => component(engine, abi, bytes),
        (Some([b'\0', b'a', b's', b'm', _, _, 1, 0]), Purpose::Plugin) => plugin(engine, bytes),
        (Some([b'\0', b'a', b's', b'm', ..]), _) => Err(Complaint::Invalid("unknown version of the binary format".into())),
        (Some([0x7f, b'E', b'L', b'F', ..]), _) => Err(Complaint::MachineCode),
        _ => Err(Complaint::NotWasm(bytes.iter().copied().take(4).collect())),
    }
}

fn module(engine: &Engine, bytes: &[u8]) -> Result<Compiled, Complaint> {
    let code = engine.precompile_module(bytes).map_err(invalid)?;
    // SAFETY: the code was made by this engine just now.
    let module = unsafe { Module::deserialize(engine, &code) }.map_err(invalid)?;
    module_linker(engine).and_then(|linker| linker.instantiate_pre(&module)).map_err(not_offered)?;
    match module.get_export("_start") {
        Some(wasmtime::ExternType::Func(start)) if start.params().len() == 0 && start.results().len() == 0 => {
            Ok(Compiled { code, kind: Kind::Module, abi: Abi::Sync })
        }
        Some(_) => Err(Complaint::NoEntry("the module's export _start is not a function without parameters and results")),
        None => Err(Complaint::NoEntry("the module has nothing to run: it does not export _start")),
    }
}

fn component(engine: &Engine, abi: Abi, bytes: &[u8]) -> Result<Compiled, Complaint> {
    let code = engine.precompile_component(bytes).map_err(invalid)?;
    // SAFETY: the code was made by this engine just now.
    let component = unsafe { Component::deserialize(engine, &code) }.map_err(invalid)?;
    let linker = component_linker(engine, abi, KeyValueBackend::Memory);
    linker.and_then(|linker| linker.instantiate_pre(&component)).map_err(not_offered)?;
    let shape = component.component_type();
    let exports: Vec<_> = shape.exports(engine).map(|(name, _)| name.to_owned()).collect();
    match Kind::of_component(exports.iter().map(String::as_str)) {
        Some(kind) => Ok(Compiled { code, kind, abi }),
        None => Err(Complaint::NoEntry(
            "the component has nothing to run: it exports neither wasi:cli/run, nor wasi:http/incoming-handler of WASI 0.2, \
             nor wasi:http/handler of WASI 0.3",
        )),
    }
}

/// The part that runs the plugin checks its imports and exports.
fn plugin(engine: &Engine, bytes: &[u8]) -> Result<Compiled, Complaint> {
    Ok(Compiled { code: engine.precompile_component(bytes).map_err(invalid)?, kind: Kind::Plugin, abi: Abi::Sync })
}

fn invalid(error: wasmtime::Error) -> Complaint {
    Complaint::Invalid(one_line(&format!("{error:#}"), ERROR_LEN_MAX))
}

fn not_offered(error: wasmtime::Error) -> Complaint {
    Complaint::Import(one_line(&format!("{error:#}"), ERROR_LEN_MAX))
}

/// The text of an error on one line, for an event or a status. It quotes names of the module, which are as long as it likes and have
/// any character: control characters are removed, and so is what exceeds so many characters.
pub(crate) fn one_line(text: &str, len_max: usize) -> String {
    let parts = text.split('\n').map(str::trim).filter(|part| !part.is_empty());
    let mut characters = parts.flat_map(|part| [" ", part]).flat_map(str::chars).skip(1).filter(|character| !character.is_control());
    let mut line: String = characters.by_ref().take(len_max).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests;
