//! The profiles of a configuration: each schedules the Pods of one `schedulerName` with its own plugins and their arguments.

use api_model::field::{FieldError, Path};

use super::arguments::{PluginArguments, wasm_plugin};
use super::declared::{self, Declared};
use super::document::{Document, Profile};
use super::error::ConfigurationError;
use super::extension_point::ExtensionPoint;
use super::{default_plugins, merge};

/// The name of the profile when there is one profile and the configuration does not name it.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// A profile: how Pods of one `schedulerName` are scheduled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KubeSchedulerProfile {
    /// The `schedulerName`.
    pub scheduler_name: String,
    /// The share of the nodes that must be feasible before the search ends, in per cent; 0 depends on the number of nodes.
    pub percentage_of_nodes_to_score: usize,
    /// The plugins.
    pub plugins: EnabledPlugins,
    /// The arguments of the plugins.
    pub arguments: PluginArguments,
}

/// The plugins of a profile, in the order of their calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnabledPlugins {
    pub filter: Vec<&'static str>,
    pub post_filter: Vec<&'static str>,
    /// Each with its weight.
    pub score: Vec<(&'static str, i64)>,
    pub permit: Vec<&'static str>,
    pub reserve: Vec<&'static str>,
    pub pre_bind: Vec<&'static str>,
    pub post_bind: Vec<&'static str>,
    /// Whether Pods with scheduling gates wait.
    pub has_scheduling_gates: bool,
    /// Whether the Pods of a gang wait for each other.
    pub has_gang_scheduling: bool,
}

impl Default for KubeSchedulerProfile {
    fn default() -> Self {
        let mut errors = Vec::new();
        Self::new(&Profile::default(), &Declared::default(), DEFAULT_SCHEDULER_NAME.to_owned(), 0, &Path::default(), &mut errors)
    }
}

/// The profiles; without one, the default profile. Only a single profile may have no name.
pub(super) fn profiles(document: &Document, errors: &mut Vec<FieldError>) -> Result<Vec<KubeSchedulerProfile>, ConfigurationError> {
    let path = Path::new("profiles");
    let global = percentage(document.percentage_of_nodes_to_score, &Path::new("percentageOfNodesToScore"), errors);
    let given = if document.profiles.is_empty() { &[Profile::default()] } else { document.profiles.as_slice() };
    let default_name = if given.len() == 1 { DEFAULT_SCHEDULER_NAME } else { "" };
    let mut profiles: Vec<KubeSchedulerProfile> = Vec::new();
    for (index, profile) in given.iter().enumerate() {
        let path = path.index(index);
        let name = profile.scheduler_name.as_deref().unwrap_or(default_name).to_owned();
        let name_path = path.child("schedulerName");
        if name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
        } else if let Some(first) = profiles.iter().position(|other| other.scheduler_name == name) {
            errors.push(FieldError::duplicate(&name_path, Path::new("profiles").index(first).child("schedulerName").to_string()));
        }
        let declared = Declared::new(&profile.plugin_config, &path.child("pluginConfig"), errors);
        let mut complete = KubeSchedulerProfile::new(profile, &declared, name, global, &path, errors);
        complete.set_arguments(profile, &declared, &path, errors)?;
        profiles.push(complete);
    }
    check_queue_sort(given, &path, errors);
    Ok(profiles)
}

/// All profiles share one queue.
fn check_queue_sort(profiles: &[Profile], path: &Path, errors: &mut Vec<FieldError>) {
    let queue_sort = |profile: &Profile| profile.plugins.at(ExtensionPoint::QueueSort).clone();
    let first = profiles.first().map(queue_sort);
    for (index, _) in profiles.iter().enumerate().filter(|(_, profile)| Some(queue_sort(profile)) != first) {
        let path = path.index(index).child("plugins").child("queueSort");
        errors.push(FieldError::forbidden(&path, "must be the same for all profiles"));
    }
}

impl KubeSchedulerProfile {
    fn new(
        profile: &Profile,
        declared: &Declared,
        scheduler_name: String,
        global_percentage: usize,
        path: &Path,
        errors: &mut Vec<FieldError>,
    ) -> Self {
        let own_percentage = profile.percentage_of_nodes_to_score;
        let checked = percentage(own_percentage, &path.child("percentageOfNodesToScore"), errors);
        let plugins = merge::enabled_plugins(&profile.plugins, declared, &scheduler_name, &path.child("plugins"), errors);
        Self {
            scheduler_name,
            percentage_of_nodes_to_score: own_percentage.map_or(global_percentage, |_| checked),
            plugins,
            arguments: PluginArguments::default(),
        }
    }

    fn set_arguments(
        &mut self,
        profile: &Profile,
        declared: &Declared,
        path: &Path,
        errors: &mut Vec<FieldError>,
    ) -> Result<(), ConfigurationError> {
        for (index, config) in profile.plugin_config.iter().enumerate() {
            let (path, name) = (path.child("pluginConfig").index(index), config.name.as_str());
            if profile.plugin_config.iter().take(index).any(|other| other.name == name) {
                errors.push(FieldError::duplicate(&path, name));
            }
            if let Some(plugin) = declared.declared(name) {
                let required = declared::required_points(&profile.plugins, name);
                self.arguments.external.push(wasm_plugin::decode(plugin.name, &config.args, required, &path, errors)?);
                errors.extend(declared::unused(&profile.plugins, name, &path));
                continue;
            }
            let has_arguments = self.arguments.set(name, &config.args, &path, errors)?;
            match default_plugins::plugin(name) {
                Some(_) if has_arguments => {}
                Some(_) => errors.push(FieldError::forbidden(&path, format!("the plugin {name} has no arguments"))),
                None => errors.push(merge::unavailable(name, &path, &format!("plugin {name:?} does not exist"))),
            }
        }
        Ok(())
    }
}

/// Checks a `percentageOfNodesToScore`.
fn percentage(percentage: Option<i32>, path: &Path, errors: &mut Vec<FieldError>) -> usize {
    let percentage = percentage.unwrap_or_default();
    if !(0..=100).contains(&percentage) {
        errors.push(FieldError::invalid(path, percentage, "not in valid range [0-100]"));
    }
    usize::try_from(percentage).unwrap_or_default()
}
