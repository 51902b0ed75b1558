//! Components that a part of Skiff calls in its own process: plugins. They are compiled like the modules of containers, by a confined
//! process into a cache on disk, but with settings of their own: fuel is counted.

use std::path::Path;

use runtimes_contract::RuntimeError;
use runtimes_host::blocking;
use runtimes_host::helper::Helper;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::cache::{Cache, StoredModule};
use crate::compile::{Optimization, Purpose, Question, engine};
use crate::kind::Abi;
use crate::settings::CodeSettings;

/// The engine of the plugins, and the cache of their code.
pub struct Components {
    cache: Cache,
    engine: Engine,
}

impl Components {
    /// Opens the cache in a directory that no other cache uses. `compiler` starts a program that calls [`crate::serve_compile`].
    ///
    /// # Errors
    /// When the directory cannot be made, or this CPU cannot run WebAssembly.
    pub fn open(dir: &Path, compiler: Helper) -> Result<Self, RuntimeError> {
        let cache = Cache::open(dir, compiler, Purpose::Plugin)?;
        let question = Question { purpose: Purpose::Plugin, optimization: Optimization::Full, settings: CodeSettings::default() };
        let engine = engine(&question, Abi::Sync);
        let engine = engine.map_err(|error| RuntimeError::Missing(format!("this CPU or kernel cannot run WebAssembly: {error:#}")))?;
        Ok(Self { cache, engine })
    }

    /// The engine that runs the components. Fuel and epochs are on: a store without fuel, or past its epoch, runs nothing.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The component in a file, compiled now unless the cache has it. `digest` is that of the file.
    ///
    /// # Errors
    /// [`RuntimeError::BadContent`] when the file is no valid component.
    pub async fn load(&self, file: &Path, digest: &str) -> Result<Component, RuntimeError> {
        let module = StoredModule { file: file.to_owned(), digest: digest.to_owned(), settings: CodeSettings::default() };
        let artifact = self.cache.artifact(&module).await?;
        let engine = self.engine.clone();
        blocking(move || {
            // SAFETY: the cache wrote the file, keeps it root's alone, and has checked its hash.
            let component = unsafe { Component::deserialize_file(&engine, &artifact.path) };
            component.map_err(|error| RuntimeError::Missing(format!("mapping {}: {error:#}", artifact.path.display())))
        })
        .await
    }
}
