//! The images of scheduler plugins: those of the image store in the data directory, which a node in the same process shares.

use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use node_images::{ImageStore, PullPolicy, RegistryAuth};
use runtimes_contract::{Content, ContentKind};
use runtimes_wasmtime::Components;
use sched_framework::{ExternalPluginSpec, ExternalPlugins, ImagePullPolicy};
use sched_wasm::{Images, ImagesError, Module, WasmPlugins};
use thiserror::Error;

use crate::data_dir::DataDir;
use crate::{images, internal};

/// An image without a plugin.
#[derive(Debug, Error)]
#[error("the image has a Linux root file system, and no WebAssembly component")]
struct NoModule;

/// The image store.
struct StoredImages(ImageStore);

impl Images for StoredImages {
    fn module<'a>(&'a self, spec: &'a ExternalPluginSpec) -> Pin<Box<dyn Future<Output = Result<Module, ImagesError>> + Send + 'a>> {
        let pull_policy = match spec.pull_policy {
            ImagePullPolicy::Always => PullPolicy::Always,
            ImagePullPolicy::IfNotPresent => PullPolicy::IfNotPresent,
            ImagePullPolicy::Never => PullPolicy::Never,
        };
        Box::pin(async move {
            // The file is read each time: what issues short-lived passwords replaces it.
            let auth = match &spec.registry_config_file {
                Some(file) => RegistryAuth::read_docker_config(file)?,
                None => Vec::new(),
            };
            let image = self.0.pull(&spec.image, pull_policy, &auth).await?;
            if image.kind != ContentKind::Wasm {
                return Err(NoModule.into());
            }
            // A module's file is in the store; nothing is mounted.
            match self.0.mount(&image, "").await? {
                Content::Wasm { module, digest } => Ok(Module { file: module, digest }),
                Content::Linux { .. } => Err(NoModule.into()),
            }
        })
    }
}

/// Opens what plugins need of the data directory.
pub fn open(data_dir: &DataDir) -> anyhow::Result<Arc<dyn ExternalPlugins>> {
    let store = images::open(data_dir, Vec::new())?;
    let compiler = internal::helper(data_dir, internal::Job::Compile)?;
    internal::clear_leftovers(&compiler)?;
    let components =
        Components::open(&data_dir.at("compiled-plugins"), compiler).context("opening the compile cache of scheduler plugins")?;
    Ok(Arc::new(WasmPlugins::new(components, Arc::new(StoredImages(store)))))
}
