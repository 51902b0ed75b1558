//! The resources that an instance of a container has. Pure.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use runtimes_contract::Resources;

use super::limits::{Limits, limits, of_limits};
use super::{Change, change, with_memory_of};

/// The resources of an instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InstanceResources {
    /// Those of its container.
    pub(crate) own: ResourceRequirements,
    /// Its limits, with those that it has of the whole Pod.
    pub(crate) limits: Limits,
}

impl InstanceResources {
    /// An instance with these requirements in a Pod with those as a whole.
    pub(crate) fn new(own: ResourceRequirements, pod_level: Option<&ResourceRequirements>) -> Self {
        Self { limits: limits(Some(&own), pod_level), own }
    }

    /// An instance of a container as this Pod has it.
    pub(crate) fn of(spec: &PodSpec, container: &Container) -> Self {
        Self::new(container.resources.clone().unwrap_or_default(), spec.resources.as_ref())
    }

    /// How the resources of its container in this Pod differ. As upstream, a limit that the container has of the whole Pod counts.
    pub(crate) fn change(&self, spec: &PodSpec, container: &Container) -> Change {
        let own = container.resources.as_ref();
        self.change_of(own, limits(own, spec.resources.as_ref()))
    }

    /// How the resources of another instance differ.
    pub(crate) fn change_to(&self, other: &Self) -> Change {
        self.change_of(Some(&other.own), other.limits)
    }

    fn change_of(&self, own: Option<&ResourceRequirements>, limits: Limits) -> Change {
        let own = change(Some(&self.own), own);
        Change {
            cpu: own.cpu || limits.cpu_milli != self.limits.cpu_milli,
            memory: own.memory || limits.memory_bytes != self.limits.memory_bytes,
        }
    }

    /// The same with the memory of others.
    pub(crate) fn with_memory_of(&self, other: &Self) -> Self {
        Self { own: with_memory_of(&self.own, &other.own), limits: self.limits.with_memory_of(other.limits) }
    }

    /// The same with the memory limit of another, unless its container has its own: the limit is that of the whole Pod.
    pub(crate) fn with_inherited_memory_of(self, other: &Self) -> Self {
        let is_inherited = limits(Some(&self.own), None).memory_bytes.is_none();
        let limits = if is_inherited { self.limits.with_memory_of(other.limits) } else { self.limits };
        Self { limits, ..self }
    }

    /// The limits of its cgroup.
    pub(crate) fn of_cgroup(&self) -> Resources {
        of_limits(self.limits, Some(&self.own))
    }
}
