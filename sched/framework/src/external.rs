//! Plugins that are not part of the program: a profile declares them by the image that has their code. What loads and runs them is
//! behind traits, so that the scheduler depends on no runtime.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{FilterPlugin, PermitPlugin, ScorePlugin};

/// What happens when a plugin fails, or is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The attempt to schedule the Pod fails and is repeated after its back-off.
    Fail,
    /// The cycle goes on as if the profile did not have the plugin.
    Ignore,
}

/// When the plugin's image is fetched from its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagePullPolicy {
    /// At the start and at each check for a new version.
    Always,
    /// When the image store does not have the image.
    IfNotPresent,
    /// Never.
    Never,
}

/// The extension points at which a profile enables a plugin by name. The plugin must implement them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExternalPoints {
    /// Filter.
    pub filter: bool,
    /// Score.
    pub score: bool,
    /// Permit.
    pub permit: bool,
}

/// The declaration of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalPluginSpec {
    /// The name of the plugin in the profile.
    pub name: &'static str,
    /// The image with its code.
    pub image: String,
    /// When the image is fetched.
    pub pull_policy: ImagePullPolicy,
    /// The file with the credentials for the image's registry, in the form of docker's `config.json`.
    pub registry_config_file: Option<PathBuf>,
    /// What a failure leads to.
    pub failure_policy: FailurePolicy,
    /// The most instructions of one call.
    pub fuel: u64,
    /// The most bytes of memory.
    pub memory_bytes: usize,
    /// The longest time of all calls of a scheduling cycle.
    pub timeout: Duration,
    /// The time between two checks for a new version of the image; zero means none.
    pub refresh_interval: Duration,
    /// The plugin's own arguments, as JSON.
    pub args: String,
    /// What the plugin must implement.
    pub required: ExternalPoints,
}

/// A plugin that is loaded while the scheduler runs. It may be absent, fail, and be replaced by another version. At an extension
/// point that it does not implement it changes nothing.
pub trait ExternalPlugin: FilterPlugin + ScorePlugin + PermitPlugin {
    /// Begins a scheduling cycle: from here to the next call, the plugin is of one version and of one scope. Returns another number
    /// when results of earlier cycles do not hold any more.
    fn begin_cycle(&self) -> u64;

    /// Why the cycle must fail: the plugin failed since [`ExternalPlugin::begin_cycle`], and its policy is [`FailurePolicy::Fail`].
    fn failure(&self) -> Option<String>;
}

/// A future behind a trait object.
pub type Pending<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The external plugins of a running scheduler.
pub trait ExternalPluginSet: Send + Sync {
    /// The plugins, in the order of their specs.
    fn plugins(&self) -> Vec<Arc<dyn ExternalPlugin>>;

    /// Gives the plugins other specs, in the order of those that the set was opened with, and of the same names and extension points. A
    /// plugin is loaded with its new spec while the version before stays in use, also when that fails.
    fn update(&self, specs: Vec<ExternalPluginSpec>);

    /// Loads the plugins and follows their images. It does not end.
    fn run(&self) -> Pending<'_>;

    /// Whether each plugin was loaded or failed to load at least once.
    fn is_ready(&self) -> bool;

    /// Waits until a plugin was loaded or replaced, which may make unschedulable Pods fit, or until the set is ready.
    fn changed(&self) -> Pending<'_>;
}

/// Makes external plugins.
pub trait ExternalPlugins: Send + Sync {
    /// The plugins of these specs. They load while [`ExternalPluginSet::run`] runs.
    fn open(&self, specs: Vec<ExternalPluginSpec>) -> Arc<dyn ExternalPluginSet>;
}
