//! What a plugin is given: its imports.

use thiserror::Error;
use wasmtime::component::{Component, InstancePre, Linker};
use wasmtime::{Engine, StoreContextMut};

use crate::host::Host;
use crate::values::Level;
use crate::wasi;

/// The interface that Skiff gives to plugins, without its version.
const HOST: &str = "skiff:scheduler/host";
/// The same with the version of `wit/scheduler.wit`.
const HOST_INTERFACE: &str = "skiff:scheduler/host@0.1.0";
/// An interface of types alone: nothing has to be given for it.
const TYPES: &str = "skiff:scheduler/types";

/// Why a component cannot be a plugin.
#[derive(Debug, Error)]
pub(crate) enum SandboxError {
    /// It imports what plugins are not given.
    #[error("it imports {0}, which plugins are not given; they are given {HOST_INTERFACE}, and WASI 0.2 without files, network and clocks")]
    Import(String),
    /// An import has another type than what is given.
    #[error("its imports do not fit: {0:#}")]
    Link(wasmtime::Error),
}

/// Gives the component its imports.
///
/// # Errors
/// When it imports anything else.
pub(crate) fn link(engine: &Engine, component: &Component) -> Result<InstancePre<Host>, SandboxError> {
    let shape = component.component_type();
    let names: Vec<String> = shape.imports(engine).map(|(name, _)| name.to_owned()).collect();
    let mut linker = Linker::new(engine);
    for name in &names {
        let interface = name.split('@').next().unwrap_or_default();
        match interface {
            TYPES => {}
            HOST => host(&mut linker, name).map_err(SandboxError::Link)?,
            _ if interface.starts_with("wasi:") => wasi::define(&mut linker, name).map_err(SandboxError::Link)?,
            _ => return Err(SandboxError::Import(name.clone())),
        }
    }
    if names.iter().any(|name| name.starts_with("wasi:")) {
        // A function of WASI that reaches out of the sandbox ends the plugin when it is called, with the function's name.
        linker.define_unknown_imports_as_traps(component).map_err(SandboxError::Link)?;
    }
    linker.instantiate_pre(component).map_err(SandboxError::Link)
}

fn host(linker: &mut Linker<Host>, name: &str) -> wasmtime::Result<()> {
    // An interface of another version has other functions; the linker says which one it lacks.
    let name = if name.starts_with("skiff:scheduler/host@0.1.") { name } else { HOST_INTERFACE };
    linker.instance(name)?.func_wrap("log", |mut store: StoreContextMut<'_, Host>, (level, message): (Level, String)| {
        store.data_mut().log(level, &message);
        Ok(())
    })
}
