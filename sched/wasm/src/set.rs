//! The plugins of a running scheduler: one loop for each loads its image, and looks for a new version from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use runtimes_wasmtime::Components;
use sched_framework::{ExternalPlugin, ExternalPluginSet, ExternalPluginSpec, ExternalPlugins, Pending};
use tokio::sync::{Notify, watch};

use crate::instance::PluginError;
use crate::load::{Images, LoadError, Loader, Module, chain};
use crate::metrics;
use crate::plugin::{Version, WasmPlugin};
use crate::ticker::Ticker;

/// The time until an image that no version was loaded of is read again.
const RETRY: Duration = Duration::from_secs(5);

/// Makes plugins of the components in images.
pub struct WasmPlugins(Loader);

impl WasmPlugins {
    /// `components` compiles what `images` has.
    pub fn new(components: Components, images: Arc<dyn Images>) -> Self {
        let ticker = Ticker::new(components.engine());
        Self(Loader { components: Arc::new(components), images, ticker })
    }
}

impl ExternalPlugins for WasmPlugins {
    fn open(&self, specs: Vec<ExternalPluginSpec>) -> Arc<dyn ExternalPluginSet> {
        metrics::publish();
        let specs: Vec<_> = specs.into_iter().map(|spec| watch::Sender::new(Arc::new(spec))).collect();
        let plugins: Vec<_> = specs.iter().map(|spec| Arc::new(WasmPlugin::new(Arc::clone(&spec.borrow())))).collect();
        let waiting = AtomicUsize::new(plugins.len());
        Arc::new(WasmPluginSet { loader: self.0.clone(), plugins, specs, waiting, changes: Notify::new() })
    }
}

struct WasmPluginSet {
    loader: Loader,
    plugins: Vec<Arc<WasmPlugin>>,
    /// The latest declaration of each.
    specs: Vec<watch::Sender<Arc<ExternalPluginSpec>>>,
    /// The number of plugins whose image was not read yet.
    waiting: AtomicUsize,
    changes: Notify,
}

impl ExternalPluginSet for WasmPluginSet {
    fn plugins(&self) -> Vec<Arc<dyn ExternalPlugin>> {
        self.plugins.iter().map(|plugin| Arc::clone(plugin) as Arc<dyn ExternalPlugin>).collect()
    }

    fn update(&self, specs: Vec<ExternalPluginSpec>) {
        for (latest, spec) in self.specs.iter().zip(specs) {
            latest.send_if_modified(|latest| {
                let is_new = **latest != spec;
                if is_new {
                    *latest = Arc::new(spec);
                }
                is_new
            });
        }
    }

    fn run(&self) -> Pending<'_> {
        Box::pin(async {
            join_all(self.plugins.iter().zip(&self.specs).map(|(plugin, spec)| self.follow(plugin, spec.subscribe()))).await;
        })
    }

    fn is_ready(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    fn changed(&self) -> Pending<'_> {
        Box::pin(self.changes.notified())
    }
}

/// The versions of a plugin so far.
struct Versions {
    /// The present declaration.
    spec: Arc<ExternalPluginSpec>,
    /// The version in use: its declaration and the digest of its module.
    loaded: Option<(Arc<ExternalPluginSpec>, String)>,
    /// The digest of the latest module that cannot be used with the present declaration.
    refused: Option<String>,
    /// The latest error, which is reported once.
    reported: Option<String>,
}

impl Versions {
    fn new(spec: Arc<ExternalPluginSpec>) -> Self {
        Self { spec, loaded: None, refused: None, reported: None }
    }

    /// The plugin has another declaration. The version in use stays until one of that declaration is loaded.
    fn declare(&mut self, spec: Arc<ExternalPluginSpec>) {
        *self = Self { loaded: self.loaded.take(), ..Self::new(spec) };
    }

    /// The digest of the module that is in use with the present declaration.
    fn present(&self) -> Option<&str> {
        self.loaded.as_ref().filter(|(spec, _)| Arc::ptr_eq(spec, &self.spec)).map(|(_, digest)| digest.as_str())
    }

    /// Waits until the image is looked at again.
    async fn wait(&self) {
        let interval = self.spec.refresh_interval;
        match (self.present().is_some(), interval.is_zero()) {
            (true, true) => std::future::pending().await,
            (true, false) => tokio::time::sleep(interval).await,
            (false, true) => tokio::time::sleep(RETRY).await,
            (false, false) => tokio::time::sleep(interval.min(RETRY)).await,
        }
    }
}

impl WasmPluginSet {
    /// Loads the plugin, each new version of its image, and each new declaration.
    async fn follow(&self, plugin: &WasmPlugin, mut specs: watch::Receiver<Arc<ExternalPluginSpec>>) {
        let mut versions = Versions::new(Arc::clone(&specs.borrow_and_update()));
        let mut is_first = true;
        loop {
            let is_new = self.check(plugin, &mut versions).await;
            if std::mem::take(&mut is_first) {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                self.changes.notify_one();
            } else if is_new {
                self.changes.notify_one();
            }
            tokio::select! {
                // The set has the sender, so this ends with a new declaration.
                Ok(()) = specs.changed() => versions.declare(Arc::clone(&specs.borrow_and_update())),
                () = versions.wait() => {}
            }
        }
    }

    /// Loads the present version of the image unless it was loaded before. Returns whether it did.
    async fn check(&self, plugin: &WasmPlugin, versions: &mut Versions) -> bool {
        let spec = Arc::clone(&versions.spec);
        let module = match self.loader.module(&spec).await {
            Ok(module) => module,
            Err(error) => {
                report(plugin, versions, chain(&error));
                return false;
            }
        };
        let Module { digest, .. } = &module;
        if versions.present() == Some(digest.as_str()) || versions.refused.as_ref() == Some(digest) {
            return false;
        }
        match self.loader.load(&spec, &module).await {
            Ok((prepared, instance)) => {
                metrics::loaded(spec.name, true);
                let (scope, normalization) = (instance.scope(), instance.normalization());
                tracing::info!(plugin = spec.name, image = spec.image, digest, ?scope, ?normalization, "scheduler plugin loaded");
                plugin.set_version(Version::Loaded(prepared, instance));
                *versions = Versions { loaded: Some((Arc::clone(&spec), digest.clone())), ..Versions::new(spec) };
                true
            }
            Err(error) => {
                if is_final(&error) {
                    versions.refused = Some(digest.clone());
                }
                report(plugin, versions, chain(&error));
                false
            }
        }
    }
}

/// Whether the same image fails in the same way at every start. What failed because of this machine or its load may succeed later; the
/// compiler itself remembers what it refused.
fn is_final(error: &LoadError) -> bool {
    match error {
        LoadError::Link { .. } => true,
        LoadError::Start { source, .. } => !matches!(source, PluginError::Timeout { .. } | PluginError::System(_)),
        LoadError::Image { .. } | LoadError::Compile { .. } | LoadError::Interrupted { .. } => false,
    }
}

/// Reports why there is no new version. The version in use stays.
fn report(plugin: &WasmPlugin, versions: &mut Versions, error: String) {
    if versions.reported.as_ref() != Some(&error) {
        let spec = &versions.spec;
        metrics::loaded(spec.name, false);
        let in_use = versions.loaded.as_ref().map(|(_, digest)| digest);
        tracing::error!(plugin = spec.name, image = spec.image, error, in_use, "scheduler plugin not loaded");
        plugin.set_version(Version::Absent(Arc::clone(spec), format!("loading plugin {:?}: {error}", spec.name)));
        versions.reported = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_took_too_long_is_tried_again() {
        let start = |source| LoadError::Start { image: "gpu-load".to_owned(), source };
        assert!(is_final(&start(PluginError::Init("no".to_owned()))));
        assert!(is_final(&start(PluginError::Fuel { call: "init", fuel: 1 })));
        assert!(!is_final(&start(PluginError::Timeout { call: "init", timeout: Duration::from_secs(1) })));
        assert!(!is_final(&start(PluginError::System("no thread".to_owned()))));
        assert!(!is_final(&LoadError::Interrupted { image: "gpu-load".to_owned() }));
    }
}
