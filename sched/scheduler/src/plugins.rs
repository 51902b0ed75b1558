//! The plugins, one file each, and the profile that calls them.

mod balanced_allocation;
mod binding;
mod default_preemption;
mod dynamic_resources;
mod external;
mod gang_scheduling;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod resource_allocation;
mod scoring_strategy;
mod taint_toleration;
mod topology;
mod volume_binding;
#[cfg(test)]
pub(crate) mod volume_fixtures;
mod volume_restrictions;
mod volume_zone;
mod writes;

use std::sync::Arc;

use sched_framework::{ExternalPlugin, FilterPlugin, Filters, PermitPlugin, PostFilterPlugin, Reason, ScorePlugin, Weighted};

use crate::config::{KubeSchedulerProfile, PluginArguments};

use self::external::External;
pub(crate) use binding::{BindingError, BindingPlugins, Handle};
pub(crate) use default_preemption::{
    DEFAULT_PREEMPTION, IndivisibleGroups, Unit, by_importance, group_disruptions, select_candidate, split_by_budget,
};
#[cfg(test)]
pub(crate) use dynamic_resources::fixtures as device_fixtures;
pub(crate) use dynamic_resources::{DYNAMIC_RESOURCES, awaited_claim, has_binding_conditions};
pub(crate) use gang_scheduling::{Feasibility, may_enqueue, placement_feasible};
pub(crate) use image_locality::IMAGE_LOCALITY;
pub(crate) use volume_binding::storage_limit;
pub(crate) use volume_zone::topologies;
pub(crate) use writes::Writes;

/// The plugins of a profile, in the order in which the cycle calls them.
pub(crate) struct Profile {
    pub filters: Filters,
    pub post_filters: Vec<Box<dyn PostFilterPlugin>>,
    pub scores: Vec<Box<dyn ScorePlugin>>,
    pub permits: Vec<Box<dyn PermitPlugin>>,
    /// Those of Reserve, PreBind and PostBind.
    pub binding: BindingPlugins,
    /// The plugins among them that are not part of the program, each once.
    pub externals: Vec<Arc<dyn ExternalPlugin>>,
    /// The share of the nodes that must be feasible before the search ends, in per cent; 0 depends on the number of nodes.
    pub percentage_of_nodes_to_score: usize,
}

impl Profile {
    /// The plugins of the configured profile, with its external plugins.
    pub fn new(profile: &KubeSchedulerProfile, externals: Vec<Arc<dyn ExternalPlugin>>, handle: &Handle) -> Self {
        let binding = BindingPlugins::new(&profile.plugins, &profile.arguments, handle);
        Self { binding, ..Self::of_cycle(profile, externals) }
    }

    /// The plugins that scheduling cycles call.
    pub(crate) fn of_cycle(profile: &KubeSchedulerProfile, externals: Vec<Arc<dyn ExternalPlugin>>) -> Self {
        let KubeSchedulerProfile { plugins, arguments, percentage_of_nodes_to_score, .. } = profile;
        let external =
            |name: &str| externals.iter().find(|plugin| plugin.name() == name).map(|plugin| Box::new(External(Arc::clone(plugin))));
        let filter = |name: &&str| filter_plugin(name, arguments).or_else(|| Some(external(name)?));
        let weighted = |(name, weight): &(&str, i64)| {
            let plugin = score_plugin(name, arguments).or_else(|| Some(external(name)?))?;
            let plugin: Box<dyn ScorePlugin> = Box::new(Weighted::new(plugin, *weight));
            Some(plugin)
        };
        let permit = |name: &&str| -> Option<Box<dyn PermitPlugin>> { Some(external(name)?) };
        Self {
            filters: Filters::new(plugins.filter.iter().filter_map(filter).collect()),
            post_filters: plugins.post_filter.iter().filter_map(|name| post_filter_plugin(name, arguments)).collect(),
            scores: plugins.score.iter().filter_map(weighted).collect(),
            permits: plugins.permit.iter().filter_map(permit).collect(),
            binding: BindingPlugins::default(),
            percentage_of_nodes_to_score: *percentage_of_nodes_to_score,
            externals,
        }
    }
}

/// The filter plugin of that name.
fn filter_plugin(name: &str, arguments: &PluginArguments) -> Option<Box<dyn FilterPlugin>> {
    Some(match name {
        "NodeUnschedulable" => Box::new(node_unschedulable::NodeUnschedulable),
        "NodeName" => Box::new(node_name::NodeName),
        "TaintToleration" => Box::new(taint_toleration::TaintToleration),
        "NodeAffinity" => Box::new(node_affinity::NodeAffinity::new(&arguments.node_affinity)),
        "NodePorts" => Box::new(node_ports::NodePorts),
        "NodeResourcesFit" => Box::new(node_resources_fit::NodeResourcesFit::new(&arguments.node_resources_fit)),
        "VolumeRestrictions" => Box::new(volume_restrictions::VolumeRestrictions),
        "NodeVolumeLimits" => Box::new(node_volume_limits::NodeVolumeLimits),
        volume_binding::NAME => Box::new(volume_binding::VolumeBinding),
        "VolumeZone" => Box::new(volume_zone::VolumeZone),
        "PodTopologySpread" => Box::new(pod_topology_spread::PodTopologySpread),
        "InterPodAffinity" => Box::new(inter_pod_affinity::InterPodAffinity::new(&arguments.inter_pod_affinity)),
        DYNAMIC_RESOURCES => Box::new(dynamic_resources::DynamicResources::new(&arguments.dynamic_resources)),
        _ => return None,
    })
}

/// Why a Pod cannot be scheduled whose claim does not exist.
fn claim_not_found(name: &str) -> Reason {
    format!("persistentvolumeclaim {name:?} not found").into()
}

/// The post-filter plugin of that name.
fn post_filter_plugin(name: &str, arguments: &PluginArguments) -> Option<Box<dyn PostFilterPlugin>> {
    Some(match name {
        DYNAMIC_RESOURCES => Box::new(dynamic_resources::DynamicResources::default()),
        DEFAULT_PREEMPTION => Box::new(default_preemption::DefaultPreemption::new(&arguments.default_preemption)),
        _ => return None,
    })
}

/// The score plugin of that name.
fn score_plugin(name: &str, arguments: &PluginArguments) -> Option<Box<dyn ScorePlugin>> {
    Some(match name {
        "TaintToleration" => Box::new(taint_toleration::TaintToleration),
        "NodeAffinity" => Box::new(node_affinity::NodeAffinity::new(&arguments.node_affinity)),
        "NodeResourcesFit" => Box::new(node_resources_fit::NodeResourcesFit::new(&arguments.node_resources_fit)),
        "PodTopologySpread" => Box::new(pod_topology_spread::PodTopologySpread),
        "InterPodAffinity" => Box::new(inter_pod_affinity::InterPodAffinity::new(&arguments.inter_pod_affinity)),
        "NodeResourcesBalancedAllocation" => {
            Box::new(balanced_allocation::BalancedAllocation::new(&arguments.node_resources_balanced_allocation))
        }
        IMAGE_LOCALITY => Box::new(image_locality::ImageLocality),
        DYNAMIC_RESOURCES => Box::new(dynamic_resources::DynamicResources::default()),
        _ => return None,
    })
}

#[cfg(test)]
impl Default for Profile {
    fn default() -> Self {
        Self::of_cycle(&KubeSchedulerProfile::default(), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DEFAULT_PLUGINS, ExtensionPoint};

    #[test]
    fn every_plugin_of_the_default_profile_is_built_with_its_name() {
        let arguments = PluginArguments::default();
        for plugin in DEFAULT_PLUGINS {
            for point in plugin.points {
                let name = match point {
                    ExtensionPoint::Filter => filter_plugin(plugin.name, &arguments).map(|built| built.name()),
                    ExtensionPoint::PostFilter => post_filter_plugin(plugin.name, &arguments).map(|built| built.name()),
                    ExtensionPoint::Score => score_plugin(plugin.name, &arguments).map(|built| built.name()),
                    ExtensionPoint::Reserve => binding::reserve_plugin(plugin.name).map(|built| built.name()),
                    _ => continue,
                };
                assert_eq!(name, Some(plugin.name), "{point:?}");
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod fixtures {
    //! Nodes and Pods for the tables of tests.

    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Node, Pod};
    use sched_framework::{CycleState, NodeInfo, PodInfo, ScorePlugin, Snapshot};
    use serde_json::{Value, json};

    use crate::config::{KubeSchedulerConfiguration, PluginArguments};

    /// The arguments of plugins when one of them is configured so.
    pub(crate) fn arguments(plugin: &str, args: &Value) -> PluginArguments {
        let profile = json!({"pluginConfig": [{"name": plugin, "args": args}]});
        let file = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]});
        let configuration = KubeSchedulerConfiguration::parse(&file.to_string()).expect("valid arguments");
        configuration.profiles.into_iter().next().expect("a profile").arguments
    }

    /// The scaled scores of all nodes; `None` when the plugin has no preference.
    pub(crate) fn scores(plugin: &dyn ScorePlugin, pod: &PodInfo, all: &Snapshot) -> Option<Vec<i64>> {
        let nodes: Vec<&NodeInfo> = all.nodes.iter().map(AsRef::as_ref).collect();
        let mut state = CycleState::default();
        plugin.count_pods(&mut state, pod, all);
        plugin.read_snapshot(&mut state, pod, all);
        plugin.pre_score(&mut state, pod, &nodes).then(|| {
            let raw: Vec<_> = nodes.iter().map(|node| plugin.score(&state, pod, node)).collect();
            plugin.normalization().scale(&raw)
        })
    }

    /// A node of 4 cores, 8 GiB and 110 Pods; `more` is merged over it.
    pub(crate) fn node(name: &str, more: Value) -> NodeInfo {
        let mut object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        merge(&mut object, more);
        let mut info = NodeInfo::named(name);
        info.set_node(&serde_json::from_value::<Node>(object).expect("a node"));
        info
    }

    /// A Pod of one container with that `spec` merged over it.
    pub(crate) fn pod(name: &str, spec: Value) -> PodInfo {
        labelled(name, json!({}), spec)
    }

    /// A Pod with labels and that `spec`.
    pub(crate) fn labelled(name: &str, labels: Value, spec: Value) -> PodInfo {
        let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [{"name": "c"}]}});
        merge(&mut object, json!({"metadata": {"labels": labels}, "spec": spec}));
        PodInfo::new(&serde_json::from_value::<Pod>(object).expect("a pod"))
    }

    /// A snapshot of the nodes.
    pub(crate) fn snapshot(nodes: Vec<NodeInfo>) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (index, node) in nodes.into_iter().enumerate() {
            let node = NodeInfo { index, ..node };
            let with_affinity = node.pods.iter().filter(|pod| !pod.pod_affinity.is_empty());
            let by_uid = with_affinity.map(|pod| (pod.uid.clone(), (Arc::clone(pod), node.name.clone())));
            snapshot.pods_with_affinity.extend(by_uid);
            snapshot.node_index.insert(node.name.clone(), index);
            snapshot.nodes.push(Arc::new(node));
        }
        snapshot
    }

    /// A Pod that requests CPU and memory.
    pub(crate) fn requesting(name: &str, cpu: &str, memory: &str) -> PodInfo {
        pod(name, json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}))
    }

    pub(crate) fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(k, v)| merge(into.entry(k).or_insert(Value::Null), v))
            }
            (into, from) => *into = from,
        }
    }
}
