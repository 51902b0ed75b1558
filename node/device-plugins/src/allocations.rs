//! Which container has which devices. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::ContainerAllocateResponse;

/// The devices of one resource that a container has, and what its plugin answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) devices: BTreeSet<String>,
    pub(crate) response: ContainerAllocateResponse,
}

/// The allocations of a Pod, by container and resource.
type OfPod = BTreeMap<String, BTreeMap<String, Allocation>>;

/// All allocations of a node, by the UID of the Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocations {
    pods: BTreeMap<String, OfPod>,
    /// Devices that were chosen and whose plugin has not answered yet, by a number.
    reserved: BTreeMap<u64, (String, BTreeSet<String>)>,
    reservations: u64,
}

impl Allocations {
    pub(crate) fn get(&self, uid: &str, container: &str, resource: &str) -> Option<&Allocation> {
        self.pods.get(uid)?.get(container)?.get(resource)
    }

    /// What a container has of all resources.
    pub(crate) fn of_container(&self, uid: &str, container: &str) -> Option<&BTreeMap<String, Allocation>> {
        self.pods.get(uid)?.get(container)
    }

    pub(crate) fn insert(&mut self, uid: &str, container: &str, resource: &str, allocation: Allocation) {
        let of_container = self.pods.entry(uid.to_owned()).or_default().entry(container.to_owned()).or_default();
        of_container.insert(resource.to_owned(), allocation);
    }

    /// Frees the devices of a Pod. False when it had none.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        self.pods.remove(uid).is_some()
    }

    pub(crate) fn has(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    pub(crate) fn uids(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }

    /// Whether some container has devices of a resource.
    pub(crate) fn has_resource(&self, resource: &str) -> bool {
        self.pods.values().flat_map(BTreeMap::values).any(|resources| resources.contains_key(resource))
    }

    /// The devices of a resource that nobody else can get.
    pub(crate) fn in_use(&self, resource: &str) -> BTreeSet<String> {
        let allocated = self.pods.values().flat_map(BTreeMap::values).filter_map(|resources| resources.get(resource));
        let reserved = self.reserved.values().filter(|(of, _)| of == resource).map(|(_, devices)| devices);
        allocated.map(|allocation| &allocation.devices).chain(reserved).flatten().cloned().collect()
    }

    /// Keeps devices from others until [`Allocations::unreserve`].
    pub(crate) fn reserve(&mut self, resource: &str, devices: &BTreeSet<String>) -> u64 {
        self.reservations += 1;
        self.reserved.insert(self.reservations, (resource.to_owned(), devices.clone()));
        self.reservations
    }

    pub(crate) fn unreserve(&mut self, number: u64) {
        self.reserved.remove(&number);
    }

    /// Each allocation with the Pod's UID, the container and the resource.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &str, &str, &Allocation)> {
        self.pods.iter().flat_map(|(uid, containers)| {
            containers.iter().flat_map(move |(container, resources)| {
                resources.iter().map(move |(resource, allocation)| (uid.as_str(), container.as_str(), resource.as_str(), allocation))
            })
        })
    }
}
