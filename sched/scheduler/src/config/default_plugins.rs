//! The plugins of Skiff, in upstream's default order and with upstream's default weights (`getDefaultPlugins`). Upstream's plugins
//! that Skiff lacks are named, so that a configuration with one of them is rejected with this reason.

use super::extension_point::ExtensionPoint::{
    self, Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
};

/// A plugin that every profile has by default.
#[derive(Debug)]
pub(crate) struct DefaultPlugin {
    /// Upstream's name.
    pub name: &'static str,
    /// The extension points that the plugin implements.
    pub points: &'static [ExtensionPoint],
    /// The weight of its score.
    pub weight: i64,
}

/// A filter whose sums are computed once a cycle, and a score likewise.
const FILTER_AND_SCORE: &[ExtensionPoint] = &[PreFilter, Filter, PreScore, Score];

/// The plugin for which Pods with scheduling gates wait.
pub(super) const SCHEDULING_GATES: &str = "SchedulingGates";

/// The plugin for which the Pods of a gang wait for each other.
pub(super) const GANG_SCHEDULING: &str = "GangScheduling";

/// The plugins, in the order of their calls. A new plugin gets a line here, and one in `plugins.rs`.
pub(crate) const DEFAULT_PLUGINS: &[DefaultPlugin] = &[
    DefaultPlugin { name: SCHEDULING_GATES, points: &[PreEnqueue], weight: 1 },
    DefaultPlugin { name: "PrioritySort", points: &[QueueSort], weight: 1 },
    DefaultPlugin { name: "NodeUnschedulable", points: &[Filter], weight: 1 },
    DefaultPlugin { name: "NodeName", points: &[Filter], weight: 1 },
    DefaultPlugin { name: "TaintToleration", points: &[Filter, PreScore, Score], weight: 3 },
    DefaultPlugin { name: "NodeAffinity", points: FILTER_AND_SCORE, weight: 2 },
    DefaultPlugin { name: "NodePorts", points: &[PreFilter, Filter], weight: 1 },
    DefaultPlugin { name: "NodeResourcesFit", points: FILTER_AND_SCORE, weight: 1 },
    DefaultPlugin { name: "VolumeRestrictions", points: &[PreFilter, Filter], weight: 1 },
    DefaultPlugin { name: "NodeVolumeLimits", points: &[PreFilter, Filter], weight: 1 },
    DefaultPlugin { name: "VolumeBinding", points: &[PreFilter, Filter, Reserve, PreBind], weight: 1 },
    DefaultPlugin { name: "VolumeZone", points: &[PreFilter, Filter], weight: 1 },
    DefaultPlugin { name: "PodTopologySpread", points: FILTER_AND_SCORE, weight: 2 },
    DefaultPlugin { name: "InterPodAffinity", points: FILTER_AND_SCORE, weight: 2 },
    // Before a preemption, whose trials must not change what the plugin decides. It deallocates a claim only when nothing is preempted.
    DefaultPlugin {
        name: "DynamicResources",
        points: &[PreEnqueue, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, PreBind],
        weight: 1,
    },
    DefaultPlugin { name: "DefaultPreemption", points: &[PostFilter], weight: 1 },
    DefaultPlugin { name: "NodeResourcesBalancedAllocation", points: &[PreScore, Score], weight: 1 },
    DefaultPlugin { name: "ImageLocality", points: &[Score], weight: 1 },
    DefaultPlugin { name: "DefaultBinder", points: &[Bind], weight: 1 },
    DefaultPlugin { name: GANG_SCHEDULING, points: &[PreEnqueue], weight: 1 },
];

/// Upstream's plugins that Skiff lacks.
pub(super) const ABSENT_PLUGINS: &[&str] =
    &["NodeDeclaredFeatures", "PlacementBinPacking", "PodGroupPodsCount", "TopologyPlacementGenerator"];

/// The plugins that upstream has removed.
pub(super) const REMOVED_PLUGINS: &[&str] = &["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

/// Whether it is the name of a plugin that upstream has or had.
pub(super) fn is_upstreams(name: &str) -> bool {
    plugin(name).is_some() || ABSENT_PLUGINS.contains(&name) || REMOVED_PLUGINS.contains(&name)
}

/// The plugin of that name.
pub(super) fn plugin(name: &str) -> Option<&'static DefaultPlugin> {
    DEFAULT_PLUGINS.iter().find(|plugin| plugin.name == name)
}
