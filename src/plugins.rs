//! The images of scheduler plugins: those of the image store in the data directory, which a node in the same process shares.

use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use node_images::{ImageStore, PullPolicy, RegistryAuth};
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
            // A plugin has no files: nothing of the image is mounted.
            let (Some(file), Some(digest)) = (self.0.module(&image), image.module_digest()) else { return Err(NoModule.into()) };
            self.0.touch(&image)?;
            Ok(Module { file, digest: digest.to_owned() })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use runtimes_host::helper::Helper;
    use sched_framework::{ExternalPoints, FailurePolicy};
    use serde_json::json;

    use super::*;

    fn spec(image: &str) -> ExternalPluginSpec {
        ExternalPluginSpec {
            name: "p",
            image: image.to_owned(),
            pull_policy: ImagePullPolicy::Never,
            registry_config_file: None,
            failure_policy: FailurePolicy::Ignore,
            fuel: 1,
            memory_bytes: 1,
            timeout: Duration::from_secs(1),
            refresh_interval: Duration::ZERO,
            args: String::new(),
            required: ExternalPoints::default(),
        }
    }

    /// The image has files beside its module.
    #[tokio::test]
    async fn the_module_of_an_image_with_files_is_found_without_a_mount() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = ImageStore::open(dir.path(), Helper::new("/bin/false", &[])).expect("opens");
        let [id, module, layer] = ["a", "b", "c"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let image = |kind: &str| {
            let config = json!({"entrypoint": ["/run.wasm"], "cmd": [], "env": [], "working_dir": "", "user": "", "stop_signal": ""});
            json!({
                "id": id, "references": [format!("docker.io/library/{}:v1", kind.to_lowercase())], "digests": [], "kind": kind,
                "size_bytes": 8, "config": config, "layers": [{"blob": layer, "diff_id": layer}], "module": module, "blobs": [module],
                "used_at_s": 0,
            })
        };
        let file = dir.path().join("blobs/sha256").join("b".repeat(64));
        std::fs::write(&file, b"\0asm").expect("written");
        let list = json!([image("Linux"), image("Wasm")]).to_string();
        std::fs::write(dir.path().join("images.json"), list).expect("written");
        let images = StoredImages(store);
        let found = images.module(&spec("wasm:v1")).await.expect("a module");
        assert_eq!((found.file, found.digest), (file, module.clone()));
        assert_eq!(images.0.mounts().await.expect("lists"), Vec::<String>::new());
        let Err(error) = images.module(&spec("linux:v1")).await else { panic!("a module of a Linux image") };
        let error = error.to_string();
        assert_eq!(error, NoModule.to_string());
    }
}
