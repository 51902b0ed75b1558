//! Loads the versions of one plugin: its image, the component in it, the first instance.

use std::error::Error;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use runtimes_wasmtime::Components;
use sched_framework::ExternalPluginSpec;
use thiserror::Error;

use crate::instance::{Instance, PluginError, Prepared};
use crate::sandbox::{self, SandboxError};
use crate::ticker::Ticker;

/// The WebAssembly file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The file. It does not change as long as the image exists.
    pub file: PathBuf,
    /// The digest of the file.
    pub digest: String,
}

/// Why an image has no module.
pub type ImagesError = Box<dyn Error + Send + Sync>;

/// Where images come from.
pub trait Images: Send + Sync {
    /// The module of the plugin's image, fetched with its credentials according to its policy.
    fn module<'a>(&'a self, spec: &'a ExternalPluginSpec) -> Pin<Box<dyn Future<Output = Result<Module, ImagesError>> + Send + 'a>>;
}

/// Why a version is not used.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    /// There is no image.
    #[error("the image {image} cannot be read")]
    Image {
        /// The image.
        image: String,
        /// Why.
        source: ImagesError,
    },
    /// The image's file is no component, or cannot be compiled.
    #[error("the image {image} is no scheduler plugin")]
    Compile {
        /// The image.
        image: String,
        /// Why.
        source: ImagesError,
    },
    /// The component cannot be linked.
    #[error("the image {image} is no scheduler plugin")]
    Link {
        /// The image.
        image: String,
        /// Why.
        source: SandboxError,
    },
    /// The component does not start.
    #[error("the plugin of image {image} does not start")]
    Start {
        /// The image.
        image: String,
        /// Why.
        source: PluginError,
    },
    /// The work was given up.
    #[error("loading the plugin of image {image} was interrupted")]
    Interrupted {
        /// The image.
        image: String,
    },
}

/// What loading needs.
#[derive(Clone)]
pub(crate) struct Loader {
    pub components: Arc<Components>,
    pub images: Arc<dyn Images>,
    pub ticker: Ticker,
}

impl Loader {
    /// The module that the plugin's image has now.
    pub async fn module(&self, spec: &ExternalPluginSpec) -> Result<Module, LoadError> {
        let module = self.images.module(spec).await;
        module.map_err(|source| LoadError::Image { image: spec.image.clone(), source })
    }

    /// Compiles, links, starts and initializes the module.
    pub async fn load(&self, spec: &Arc<ExternalPluginSpec>, module: &Module) -> Result<(Arc<Prepared>, Box<Instance>), LoadError> {
        let image = || spec.image.clone();
        let loaded = self.components.load(&module.file, &module.digest).await;
        let component = loaded.map_err(|source| LoadError::Compile { image: image(), source: Box::new(source) })?;
        let (engine, ticker, spec) = (self.components.engine().clone(), self.ticker.clone(), Arc::clone(spec));
        let start = move || -> Result<(Arc<Prepared>, Box<Instance>), LoadError> {
            let image = || spec.image.clone();
            let pre = sandbox::link(&engine, &component).map_err(|source| LoadError::Link { image: image(), source })?;
            let prepared = Arc::new(Prepared { spec: Arc::clone(&spec), pre, ticker });
            let instance = prepared.start().map_err(|source| LoadError::Start { image: image(), source })?;
            Ok((prepared, Box::new(instance)))
        };
        api_tasks::blocking("scheduler/plugin-start", start).await.unwrap_or_else(|_| Err(LoadError::Interrupted { image: image() }))
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
