//! The changes of objects, as the scheduler's loop takes them.

use std::sync::Arc;

use api_client::informer::{Batch, Cached, Changes, Informer, Informers, ObjectKey};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;

use super::devices::{DeviceChanges, DeviceWatches};
use super::volumes::{VolumeChanges, VolumeWatches};

/// The watches of all kinds.
pub(super) struct Watches {
    nodes: Watch<Node>,
    namespaces: Watch<Namespace>,
    budgets: Watch<PodDisruptionBudget>,
    volumes: VolumeWatches,
    pub devices: DeviceWatches,
    groups: Watch<PodGroup>,
    services: Watch<Service>,
    pods: Watch<Pod>,
}

/// Objects that changed.
pub(super) enum ObjectChanges {
    Nodes(Objects<Node>),
    Namespaces(Objects<Namespace>),
    Budgets(Objects<PodDisruptionBudget>),
    Volumes(VolumeChanges),
    Devices(DeviceChanges),
    Groups(Objects<PodGroup>),
    Services(Objects<Service>),
    Pods(Objects<Pod>),
}

impl Watches {
    pub fn new(informers: &Informers) -> Self {
        Self {
            nodes: Watch::new(&informers.informer()),
            namespaces: Watch::new(&informers.informer()),
            budgets: Watch::new(&informers.informer()),
            volumes: VolumeWatches::new(informers),
            devices: DeviceWatches::new(informers),
            groups: Watch::new(&informers.informer()),
            services: Watch::new(&informers.informer()),
            pods: Watch::new(&informers.informer()),
        }
    }

    /// Waits for changes, of what Pods depend on first. Dropping the future loses nothing.
    pub async fn next(&mut self) -> ObjectChanges {
        tokio::select! {
            biased;
            nodes = self.nodes.next() => ObjectChanges::Nodes(nodes),
            namespaces = self.namespaces.next() => ObjectChanges::Namespaces(namespaces),
            budgets = self.budgets.next() => ObjectChanges::Budgets(budgets),
            volumes = self.volumes.next() => ObjectChanges::Volumes(volumes),
            devices = self.devices.next() => ObjectChanges::Devices(devices),
            groups = self.groups.next() => ObjectChanges::Groups(groups),
            services = self.services.next() => ObjectChanges::Services(services),
            pods = self.pods.next() => ObjectChanges::Pods(pods),
        }
    }

    /// Whether the first lists were taken. A cycle before that would know a part of the cluster only.
    pub fn are_synced(&self) -> bool {
        let of_all_pods = self.nodes.is_synced() && self.namespaces.is_synced() && self.budgets.is_synced() && self.pods.is_synced();
        of_all_pods && self.volumes.are_synced()
    }
}

/// The watch of one kind.
pub(super) struct Watch<K> {
    changes: Changes<K>,
    is_synced: bool,
}

/// The newest states of objects; `None` for those that are gone.
pub(super) type Objects<K> = Vec<(ObjectKey, Option<Arc<K>>)>;

impl<K: Cached> Watch<K> {
    pub fn new(informer: &Informer<K>) -> Self {
        Self { changes: informer.changes(), is_synced: false }
    }

    /// Waits for changes. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Objects<K> {
        let Batch { keys, synced } = self.changes.next().await;
        self.is_synced = synced;
        keys.into_iter().map(|key| (key.clone(), self.changes.informer().get(&key))).collect()
    }

    /// Whether `next` returned the whole first list.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }
}
