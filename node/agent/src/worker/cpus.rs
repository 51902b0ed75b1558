//! What containers of the worker's Pod have alone: CPUs, and devices of plugins.

use super::Worker;
use crate::container::resources;
use crate::record::{InstanceState, RunningInstance};

impl Worker {
    /// The CPU manager sets the CPUs of an instance that an earlier worker started.
    pub(super) fn adopt_cpus(&self, name: &str, alive: &RunningInstance) {
        if let Some(cpus) = &self.node.cpu_manager {
            cpus.adopt(&self.name.uid, name, &alive.id, &alive.handler);
        }
    }

    /// Returns the CPUs and the devices of a Pod that has ended, before its status says so: the scheduler gives the room to another Pod then.
    /// If a process has outlived its container, they are returned when the container is removed.
    pub(super) async fn return_exclusive(&self) {
        let (uid, devices) = (&self.name.uid, &self.node.device_plugins);
        let cpus = self.node.cpu_manager.as_ref().filter(|cpus| cpus.has_exclusive(uid));
        if cpus.is_none() && !devices.has_devices(uid) {
            return;
        }
        let may_run = |run: &InstanceState| matches!(run, InstanceState::Running(_) | InstanceState::Starting { .. });
        let is_over = self.record.ends(&self.pod) && !self.record.containers.values().any(|record| may_run(&record.run));
        if is_over && !self.has_processes().await {
            if let Some(cpus) = cpus {
                cpus.release(uid, &self.node.parts).await;
            }
            devices.release(uid).await;
        }
    }

    /// Whether a process is left of one of the containers that have ended. Unknown is yes.
    async fn has_processes(&self) -> bool {
        let Some(cgroups) = self.node.cgroups.clone() else { return false };
        let of_pod = self.node.layout.pod_cgroup(resources::qos(&self.pod), &self.name.uid);
        let ids = self.record.containers.values().filter_map(|record| record.ended()?.id.clone());
        let paths: Vec<String> = ids.map(|id| format!("{of_pod}/{id}")).collect();
        let counted = api_tasks::blocking("node-agent/count-processes", move || {
            paths.iter().any(|path| cgroups.group(path).map_or(true, |group| !group.pids().is_empty()))
        });
        counted.await.unwrap_or(true)
    }
}
