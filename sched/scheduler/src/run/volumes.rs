//! What the informers say about claims, volumes, their classes and CSI drivers, in the cache and in the queue. Nodes' drivers, free storage
//! and attachments are watched once there is a CSI driver or one of its volumes: a cluster without one does not pay for them.

use std::sync::Arc;

use api_client::informer::Informers;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use sched_framework::ClusterEvent;

use super::Scheduler;
use super::watches::{Objects, Watch};
use crate::plugins::{storage_limit, topologies};
use crate::queue::Occurrence;

/// The watches.
pub(super) struct VolumeWatches {
    claims: Watch<PersistentVolumeClaim>,
    volumes: Watch<PersistentVolume>,
    classes: Watch<StorageClass>,
    drivers: Watch<CSIDriver>,
    csi: Option<CsiWatches>,
    informers: Informers,
}

/// The watches of what CSI drivers report.
struct CsiWatches {
    nodes: Watch<CSINode>,
    capacities: Watch<CSIStorageCapacity>,
    attachments: Watch<VolumeAttachment>,
}

/// Objects that changed.
pub(super) enum VolumeChanges {
    Claims(Objects<PersistentVolumeClaim>),
    Volumes(Objects<PersistentVolume>),
    Classes(Objects<StorageClass>),
    Drivers(Objects<CSIDriver>),
    CsiNodes(Objects<CSINode>),
    Capacities(Objects<CSIStorageCapacity>),
    Attachments(Objects<VolumeAttachment>),
}

impl CsiWatches {
    async fn next(watches: &mut Option<Self>) -> VolumeChanges {
        let Some(Self { nodes, capacities, attachments }) = watches else { return std::future::pending().await };
        tokio::select! {
            objects = nodes.next() => VolumeChanges::CsiNodes(objects),
            objects = capacities.next() => VolumeChanges::Capacities(objects),
            objects = attachments.next() => VolumeChanges::Attachments(objects),
        }
    }
}

impl VolumeWatches {
    pub fn new(informers: &Informers) -> Self {
        Self {
            claims: Watch::new(&informers.informer()),
            volumes: Watch::new(&informers.informer()),
            classes: Watch::new(&informers.informer()),
            drivers: Watch::new(&informers.informer()),
            csi: None,
            informers: informers.clone(),
        }
    }

    /// Whether the first lists of all kinds were read.
    pub fn are_synced(&self) -> bool {
        let are_first = self.claims.is_synced() && self.volumes.is_synced() && self.classes.is_synced() && self.drivers.is_synced();
        are_first && self.csi.as_ref().is_none_or(|csi| csi.nodes.is_synced() && csi.capacities.is_synced() && csi.attachments.is_synced())
    }

    /// The next changes. Dropping the future loses nothing.
    pub async fn next(&mut self) -> VolumeChanges {
        let changes = tokio::select! {
            objects = self.claims.next() => VolumeChanges::Claims(objects),
            objects = self.volumes.next() => VolumeChanges::Volumes(objects),
            objects = self.classes.next() => VolumeChanges::Classes(objects),
            objects = self.drivers.next() => VolumeChanges::Drivers(objects),
            changes = CsiWatches::next(&mut self.csi) => changes,
        };
        if self.csi.is_none() && changes.are_of_csi() {
            self.csi = Some(CsiWatches {
                nodes: Watch::new(&self.informers.informer()),
                capacities: Watch::new(&self.informers.informer()),
                attachments: Watch::new(&self.informers.informer()),
            });
        }
        changes
    }
}

impl VolumeChanges {
    /// Whether there is a CSI driver, or a volume of one.
    fn are_of_csi(&self) -> bool {
        let is_csi = |volume: &PersistentVolume| volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
        match self {
            Self::Drivers(drivers) => drivers.iter().any(|(_, driver)| driver.is_some()),
            Self::Volumes(volumes) => volumes.iter().any(|(_, volume)| volume.as_deref().is_some_and(is_csi)),
            _ => false,
        }
    }
}

impl Scheduler {
    pub(super) fn volumes_changed(&mut self, changes: VolumeChanges) {
        let events = match changes {
            VolumeChanges::Claims(claims) => self.claims_changed(claims),
            VolumeChanges::Volumes(volumes) => self.persistent_volumes_changed(volumes),
            VolumeChanges::Classes(classes) => self.classes_changed(classes),
            VolumeChanges::Drivers(drivers) => self.drivers_changed(drivers),
            VolumeChanges::CsiNodes(nodes) => self.csi_nodes_changed(nodes),
            VolumeChanges::Capacities(capacities) => self.capacities_changed(capacities),
            VolumeChanges::Attachments(attachments) => self.attachments_changed(attachments),
        };
        self.wake_pre_bindings();
        events.into_iter().for_each(|occurrence| self.happened(occurrence));
    }

    /// What the work of PreBind waits for may have changed.
    pub(super) fn wake_pre_bindings(&self) {
        self.pre_bind_changes.send_modify(|number| *number += 1);
    }

    fn claims_changed(&mut self, claims: Objects<PersistentVolumeClaim>) -> Vec<Occurrence> {
        let volumes = self.cache.volumes_mut();
        let mut events = Vec::new();
        for (key, claim) in claims {
            let (key, is_there) = (key.to_string(), claim.is_some());
            volumes.set_claim(&key, claim);
            if is_there {
                events.push(Occurrence::of_claim(key));
            }
        }
        events
    }

    fn persistent_volumes_changed(&mut self, changed: Objects<PersistentVolume>) -> Vec<Occurrence> {
        let volumes = self.cache.volumes_mut();
        let mut events = Vec::new();
        for (key, volume) in changed {
            let before = volumes.set_volume(&key.name, volume.clone());
            match (before, volume) {
                (None, Some(_)) => events.push(ClusterEvent::PersistentVolumeAdd),
                (Some(before), Some(volume)) => {
                    events.push(ClusterEvent::PersistentVolumeUpdate);
                    if topologies(&before) != topologies(&volume) {
                        events.push(ClusterEvent::PersistentVolumeTopology);
                    }
                }
                (_, None) => {}
            }
        }
        distinct(events)
    }

    fn classes_changed(&mut self, classes: Objects<StorageClass>) -> Vec<Occurrence> {
        let all = &mut self.cache.volumes_mut().classes;
        let mut events = Vec::new();
        for (key, class) in classes {
            let Some(class) = class else {
                all.remove(&key.name);
                continue;
            };
            match all.insert(key.name, Arc::clone(&class)) {
                None => events.push(ClusterEvent::StorageClassAdd),
                Some(before) if before.allowed_topologies != class.allowed_topologies => events.push(ClusterEvent::StorageClassTopologies),
                Some(_) => {}
            }
        }
        distinct(events)
    }

    fn drivers_changed(&mut self, drivers: Objects<CSIDriver>) -> Vec<Occurrence> {
        let all = &mut self.cache.volumes_mut().csi_drivers;
        // What a driver asks for that may keep a Pod from a node.
        let asks =
            |driver: &CSIDriver| [driver.spec.storage_capacity == Some(true), driver.spec.prevent_pod_scheduling_if_missing == Some(true)];
        let mut events = Vec::new();
        for (key, driver) in drivers {
            let now = driver.as_deref().map(asks).unwrap_or_default();
            let before = match driver {
                Some(driver) => all.insert(key.name, driver),
                None => all.remove(&key.name),
            };
            let before = before.as_deref().map(asks).unwrap_or_default();
            if before.iter().zip(now).any(|(before, now)| *before && !now) {
                events.push(ClusterEvent::CsiDriver);
            }
        }
        distinct(events)
    }

    fn csi_nodes_changed(&mut self, nodes: Objects<CSINode>) -> Vec<Occurrence> {
        let all = &mut self.cache.volumes_mut().csi_nodes;
        let mut events = Vec::new();
        for (key, node) in nodes {
            let Some(node) = node else {
                // Without limits, more fits.
                all.remove(&key.name);
                events.push(ClusterEvent::CsiNode);
                continue;
            };
            let before = all.insert(key.name, Arc::clone(&node));
            if before.is_none_or(|before| allows_more(&before, &node)) {
                events.push(ClusterEvent::CsiNode);
            }
        }
        distinct(events)
    }

    fn capacities_changed(&mut self, capacities: Objects<CSIStorageCapacity>) -> Vec<Occurrence> {
        let all = &mut self.cache.volumes_mut().capacities;
        let mut events = Vec::new();
        for (key, capacity) in capacities {
            let key = key.to_string();
            let Some(capacity) = capacity else {
                all.remove(&key);
                continue;
            };
            let now = storage_limit(&capacity);
            let before = all.insert(key, capacity);
            if before.is_none_or(|before| now > storage_limit(&before)) {
                events.push(ClusterEvent::CsiStorageCapacity);
            }
        }
        distinct(events)
    }

    fn attachments_changed(&mut self, attachments: Objects<VolumeAttachment>) -> Vec<Occurrence> {
        let volumes = self.cache.volumes_mut();
        let mut events = Vec::new();
        for (key, attachment) in attachments {
            if attachment.is_none() {
                events.push(ClusterEvent::VolumeAttachmentDelete);
            }
            volumes.set_attachment(&key.name, attachment);
        }
        distinct(events)
    }
}

/// Whether a driver is on the node that was not, or attaches more volumes to it.
fn allows_more(before: &CSINode, now: &CSINode) -> bool {
    now.spec.drivers.iter().any(|driver| {
        let count = |driver: &k8s_openapi::api::storage::v1::CSINodeDriver| driver.allocatable.as_ref().and_then(|one| one.count);
        let before = before.spec.drivers.iter().find(|other| other.name == driver.name);
        // Without a count, there is no limit.
        before.is_none_or(|before| count(before).is_some_and(|before| count(driver).is_none_or(|now| now > before)))
    })
}

/// Each event once, as something that happened.
fn distinct(events: Vec<ClusterEvent>) -> Vec<Occurrence> {
    let first = |(index, event): &(usize, &ClusterEvent)| events.iter().position(|other| other == *event) == Some(*index);
    events.iter().enumerate().filter(first).map(|(_, event)| Occurrence::new(*event)).collect()
}

#[cfg(test)]
mod tests;
