//! What the cgroups of Pods and containers have beside the use that runtimes report: swap, pressure and transfers. Only pages that have
//! these numbers read them, and only when a client asks for such a page.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use runtimes_host::cgroup::{DeviceIo, Group, Pressures, StatsReader, Swap};

use crate::block_devices;
use crate::container::resources;
use crate::layout::PodName;
use crate::node::{Entry, Node};

/// The numbers of one group; nothing of a group that does not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GroupUsage {
    pub(crate) swap: Option<Swap>,
    pub(crate) pressures: Pressures,
    /// Transfers by the name of the device.
    pub(crate) io: Vec<(String, DeviceIo)>,
}

/// The groups of a Pod.
#[derive(Debug, Default)]
pub(crate) struct PodGroups {
    pub(crate) pod: GroupUsage,
    /// The containers that run, by name.
    pub(crate) containers: BTreeMap<String, GroupUsage>,
}

impl PodGroups {
    /// A container's group; nothing of a container that does not run.
    pub(crate) fn container(&self, name: &str) -> GroupUsage {
        self.containers.get(name).cloned().unwrap_or_default()
    }
}

/// The groups of each of the Pods; nothing of Pods without a container that runs.
pub(crate) async fn of_pods(node: &Arc<Node>, entries: &[Arc<Entry>], with_io: bool) -> Vec<PodGroups> {
    let (node, all) = (node.clone(), entries.to_vec());
    let read = api_tasks::blocking("node-agent/pod-groups", move || {
        let mut reader = Reader::new(with_io);
        all.iter().map(|entry| reader.of_pod(&node, entry)).collect::<Vec<_>>()
    });
    read.await.unwrap_or_else(|_| entries.iter().map(|_| PodGroups::default()).collect())
}

/// The numbers of the group of all Pods together. Blocks.
pub(crate) fn of_all_pods(node: &Node) -> GroupUsage {
    Reader::new(false).of_group(node, &node.layout.cgroup_root())
}

/// The transfers of the machine, by the name of the device. Blocks.
pub(crate) fn machine_io(node: &Node) -> Vec<(String, DeviceIo)> {
    let io = node.cgroups.as_ref().map(|cgroups| cgroups.io()).unwrap_or_default();
    named(io, &mut HashMap::new())
}

#[derive(Default)]
struct Reader {
    stats: StatsReader,
    with_io: bool,
    device_names: HashMap<(u32, u32), Option<String>>,
}

impl Reader {
    fn new(with_io: bool) -> Self {
        Self { with_io, ..Self::default() }
    }

    fn of_pod(&mut self, node: &Node, entry: &Entry) -> PodGroups {
        let cgroup = node.layout.pod_cgroup(resources::qos(&entry.pod), &PodName::of(&entry.pod).uid);
        let running = entry.containers.iter().filter_map(|(name, instance)| Some((name, &instance.running.as_ref()?.0)));
        let containers: BTreeMap<_, _> = running.map(|(name, id)| (name.clone(), self.of_group(node, &format!("{cgroup}/{id}")))).collect();
        let pod = if containers.is_empty() { GroupUsage::default() } else { self.of_group(node, &cgroup) };
        PodGroups { pod, containers }
    }

    fn of_group(&mut self, node: &Node, path: &str) -> GroupUsage {
        let group = node.cgroups.as_ref().and_then(|cgroups| cgroups.group(path).ok());
        group.map(|group| self.read(&group)).unwrap_or_default()
    }

    fn read(&mut self, group: &Group) -> GroupUsage {
        let io = if self.with_io { self.stats.io(group) } else { Vec::new() };
        GroupUsage { swap: self.stats.swap(group), pressures: self.stats.pressures(group), io: named(io, &mut self.device_names) }
    }
}

/// The transfers with names of devices. A device without a name was removed.
fn named(io: Vec<DeviceIo>, names: &mut HashMap<(u32, u32), Option<String>>) -> Vec<(String, DeviceIo)> {
    let named = io.into_iter().filter_map(|io| {
        let read = || block_devices::name(io.major.into(), io.minor.into());
        let name = names.entry((io.major, io.minor)).or_insert_with(read).clone()?;
        Some((name, io))
    });
    named.collect()
}
