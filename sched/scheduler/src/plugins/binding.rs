//! The plugins of Reserve, PreBind and PostBind of a profile, which the loop calls between a cycle and the end of the binding.

use std::sync::Arc;

use api_client::informer::{Informer, Informers};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use sched_framework::{ClusterEvent, CycleState, PodInfo, PostBindPlugin, PreBindPlugin, PreBinding, Refusal, ReservePlugin, Snapshot};

use tokio::sync::watch;

use super::dynamic_resources::{DYNAMIC_RESOURCES, DynamicResources, DynamicResourcesBinding};
use super::volume_binding::{self, VolumeBinding, VolumePreBinding};
use super::writes::Writes;
use crate::bind::Writer;
use crate::config::{EnabledPlugins, PluginArguments};

/// What plugins that do I/O are built with: upstream's `Handle`.
pub(crate) struct Handle {
    /// Writes as the scheduler.
    pub client: kube::Client,
    /// Records events of Pods.
    pub writer: Writer,
    pub resource_claims: Informer<ResourceClaim>,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    pub nodes: Informer<Node>,
    /// Another number after each change of an object that the work of PreBind may wait for.
    pub changes: Arc<watch::Sender<u64>>,
    pub writes: Writes,
}

impl Handle {
    /// Reads from the informers of the process.
    pub fn new(writer: &Writer, informers: &Informers) -> Self {
        Self {
            client: writer.client.clone(),
            writer: writer.clone(),
            resource_claims: informers.informer(),
            claims: informers.informer(),
            volumes: informers.informer(),
            nodes: informers.informer(),
            changes: Arc::new(watch::Sender::new(0)),
            writes: Writes::default(),
        }
    }

    /// Reads from informers without watches.
    #[cfg(test)]
    pub fn detached(client: kube::Client) -> Self {
        Self {
            writer: Writer { client: client.clone(), recorders: Arc::default() },
            client,
            resource_claims: Informer::detached(),
            claims: Informer::detached(),
            volumes: Informer::detached(),
            nodes: Informer::detached(),
            changes: Arc::new(watch::Sender::new(0)),
            writes: Writes::default(),
        }
    }
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
            reserves: enabled.reserve.iter().filter_map(|name| reserve_plugin(name)).collect(),
            pre_binds: enabled.pre_bind.iter().filter_map(|name| pre_bind_plugin(name, arguments, handle)).collect(),
            // None of upstream's plugins has PostBind.
            post_binds: Vec::new(),
        }
    }

    /// Whether one of the plugins has the name.
    pub fn has_plugin(&self, name: &str) -> bool {
        self.reserves.iter().any(|plugin| plugin.name() == name)
            || self.pre_binds.iter().any(|plugin| plugin.name() == name)
            || self.post_binds.iter().any(|plugin| plugin.name() == name)
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

    /// Calls Unreserve, the last plugin first. Returns the events that may help other Pods.
    pub fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str, snapshot: &mut Snapshot) -> Vec<ClusterEvent> {
        let with_part = self.reserves.iter().rev().filter(|plugin| plugin.has_part_in(pod));
        with_part.flat_map(|plugin| plugin.unreserve(state, pod, node, snapshot)).collect()
    }

    /// What is to be written for a Pod that is not bound after all.
    pub fn take_back(&self, state: &CycleState, pod: &Arc<PodInfo>) -> Vec<PreBinding> {
        self.pre_binds.iter().filter(|plugin| plugin.has_part_in(pod)).filter_map(|plugin| plugin.take_back(state, pod)).collect()
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

    /// What is to be written for a Pod that no node is feasible for.
    pub fn make_room(&self, state: &CycleState, pod: &Arc<PodInfo>) -> Vec<PreBinding> {
        self.pre_binds.iter().filter(|plugin| plugin.has_part_in(pod)).filter_map(|plugin| plugin.make_room(state, pod)).collect()
    }

    /// Calls PostBind.
    pub fn post_bind(&self, state: &CycleState, pod: &PodInfo, node: &str) {
        self.post_binds.iter().filter(|plugin| plugin.has_part_in(pod)).for_each(|plugin| plugin.post_bind(state, pod, node));
    }
}

/// The plugin of Reserve of that name.
pub(super) fn reserve_plugin(name: &str) -> Option<Arc<dyn ReservePlugin>> {
    Some(match name {
        volume_binding::NAME => Arc::new(VolumeBinding),
        DYNAMIC_RESOURCES => Arc::new(DynamicResources::default()),
        _ => return None,
    })
}

/// The plugin of PreBind of that name.
pub(super) fn pre_bind_plugin(name: &str, arguments: &PluginArguments, handle: &Handle) -> Option<Arc<dyn PreBindPlugin>> {
    Some(match name {
        volume_binding::NAME => Arc::new(VolumePreBinding::new(&arguments.volume_binding, handle)),
        DYNAMIC_RESOURCES => Arc::new(DynamicResourcesBinding::new(&arguments.dynamic_resources, handle)),
        _ => return None,
    })
}
