//! The fields of a `KubeSchedulerConfiguration` as they are written. Unknown and duplicate fields are errors.

use std::fmt;

use serde::Deserialize;
use serde_yaml::Mapping;

use super::extension_point::ExtensionPoint;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Document {
    pub api_version: String,
    pub kind: String,
    pub parallelism: Option<i32>,
    pub leader_election: LeaderElection,
    pub client_connection: Mapping,
    pub enable_profiling: Option<bool>,
    pub enable_contention_profiling: Option<bool>,
    pub percentage_of_nodes_to_score: Option<i32>,
    pub pod_initial_backoff_seconds: Option<i64>,
    pub pod_max_backoff_seconds: Option<i64>,
    pub profiles: Vec<Profile>,
    pub extenders: Vec<Extender>,
    pub delay_cache_until_active: bool,
}

/// `leaderElection`. Durations are Go's, for example `15s`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct LeaderElection {
    pub leader_elect: Option<bool>,
    pub lease_duration: Option<String>,
    pub renew_deadline: Option<String>,
    pub retry_period: Option<String>,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

/// An element of `extenders`. `httpTimeout` is a duration of Go.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Extender {
    pub url_prefix: String,
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub weight: i64,
    pub bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    pub tls_config: Option<ExtenderTlsConfig>,
    pub http_timeout: Option<String>,
    pub node_cache_capable: bool,
    pub managed_resources: Vec<ExtenderManagedResource>,
    pub ignorable: bool,
}

/// An element of `managedResources`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExtenderManagedResource {
    pub name: String,
    pub ignored_by_scheduler: bool,
}

/// `tlsConfig` of an extender. Data is in base64, as all bytes in JSON and YAML of Kubernetes.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExtenderTlsConfig {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

/// The key stays out of logs.
impl fmt::Debug for ExtenderTlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtenderTlsConfig")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// An element of `profiles`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Profile {
    pub scheduler_name: Option<String>,
    pub percentage_of_nodes_to_score: Option<i32>,
    pub plugins: Plugins,
    pub plugin_config: Vec<PluginConfig>,
}

/// `plugins`, by extension point.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Plugins {
    pub multi_point: PluginSet,
    pre_filter: PluginSet,
    filter: PluginSet,
    post_filter: PluginSet,
    reserve: PluginSet,
    pre_score: PluginSet,
    score: PluginSet,
    pre_bind: PluginSet,
    bind: PluginSet,
    post_bind: PluginSet,
    permit: PluginSet,
    pre_enqueue: PluginSet,
    queue_sort: PluginSet,
}

impl Plugins {
    /// The plugins that are configured at this extension point alone.
    pub fn at(&self, point: ExtensionPoint) -> &PluginSet {
        match point {
            ExtensionPoint::PreFilter => &self.pre_filter,
            ExtensionPoint::Filter => &self.filter,
            ExtensionPoint::PostFilter => &self.post_filter,
            ExtensionPoint::Reserve => &self.reserve,
            ExtensionPoint::PreScore => &self.pre_score,
            ExtensionPoint::Score => &self.score,
            ExtensionPoint::PreBind => &self.pre_bind,
            ExtensionPoint::Bind => &self.bind,
            ExtensionPoint::PostBind => &self.post_bind,
            ExtensionPoint::Permit => &self.permit,
            ExtensionPoint::PreEnqueue => &self.pre_enqueue,
            ExtensionPoint::QueueSort => &self.queue_sort,
        }
    }
}

/// The plugins of one extension point, or of `multiPoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PluginSet {
    pub enabled: Vec<Plugin>,
    pub disabled: Vec<Plugin>,
}

impl PluginSet {
    /// Whether a plugin is disabled by its name.
    pub fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|plugin| plugin.name == name)
    }
}

/// A plugin in a set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Plugin {
    pub name: String,
    pub weight: Option<i32>,
}

/// An element of `pluginConfig`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PluginConfig {
    pub name: String,
    #[serde(default)]
    pub args: Mapping,
}
