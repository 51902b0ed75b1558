//! Giving running instances other limits: their cgroups, and that of their Pod.

use runtimes_contract::cgroup::{Cgroups, Group};
use runtimes_contract::{Resources, RuntimeError};

use super::Effects;
use crate::container::{self, resources};
use crate::error::chain;
use crate::layout::PodName;
use crate::resize;
use crate::worker::facts::Alive;
use crate::worker::learn::{Report, Resized};

/// What the cgroup of one instance is to have.
struct Target {
    name: String,
    path: String,
    limits: Resources,
    /// It is restarted for it.
    restarts: bool,
}

impl Effects {
    /// Sets the limits of instances that run, but not the memory of those that are restarted for it.
    pub(crate) async fn resize(self, running: Vec<(String, Alive)>) {
        let pod_path = self.node.layout.pod_cgroup(resources::qos(&self.pod), &PodName::of(&self.pod).uid);
        let (mut targets, mut resized) = (Vec::new(), Vec::new());
        for (name, alive) in running {
            let Some((_, container)) = container::find(&self.pod, &name) else { continue };
            let restarts = resize::restarts(container, &alive.resources);
            let mut limits = resources::of_requirements(container.resources.as_ref());
            if restarts {
                limits.memory_limit_bytes = resources::of_requirements(Some(&alive.resources)).memory_limit_bytes;
            } else {
                let resources = container.resources.clone().unwrap_or_default();
                resized.push(Resized { container: name.clone(), attempt: alive.attempt, resources });
            }
            targets.push(Target { name, path: format!("{pod_path}/{}", alive.id), limits, restarts });
        }
        let result = self.limit(pod_path, targets).await.map(|()| resized);
        self.report(Report::Resized(result)).await;
    }

    async fn limit(&self, pod_path: String, targets: Vec<Target>) -> Result<(), String> {
        let Some(cgroups) = self.node.cgroups.clone() else { return Ok(()) };
        let of_pod = resources::of_pod(&self.pod);
        match api_tasks::blocking("node-agent/resize", move || limit(&cgroups, &pod_path, &of_pod, &targets)).await {
            Ok(result) => result,
            Err(_) => Err("interrupted".to_owned()),
        }
    }
}

fn limit(cgroups: &Cgroups, pod_path: &str, of_pod: &Resources, targets: &[Target]) -> Result<(), String> {
    let failed = |error: RuntimeError| chain(&error);
    let mut groups = Vec::new();
    for target in targets {
        let group = cgroups.group(&target.path).map_err(failed)?;
        // One that has just ended has none.
        if group.exists() {
            has_room(&group, target)?;
            groups.push((group, &target.limits));
        }
    }
    let pod = cgroups.group(pod_path).map_err(failed)?;
    // The Pod's own bounds are out of the way meanwhile: cgroup v1 has no child above its parent.
    let open = Resources { memory_limit_bytes: None, cpu_quota_us: None, cpu_period_us: None, ..of_pod.clone() };
    pod.set(&open).map_err(failed)?;
    let set = groups.iter().try_for_each(|(group, limits)| group.set(limits)).map_err(failed);
    // Whatever came of it, the Pod gets bounds again.
    pod.set(of_pod).map_err(failed).and(set)
}

/// A limit below what is in use would have the kernel kill the container; upstream refuses it in these words.
fn has_room(group: &Group, target: &Target) -> Result<(), String> {
    let Some(limit) = target.limits.memory_limit_bytes.filter(|_| !target.restarts) else { return Ok(()) };
    let used = group.stats().map_err(|error| chain(&error))?.working_set_bytes;
    if limit >= used {
        return Ok(());
    }
    Err(format!("attempting to set container \"{}\" memory limit ({limit}) below current usage ({used})", target.name))
}
