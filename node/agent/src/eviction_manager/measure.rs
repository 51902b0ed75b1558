//! Measures what a Pod has on the disk. Thin: the layout, the volumes and the image store give the paths, and
//! [`runtimes_host::disk`] measures them. Deleted files take space as long as a process has them open; they are found
//! among the open and mapped files of the Pod's processes.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use node_images::WritableLayer;
use runtimes_host::cgroup::Group;
use runtimes_host::disk::{Budget, Disk, Immeasurable, below};

use crate::container::{self, ephemeral, resources};
use crate::eviction::usage::{ContainerUsage, PodUsage};
use crate::layout::{PodName, container_id};
use crate::node::{Entry, Node};

/// The paths of everything of a Pod.
struct PodPaths {
    containers: Vec<ContainerPaths>,
    volumes: Vec<(String, PathBuf)>,
    /// The volumes by the path at which containers mount them.
    mounted: Vec<(PathBuf, String)>,
    /// The directory whose files the node writes for the Pod.
    files: PathBuf,
    /// Its processes.
    group: Option<Group>,
}

struct ContainerPaths {
    name: String,
    layer: Option<WritableLayer>,
    logs: PathBuf,
    messages: PathBuf,
}

/// What a Pod has on the disk.
pub(crate) async fn disk(node: &Node, entry: &Entry, within: Duration) -> PodUsage {
    let paths = PodPaths::new(node, entry);
    let measured = api_tasks::blocking("node-agent/measure", move || paths.measure(within)).await;
    measured.unwrap_or_else(|_| PodUsage { fault: Some(Immeasurable::Unreadable), ..PodUsage::default() })
}

impl PodPaths {
    fn new(node: &Node, entry: &Entry) -> Self {
        let (pod, names) = (&*entry.pod, PodName::of(&entry.pod));
        let containers = entry.containers.iter().map(|(name, instance)| ContainerPaths {
            name: name.clone(),
            layer: node.parts.images.writable_layer(&container_id(&names.uid, name, instance.attempt).0),
            logs: node.layout.pod_logs(&names.namespace, &names.name, &names.uid).join(name),
            messages: node.layout.termination_logs(&names.uid, name),
        });
        let volumes = node.volumes.empty_dirs(pod);
        let group = node.cgroups.as_ref().map(|cgroups| cgroups.group(&node.layout.pod_cgroup(resources::qos(pod), &names.uid)));
        Self {
            containers: containers.collect(),
            mounted: mounted(pod, &volumes),
            volumes,
            files: node.volumes.pod_dir(&names.uid),
            // A name that cannot be a cgroup's has no processes.
            group: group.and_then(Result::ok),
        }
    }

    fn measure(&self, within: Duration) -> PodUsage {
        let mut budget = Budget::new(within);
        let containers = self.containers.iter().map(|container| ContainerUsage {
            name: container.name.clone(),
            writable: container.layer.as_ref().map(|layer| below(&layer.upper, &mut budget)).unwrap_or_default(),
            logs: below(&container.logs, &mut budget).plus(below(&container.messages, &mut budget)),
            ..ContainerUsage::default()
        });
        let containers = containers.collect();
        let volumes = self.volumes.iter().map(|(name, path)| (name.clone(), below(path, &mut budget))).collect();
        let other = files(&self.files, &mut budget).plus(self.made_volumes(&mut budget));
        let mut usage = PodUsage { containers, volumes, other, fault: None };
        self.add_nameless(&mut usage, &mut budget);
        usage.fault = budget.fault;
        usage
    }

    /// Volumes whose content the node has written to the disk, such as ConfigMaps. Mounted volumes are not on it.
    fn made_volumes(&self, budget: &mut Budget) -> Disk {
        let kinds = fs::read_dir(self.files.join("volumes")).into_iter().flatten().flatten().map(|entry| entry.path());
        let made = kinds.filter(|kind| !self.volumes.iter().any(|(_, volume)| volume.starts_with(kind)));
        made.map(|kind| below(&kind, budget)).sum()
    }

    /// Adds deleted files to the volume or the container that they are in, where that is known.
    fn add_nameless(&self, usage: &mut PodUsage, budget: &mut Budget) {
        let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
        let Some(disk) = device(&self.files) else { return };
        let layers: BTreeMap<u64, &str> = self
            .containers
            .iter()
            .filter_map(|container| Some((device(&container.layer.as_ref()?.merged)?, container.name.as_str())))
            .collect();
        for pid in self.group.iter().flat_map(Group::pids) {
            for kind in ["fd", "map_files"] {
                // A process that has ended meanwhile has no open files.
                let Ok(links) = fs::read_dir(format!("/proc/{pid}/{kind}")) else { continue };
                for link in links.flatten().map(|entry| entry.path()) {
                    if !budget.spend() {
                        return;
                    }
                    let Some(file) = fs::metadata(&link).ok().filter(is_nameless) else { continue };
                    if let Some(name) = layers.get(&file.dev()) {
                        let container = usage.containers.iter_mut().find(|container| container.name == **name);
                        container.into_iter().for_each(|container| container.writable = container.writable.plus(budget.count(&file)));
                    } else if file.dev() == disk {
                        let volume = fs::read_link(&link).ok().and_then(|path| self.volume_of(&path));
                        let volume = volume.and_then(|name| usage.volumes.get_mut(name));
                        let to = volume.unwrap_or(&mut usage.other);
                        *to = to.plus(budget.count(&file));
                    }
                }
            }
        }
    }

    /// The volume that a path of a container leads into: the innermost.
    fn volume_of(&self, path: &Path) -> Option<&str> {
        let inside = self.mounted.iter().filter(|(at, _)| path.starts_with(at));
        inside.max_by_key(|(at, _)| at.as_os_str().len()).map(|(_, name)| name.as_str())
    }
}

fn is_nameless(file: &Metadata) -> bool {
    file.is_file() && file.nlink() == 0
}

fn mounted(pod: &Pod, volumes: &[(String, PathBuf)]) -> Vec<(PathBuf, String)> {
    let usual = pod.spec.iter().flat_map(container::all).flat_map(|(_, container)| container.volume_mounts.iter().flatten());
    let added = ephemeral::list(pod).flat_map(|container| container.volume_mounts.iter().flatten());
    let mounts = usual.chain(added);
    let of_disk = mounts.filter(|mount| volumes.iter().any(|(name, _)| *name == mount.name));
    of_disk.map(|mount| (PathBuf::from(&mount.mount_path), mount.name.clone())).collect()
}

/// The files directly in a directory, which the node wrote.
fn files(dir: &Path, budget: &mut Budget) -> Disk {
    let found = fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    found.filter(Metadata::is_file).map(|file| budget.count(&file)).sum()
}
