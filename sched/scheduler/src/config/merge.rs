//! The plugins of a profile: the default ones, changed by `plugins`. Upstream's `mergePluginSet` and `expandMultiPointPlugins` are the
//! model: what is set at one extension point goes before what `multiPoint` sets, and this before the defaults.

use std::collections::BTreeMap;

use api_model::field::{FieldError, Path};

use super::API_VERSION;
use super::declared::Declared;
use super::default_plugins::{ABSENT_PLUGINS, DEFAULT_PLUGINS, DefaultPlugin, GANG_SCHEDULING, REMOVED_PLUGINS, SCHEDULING_GATES};
use super::document::{Plugin, PluginSet, Plugins};
use super::extension_point::ExtensionPoint;
use super::profile::EnabledPlugins;

/// The field of the plugins at all their extension points.
pub(super) const MULTI_POINT: &str = "multiPoint";

/// In `disabled`, all plugins that are not enabled by name.
const ALL: &str = "*";

/// The names of the enabled plugins of each extension point, in the order of their calls.
type ByPoint = BTreeMap<ExtensionPoint, Vec<&'static str>>;

/// The plugins of the profile of that name at each extension point. `path` is that of the profile's `plugins`.
pub(super) fn enabled_plugins(
    plugins: &Plugins,
    declared: &Declared,
    scheduler_name: &str,
    path: &Path,
    errors: &mut Vec<FieldError>,
) -> EnabledPlugins {
    check_names(&plugins.multi_point, declared, None, &path.child(MULTI_POINT), errors);
    let multi_point = merge(&plugins.multi_point);
    let mut by_point = ByPoint::new();
    for point in ExtensionPoint::ALL {
        let path = path.child(point.field());
        check_names(plugins.at(point), declared, Some(point), &path, errors);
        by_point.insert(point, expand(&multi_point, plugins.at(point), declared, point, &path, errors));
    }
    check_required(&by_point, declared, scheduler_name, path, errors);
    let mut take = |point| by_point.remove(&point).unwrap_or_default();
    let pre_enqueue = take(ExtensionPoint::PreEnqueue);
    let weighted = |name: &'static str| (name, weight(name, &plugins.at(ExtensionPoint::Score).enabled, &multi_point));
    EnabledPlugins {
        filter: take(ExtensionPoint::Filter),
        post_filter: take(ExtensionPoint::PostFilter),
        score: take(ExtensionPoint::Score).into_iter().map(weighted).collect(),
        permit: take(ExtensionPoint::Permit),
        reserve: take(ExtensionPoint::Reserve),
        pre_bind: take(ExtensionPoint::PreBind),
        post_bind: take(ExtensionPoint::PostBind),
        has_scheduling_gates: pre_enqueue.contains(&SCHEDULING_GATES),
        has_gang_scheduling: pre_enqueue.contains(&GANG_SCHEDULING),
    }
}

/// The default plugins with the changes of `multiPoint`. A plugin that is enabled again stays where it is by default.
fn merge(custom: &PluginSet) -> Vec<Plugin> {
    let by_default = |default: &DefaultPlugin| Plugin { name: default.name.to_owned(), weight: i32::try_from(default.weight).ok() };
    let mut merged: Vec<Plugin> = DEFAULT_PLUGINS.iter().map(by_default).collect();
    merged.retain(|default| !custom.disables(ALL) && !custom.disables(&default.name));
    for (index, plugin) in custom.enabled.iter().enumerate() {
        // A plugin that is enabled twice is in the list twice: an error later.
        let is_first = custom.enabled.iter().position(|other| other.name == plugin.name) == Some(index);
        match merged.iter_mut().find(|default| is_first && default.name == plugin.name) {
            Some(default) => default.clone_from(plugin),
            None => merged.push(plugin.clone()),
        }
    }
    merged
}

/// The plugins of one extension point. The order is upstream's: first those of `multiPoint` that the extension point configures
/// again, then the others of `multiPoint`, then the others of the extension point.
fn expand(
    multi_point: &[Plugin],
    set: &PluginSet,
    declared: &Declared,
    point: ExtensionPoint,
    path: &Path,
    errors: &mut Vec<FieldError>,
) -> Vec<&'static str> {
    let plugin = |name: &str| declared.plugin(name);
    let mut own: Vec<&'static str> = Vec::new();
    for (index, name) in set.enabled.iter().enumerate().filter_map(|(index, enabled)| Some((index, plugin(&enabled.name)?.name))) {
        if own.contains(&name) {
            errors.push(already_registered(&path.child("enabled").index(index), name, point));
        } else {
            own.push(name);
        }
    }
    if set.disables(ALL) {
        return own;
    }
    let (mut again, mut others): (Vec<&'static str>, Vec<&'static str>) = (Vec::new(), Vec::new());
    let extends = |default: &&DefaultPlugin| default.points.contains(&point) && !set.disables(default.name);
    for DefaultPlugin { name, .. } in multi_point.iter().filter_map(|enabled| plugin(&enabled.name)).filter(extends) {
        if own.contains(name) {
            again.push(name);
        } else if others.contains(name) {
            errors.push(already_registered(path, name, point));
        } else {
            others.push(name);
        }
    }
    let (overriding, additional): (Vec<_>, Vec<_>) = own.into_iter().partition(|name| again.contains(name));
    overriding.into_iter().chain(others).chain(additional).collect()
}

fn already_registered(path: &Path, name: &str, point: ExtensionPoint) -> FieldError {
    FieldError::invalid(path, name, format!("plugin {name:?} already registered as {:?}", point.plugin_type()))
}

/// The weight of a score: that of the extension point, else that of `multiPoint`; 0 counts as 1.
fn weight(name: &str, score: &[Plugin], multi_point: &[Plugin]) -> i64 {
    let enabled = score.iter().chain(multi_point).find(|plugin| plugin.name == name);
    match enabled.and_then(|plugin| plugin.weight).unwrap_or_default() {
        0 => 1,
        weight => i64::from(weight),
    }
}

/// The enabled plugins must exist, and implement the extension point; without one, the set is `multiPoint`. The disabled plugins may
/// have any name.
fn check_names(set: &PluginSet, declared: &Declared, point: Option<ExtensionPoint>, path: &Path, errors: &mut Vec<FieldError>) {
    // Upstream looks for a plugin of `multiPoint` at this extension point first.
    let plugin_type = point.unwrap_or(ExtensionPoint::PreFilter).plugin_type();
    for (index, Plugin { name, .. }) in set.enabled.iter().enumerate() {
        let path = path.child("enabled").index(index);
        match declared.plugin(name) {
            Some(plugin) if point.is_none_or(|point| plugin.points.contains(&point)) => {}
            Some(_) => {
                let detail = format!("plugin {name:?} does not extend {plugin_type} plugin");
                errors.push(FieldError::invalid(&path, name.as_str(), detail));
            }
            None => errors.push(unavailable(name, &path, &format!("{plugin_type} {name:?} does not exist"))),
        }
    }
}

/// The error of a plugin that Skiff does not have.
pub(super) fn unavailable(name: &str, path: &Path, unknown: &str) -> FieldError {
    if REMOVED_PLUGINS.contains(&name) {
        let detail = format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {API_VERSION:?})");
        return FieldError::invalid(path, name, detail);
    }
    if ABSENT_PLUGINS.contains(&name) {
        return FieldError::forbidden(path, format!("Skiff does not have the plugin {name}"));
    }
    FieldError::invalid(path, name, unknown)
}

/// What a profile cannot do without. Skiff computes what a plugin needs in the same step as upstream's `preFilter` and `preScore`, so
/// that a plugin cannot be called without it.
fn check_required(by_point: &ByPoint, declared: &Declared, scheduler_name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let names = |point| by_point.get(&point).map(Vec::as_slice).unwrap_or_default();
    let profile = format!("for profile with scheduler name {scheduler_name:?}");
    let sorts = names(ExtensionPoint::QueueSort).len();
    if sorts != 1 {
        let detail = format!("only one queue sort plugin required {profile}, but got {sorts}");
        errors.push(FieldError::required(&path.child(ExtensionPoint::QueueSort.field()), detail));
    }
    if names(ExtensionPoint::Bind).is_empty() {
        errors
            .push(FieldError::required(&path.child(ExtensionPoint::Bind.field()), format!("at least one bind plugin is needed {profile}")));
    }
    for (before, point) in [
        (ExtensionPoint::PreFilter, ExtensionPoint::Filter),
        (ExtensionPoint::PreScore, ExtensionPoint::Score),
        (ExtensionPoint::PreFilter, ExtensionPoint::Reserve),
        (ExtensionPoint::Reserve, ExtensionPoint::PreBind),
    ] {
        let implements = |name: &&&str| declared.plugin(name).is_some_and(|plugin| plugin.points.contains(&before));
        for name in names(point).iter().filter(implements).filter(|name| !names(before).contains(name)) {
            let detail = format!("Skiff cannot call {name} for {} without {}", point.field(), before.field());
            errors.push(FieldError::forbidden(&path.child(before.field()), detail));
        }
    }
}

#[cfg(test)]
mod tests;
