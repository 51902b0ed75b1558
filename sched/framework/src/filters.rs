//! The filter plugins of a profile as one: what a scheduling cycle and a preemption call.

use std::collections::BTreeSet;

use crate::{ClusterEvent, CycleState, FilterPlugin, NodeInfo, PodChange, PodInfo, Scope, Snapshot, Status};

/// The filter plugins of a profile, in the order of their calls.
pub struct Filters(Vec<Box<dyn FilterPlugin>>);

/// The filter plugins of one scope that have a say in a Pod.
pub struct FiltersInScope<'a>(Vec<&'a dyn FilterPlugin>);

/// The status of the plugin that ruled out a node, or all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The status: not `Success`.
    pub status: Status,
    /// The name of the plugin.
    pub plugin: &'static str,
    /// [`FilterPlugin::events_to_register`] of the plugin.
    pub events: &'static [ClusterEvent],
}

impl Filters {
    /// The plugins in the order of their calls.
    pub fn new(plugins: Vec<Box<dyn FilterPlugin>>) -> Self {
        Self(plugins)
    }

    /// Calls [`FilterPlugin::pre_filter`] of each plugin. The error rules out every node.
    pub fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Result<(), Rejection> {
        first_rejection(self.all(), |plugin| plugin.pre_filter(state, pod, snapshot))
    }

    /// The names of the only nodes that the Pod may run on, with the names of the plugins that say so; `None` for any node.
    pub fn node_names(&self, pod: &PodInfo) -> Option<(BTreeSet<String>, Vec<&'static str>)> {
        let mut all: Option<(BTreeSet<String>, Vec<&'static str>)> = None;
        for plugin in &self.0 {
            let Some(names) = plugin.node_names(pod) else { continue };
            let (before, mut plugins) = all.unwrap_or_else(|| (names.clone(), Vec::new()));
            plugins.push(plugin.name());
            all = Some((before.intersection(&names).cloned().collect(), plugins));
        }
        all
    }

    /// Whether the Pod may run on the node.
    pub fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        first_rejection(self.all(), |plugin| plugin.filter(state, pod, node))
    }

    /// The plugins of the scope that may rule out a node for the Pod.
    pub fn in_scope(&self, scope: Scope, state: &CycleState, pod: &PodInfo) -> FiltersInScope<'_> {
        FiltersInScope(self.all().filter(|plugin| plugin.scope() == scope && plugin.may_reject(state, pod)).collect())
    }

    /// Whether the Pod may run on the node, also when the Pods come that are nominated to the node and have at least the
    /// Pod's priority (upstream's `RunFilterPluginsWithNominatedPods`). It must fit without them too: they may never come, and
    /// the Pod may depend on one of them.
    pub fn filter_with_nominated(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let nominated: Vec<_> = snapshot.nominated.before(pod, &node.name).cloned().collect();
        if !nominated.is_empty() {
            let mut full = node.clone();
            for other in &nominated {
                full.add_pod(other.clone());
                self.pod_changed(state, pod, snapshot, PodChange::added(other, node));
            }
            let fits = self.filter(state, pod, &full);
            nominated.iter().for_each(|other| self.pod_changed(state, pod, snapshot, PodChange::removed(other, node)));
            fits?;
        }
        self.filter(state, pod, node)
    }

    /// Calls [`FilterPlugin::pod_changed`] of each plugin.
    pub fn pod_changed(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot, change: PodChange<'_>) {
        self.0.iter().for_each(|plugin| plugin.pod_changed(state, pod, snapshot, change));
    }

    fn all(&self) -> impl Iterator<Item = &dyn FilterPlugin> {
        self.0.iter().map(AsRef::as_ref)
    }
}

impl FiltersInScope<'_> {
    /// Whether none of them has a say in the Pod.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these plugins let the Pod run on the node.
    pub fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        first_rejection(self.0.iter().copied(), |plugin| plugin.filter(state, pod, node))
    }
}

fn first_rejection<'a>(
    plugins: impl Iterator<Item = &'a dyn FilterPlugin>,
    mut status: impl FnMut(&dyn FilterPlugin) -> Status,
) -> Result<(), Rejection> {
    for plugin in plugins {
        match status(plugin) {
            Status::Success => {}
            status => return Err(Rejection { status, plugin: plugin.name(), events: plugin.events_to_register() }),
        }
    }
    Ok(())
}
