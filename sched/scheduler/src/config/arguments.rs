//! The arguments of plugins (`pluginConfig`), one file a plugin that has some. What is not given has upstream's default.

mod default_preemption;
mod dynamic_resources;
mod inter_pod_affinity;
mod node_affinity;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod pod_topology_spread;
mod resource_spec;
mod volume_binding;
pub(crate) mod wasm_plugin;

use api_model::field::{FieldError, Path};
use sched_framework::ExternalPluginSpec;
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Value};

use super::ConfigurationError;

pub(crate) use default_preemption::DefaultPreemptionArgs;
pub(crate) use dynamic_resources::DynamicResourcesArgs;
pub(crate) use inter_pod_affinity::InterPodAffinityArgs;
pub(crate) use node_affinity::NodeAffinityArgs;
pub(crate) use node_resources_balanced_allocation::NodeResourcesBalancedAllocationArgs;
pub(crate) use node_resources_fit::{NodeResourcesFitArgs, ScoringStrategyType, UtilizationShapePoint};
pub(crate) use pod_topology_spread::DefaultConstraints;
use pod_topology_spread::PodTopologySpreadArgs;
pub(crate) use resource_spec::ResourceSpec;
pub(crate) use volume_binding::VolumeBindingArgs;

/// The arguments of all plugins.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PluginArguments {
    pub default_preemption: DefaultPreemptionArgs,
    pub dynamic_resources: DynamicResourcesArgs,
    pub inter_pod_affinity: InterPodAffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub node_resources_balanced_allocation: NodeResourcesBalancedAllocationArgs,
    pub node_resources_fit: NodeResourcesFitArgs,
    pub pod_topology_spread: PodTopologySpreadArgs,
    pub volume_binding: VolumeBindingArgs,
    /// The declared plugins.
    pub external: Vec<ExternalPluginSpec>,
}

/// The arguments of one plugin.
trait Arguments: DeserializeOwned {
    /// Sets the defaults of what is given in part, and checks the values. `path` is that of `args`.
    fn complete(&mut self, path: &Path, errors: &mut Vec<FieldError>);
}

impl PluginArguments {
    /// Decodes and checks the arguments of the plugin of that name. `path` is that of the element of `pluginConfig`. Returns whether
    /// the plugin has arguments.
    ///
    /// # Errors
    /// When the arguments are of another kind, or have unknown fields or values of another type.
    pub(super) fn set(
        &mut self,
        name: &str,
        args: &Mapping,
        path: &Path,
        errors: &mut Vec<FieldError>,
    ) -> Result<bool, ConfigurationError> {
        match name {
            "DefaultPreemption" => self.default_preemption = decode(name, args, path, errors)?,
            "DynamicResources" => self.dynamic_resources = decode(name, args, path, errors)?,
            "InterPodAffinity" => self.inter_pod_affinity = decode(name, args, path, errors)?,
            "NodeAffinity" => self.node_affinity = decode(name, args, path, errors)?,
            "NodeResourcesBalancedAllocation" => self.node_resources_balanced_allocation = decode(name, args, path, errors)?,
            "NodeResourcesFit" => self.node_resources_fit = decode(name, args, path, errors)?,
            "PodTopologySpread" => self.pod_topology_spread = decode(name, args, path, errors)?,
            "VolumeBinding" => self.volume_binding = decode(name, args, path, errors)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The arguments, whose own `apiVersion` and `kind` may be left out.
fn decode<A: Arguments>(name: &str, args: &Mapping, path: &Path, errors: &mut Vec<FieldError>) -> Result<A, ConfigurationError> {
    let mut fields = args.clone();
    let mut take = |field: &str| fields.shift_remove(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    let (api_version, kind) = (take("apiVersion"), take("kind"));
    let is_other = |given: &str, wanted: &str| !given.is_empty() && given != wanted;
    if is_other(&api_version, super::API_VERSION) || is_other(&kind, &format!("{name}Args")) {
        return Err(ConfigurationError::ArgumentsKind { path: path.clone(), plugin: name.to_owned(), api_version, kind });
    }
    let decoded = serde_yaml::from_value(Value::Mapping(fields));
    let mut arguments: A =
        decoded.map_err(|source| ConfigurationError::Arguments { path: path.clone(), plugin: name.to_owned(), source })?;
    arguments.complete(&path.child("args"), errors);
    Ok(arguments)
}

#[cfg(test)]
mod tests;
