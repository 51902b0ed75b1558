//! The plugins of Reserve, PreBind and PostBind of a profile, which the loop calls between a cycle and the end of the binding.

use std::sync::Arc;

use sched_framework::{CycleState, PodInfo, PostBindPlugin, PreBindPlugin, PreBinding, Refusal, ReservePlugin, Snapshot};

use crate::config::{EnabledPlugins, PluginArguments};

/// What plugins that do I/O are built with: upstream's `Handle`.
pub(crate) struct Handle {
    /// Writes as the scheduler.
    pub client: kube::Client,
}

/// The plugins, in the order of their calls.
#[derive(Default)]
pub(crate) struct BindingPlugins {
    pub reserves: Vec<Arc<dyn ReservePlugin>>,
    pub pre_binds: Vec<Arc<dyn PreBindPlugin>>,
    pub post_binds: Vec<Arc<dyn PostBindPlugin>>,
}

/// A plugin failed for a Pod, or refuses the Pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BindingError {
    /// The Pod does not fit on its node any more.
    #[error("{0}")]
    Unschedulable(sched_framework::Reason),
    /// The plugin failed.
    #[error("running {point} plugin {plugin:?}: {message}")]
    Failed { point: &'static str, plugin: &'static str, message: sched_framework::Reason },
}

impl BindingError {
    fn new(point: &'static str, plugin: &'static str, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unschedulable(reason) => Self::Unschedulable(reason),
            Refusal::Error(message) => Self::Failed { point, plugin, message },
        }
    }
}

impl BindingPlugins {
    /// The enabled plugins.
    pub fn new(enabled: &EnabledPlugins, arguments: &PluginArguments, handle: &Handle) -> Self {
        Self {
            reserves: enabled.reserve.iter().filter_map(|name| reserve_plugin(name, arguments)).collect(),
            pre_binds: enabled.pre_bind.iter().filter_map(|name| pre_bind_plugin(name, arguments, handle)).collect(),
            post_binds: enabled.post_bind.iter().filter_map(|name| post_bind_plugin(name, arguments)).collect(),
        }
    }

    /// Whether a plugin has something to do for the Pod.
    pub fn has_part_in(&self, pod: &PodInfo) -> bool {
        self.reserves.iter().any(|plugin| plugin.has_part_in(pod))
            || self.pre_binds.iter().any(|plugin| plugin.has_part_in(pod))
            || self.post_binds.iter().any(|plugin| plugin.has_part_in(pod))
    }

    /// Calls Reserve, until a plugin refuses the Pod.
    pub fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str, snapshot: &mut Snapshot) -> Result<(), BindingError> {
        for plugin in self.reserves.iter().filter(|plugin| plugin.has_part_in(pod)) {
            plugin.reserve(state, pod, node, snapshot).map_err(|refusal| BindingError::new("Reserve", plugin.name(), refusal))?;
        }
        Ok(())
    }

    /// Calls Unreserve, the last plugin first.
    pub fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str, snapshot: &mut Snapshot) {
        self.reserves.iter().rev().filter(|plugin| plugin.has_part_in(pod)).for_each(|plugin| plugin.unreserve(state, pod, node, snapshot));
    }

    /// The work of PreBind, one plugin after the other; `None` when there is none.
    pub fn pre_bind(
        &self,
        state: &CycleState,
        pod: &Arc<PodInfo>,
        node: &str,
    ) -> Option<impl Future<Output = Result<(), BindingError>> + Send + use<>> {
        let with_part = self.pre_binds.iter().filter(|plugin| plugin.has_part_in(pod));
        let works: Vec<(&'static str, PreBinding)> =
            with_part.filter_map(|plugin| Some((plugin.name(), plugin.pre_bind(state, pod, node)?))).collect();
        (!works.is_empty()).then_some(async move {
            for (plugin, work) in works {
                work.await.map_err(|refusal| BindingError::new("PreBind", plugin, refusal))?;
            }
            Ok(())
        })
    }

    /// Calls PostBind.
    pub fn post_bind(&self, state: &CycleState, pod: &PodInfo, node: &str) {
        self.post_binds.iter().filter(|plugin| plugin.has_part_in(pod)).for_each(|plugin| plugin.post_bind(state, pod, node));
    }
}

/// The plugin of Reserve of that name.
fn reserve_plugin(_name: &str, _arguments: &PluginArguments) -> Option<Arc<dyn ReservePlugin>> {
    None
}

/// The plugin of PreBind of that name.
fn pre_bind_plugin(_name: &str, _arguments: &PluginArguments, Handle { client: _ }: &Handle) -> Option<Arc<dyn PreBindPlugin>> {
    None
}

/// The plugin of PostBind of that name.
fn post_bind_plugin(_name: &str, _arguments: &PluginArguments) -> Option<Arc<dyn PostBindPlugin>> {
    None
}
