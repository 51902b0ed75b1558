//! Binding an instance of a container to CPUs, where the node assigns them.

use runtimes_contract::{ContainerId, ContainerSpec, Resources};

use super::Effects;
use crate::layout::PodName;

/// As upstream, a container that has CPUs alone is not throttled on them, nor is its Pod.
pub(super) fn lift_quota(limits: &mut Resources) {
    (limits.cpu_quota_us, limits.cpu_period_us) = (None, None);
}

impl Effects {
    /// Sets the CPUs of a container that is created next. If it has them alone, the others have left them when this returns, unless the start
    /// of another container took too long or a container could not be moved: the log says so then.
    pub(super) async fn bind(&self, spec: &mut ContainerSpec, name: &str, handler: &str) {
        let Some(cpus) = &self.node.cpu_manager else { return };
        let (own, is_exclusive) = cpus.begin(&PodName::of(&self.pod).uid, name, &spec.id, handler);
        spec.resources.cpuset_cpus = Some(own.to_string());
        if is_exclusive {
            lift_quota(&mut spec.resources);
            cpus.clear(&own, &spec.id, &self.node.parts).await;
        }
    }

    /// The start of a container is over: it runs, or not.
    pub(super) async fn bound(&self, id: &ContainerId, runs: bool) {
        let Some(cpus) = &self.node.cpu_manager else { return };
        if runs {
            cpus.started(id, &self.node.parts).await;
        } else {
            cpus.forget(id);
        }
    }
}
