//! The plugins of a profile by their names: the program's own, and those that the profile declares by arguments of the kind
//! `WasmPluginArgs`.

use std::sync::Mutex;

use api_model::field::{FieldError, Path};
use sched_framework::ExternalPoints;

use super::arguments::wasm_plugin;
use super::default_plugins::{self, DefaultPlugin};
use super::document::{PluginConfig, Plugins};
use super::extension_point::ExtensionPoint::{self, Filter, Permit, Score};
use super::merge;

/// The extension points of a declared plugin. Which of them it implements is known when it is loaded.
const POINTS: &[ExtensionPoint] = &[Filter, Score, Permit];

/// The declared plugins of all configurations that the process read. Plugins have static names, and a name is leaked once.
static DECLARED: Mutex<Vec<&DefaultPlugin>> = Mutex::new(Vec::new());

/// The plugins that a profile declares.
#[derive(Debug, Default)]
pub(super) struct Declared(Vec<&'static DefaultPlugin>);

impl Declared {
    /// Reads the declarations. `path` is that of `pluginConfig`.
    pub fn new(plugin_config: &[PluginConfig], path: &Path, errors: &mut Vec<FieldError>) -> Self {
        let declarations = plugin_config.iter().enumerate().filter(|(_, config)| wasm_plugin::declares(&config.args));
        let mut declared = Vec::new();
        for (index, PluginConfig { name, .. }) in declarations {
            if name.is_empty() {
                errors.push(FieldError::required(&path.index(index).child("name"), ""));
            } else if default_plugins::is_upstreams(name) {
                let detail = "is the name of a plugin of Kubernetes: a plugin of your own needs another one";
                errors.push(FieldError::invalid(&path.index(index).child("name"), name.as_str(), detail));
            } else {
                declared.push(interned(name));
            }
        }
        Self(declared)
    }

    /// The plugin of that name, the program's own or a declared one.
    pub fn plugin(&self, name: &str) -> Option<&'static DefaultPlugin> {
        default_plugins::plugin(name).or_else(|| self.declared(name))
    }

    /// The declared plugin of that name.
    pub fn declared(&self, name: &str) -> Option<&'static DefaultPlugin> {
        self.0.iter().find(|plugin| plugin.name == name).copied()
    }
}

/// The extension points at which the profile enables the plugin by its name.
pub(super) fn required_points(plugins: &Plugins, name: &str) -> ExternalPoints {
    let enables = |point| plugins.at(point).enabled.iter().any(|plugin| plugin.name == name);
    ExternalPoints { filter: enables(Filter), score: enables(Score), permit: enables(Permit) }
}

/// The error of a declared plugin that the profile does not use.
pub(super) fn unused(plugins: &Plugins, name: &str, path: &Path) -> Option<FieldError> {
    let is_used =
        required_points(plugins, name) != ExternalPoints::default() || plugins.multi_point.enabled.iter().any(|plugin| plugin.name == name);
    let points = POINTS.iter().map(|point| point.field()).collect::<Vec<_>>().join(", ");
    let detail = format!("the profile enables the plugin {name} neither at {} nor at one of {points}", merge::MULTI_POINT);
    (!is_used).then(|| FieldError::forbidden(path, detail))
}

fn interned(name: &str) -> &'static DefaultPlugin {
    // A panic while the lock was taken leaves the list whole.
    let mut declared = DECLARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(plugin) = declared.iter().find(|plugin| plugin.name == name) {
        return plugin;
    }
    let plugin: &'static DefaultPlugin = Box::leak(Box::new(DefaultPlugin { name: name.to_owned().leak(), points: POINTS, weight: 1 }));
    declared.push(plugin);
    plugin
}

#[cfg(test)]
mod tests;
