//! What a Pod uses: the input of ranking, limits and messages.

use std::collections::BTreeMap;

use runtimes_host::disk::{Disk, Immeasurable};

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    /// Its writable layer.
    pub(crate) writable: Disk,
    /// Its logs and its termination messages.
    pub(crate) logs: Disk,
    /// The bytes of its working set; `None` when it does not run.
    pub(crate) memory: Option<u64>,
    /// Processes and threads.
    pub(crate) processes: u64,
}

impl ContainerUsage {
    /// Bytes that count against its `ephemeral-storage` limit.
    pub(crate) fn storage_bytes(&self) -> u64 {
        self.writable.plus(self.logs).bytes
    }
}

/// One Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUsage {
    pub(crate) containers: Vec<ContainerUsage>,
    /// Its `emptyDir` volumes on the disk, by name.
    pub(crate) volumes: BTreeMap<String, Disk>,
    /// What belongs to no container or volume: files that the node writes for the Pod, and deleted files that its processes
    /// hold open.
    pub(crate) other: Disk,
    /// Why it is more than measured, if it may be.
    pub(crate) fault: Option<Immeasurable>,
}

/// The part of a Pod's storage on the file system that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of it: images and Pods share one file system.
    All,
    /// Logs and volumes: images and writable layers have a file system of their own.
    NodeFs,
    /// Writable layers.
    ImageFs,
}

impl PodUsage {
    /// The Pod's use of the disk.
    pub(crate) fn disk(&self, scope: Scope) -> Disk {
        let writable: Disk = self.containers.iter().map(|container| container.writable).sum();
        let logs: Disk = self.containers.iter().map(|container| container.logs).sum();
        let rest = logs.plus(self.volumes.values().copied().sum()).plus(self.other);
        match scope {
            Scope::All => writable.plus(rest),
            Scope::NodeFs => rest,
            Scope::ImageFs => writable,
        }
    }

    /// Bytes of its working set.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.containers.iter().filter_map(|container| container.memory).fold(0, u64::saturating_add)
    }

    /// Processes and threads.
    pub(crate) fn processes(&self) -> u64 {
        self.containers.iter().map(|container| container.processes).fold(0, u64::saturating_add)
    }
}
