//! The objects of dynamic resource allocation in the cache and in the queue, and the Pods whose claims are still to be made.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api_client::informer::{Informer, Informers, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use sched_framework::{ClusterEvent, DraManager, PodInfo, allocation_of_claim};

use super::Scheduler;
use super::watches::{Objects, Watch};
use crate::plugins::{awaited_claim, has_binding_conditions};
use crate::queue::Occurrence;

/// The watches of the four kinds.
pub(super) struct DeviceWatches {
    claims: Watch<ResourceClaim>,
    classes: Watch<DeviceClass>,
    slices: Watch<ResourceSlice>,
    taint_rules: Watch<DeviceTaintRule>,
}

/// Objects that changed.
pub(super) enum DeviceChanges {
    Claims(Objects<ResourceClaim>),
    Classes(Objects<DeviceClass>),
    Slices(Objects<ResourceSlice>),
    TaintRules(Objects<DeviceTaintRule>),
}

impl DeviceWatches {
    pub fn new(informers: &Informers) -> Self {
        Self {
            claims: Watch::new(&informers.informer()),
            classes: Watch::new(&informers.informer()),
            slices: Watch::new(&informers.informer()),
            taint_rules: Watch::new(&informers.informer()),
        }
    }

    /// Waits for changes. Dropping the future loses nothing.
    pub async fn next(&mut self) -> DeviceChanges {
        tokio::select! {
            biased;
            classes = self.classes.next() => DeviceChanges::Classes(classes),
            rules = self.taint_rules.next() => DeviceChanges::TaintRules(rules),
            slices = self.slices.next() => DeviceChanges::Slices(slices),
            claims = self.claims.next() => DeviceChanges::Claims(claims),
        }
    }

    /// Whether the first lists of all kinds were taken: a cycle before would take devices that are in use.
    pub fn are_synced(&self) -> bool {
        self.claims.is_synced() && self.classes.is_synced() && self.slices.is_synced() && self.taint_rules.is_synced()
    }
}

/// The Pods that are not tried because a claim that is made for them is not there yet (upstream's PreEnqueue). Each waits for one claim,
/// or for a change of its own status, or for the first lists.
#[derive(Default)]
pub(super) struct ClaimWaits {
    /// Whether the first lists are complete.
    is_synced: bool,
    by_claim: HashMap<String, BTreeSet<ObjectKey>>,
    of_pod: HashMap<ObjectKey, String>,
}

impl ClaimWaits {
    /// The Pod waits for the claim of that `namespace/name`.
    pub fn add(&mut self, pod: ObjectKey, claim: String) {
        self.by_claim.entry(claim.clone()).or_default().insert(pod.clone());
        self.of_pod.insert(pod, claim);
    }

    /// The number of Pods that wait.
    pub fn len(&self) -> usize {
        self.of_pod.len()
    }

    /// The Pod does not wait any more.
    pub fn remove(&mut self, pod: &ObjectKey) {
        if self.of_pod.is_empty() {
            return;
        }
        let Some(claim) = self.of_pod.remove(pod) else { return };
        if let Some(pods) = self.by_claim.get_mut(&claim) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_claim.remove(&claim);
            }
        }
    }

    /// Takes the Pods that wait for the claim.
    fn take(&mut self, claim: &str) -> BTreeSet<ObjectKey> {
        let pods = self.by_claim.remove(claim).unwrap_or_default();
        pods.iter().for_each(|pod| drop(self.of_pod.remove(pod)));
        pods
    }

    /// Takes all Pods.
    fn take_all(&mut self) -> Vec<ObjectKey> {
        self.by_claim.clear();
        self.of_pod.drain().map(|(pod, _)| pod).collect()
    }
}

impl Scheduler {
    /// What the Pod waits for before it is tried: the key of a claim, or an empty one.
    pub(super) fn awaited_claim(&self, pod: &PodInfo) -> Option<String> {
        let profile = self.profiles.get(&pod.scheduler_name).filter(|_| pod.may_use_devices());
        if !profile.is_some_and(|profile| profile.has_dynamic_resources) || self.cache.pod(&pod.uid).is_some() {
            return None;
        }
        if !self.claim_waits.is_synced {
            return Some(String::new());
        }
        awaited_claim(pod, &self.cache.snapshot().dra)
    }

    /// Takes the changes into the cache and the queue.
    pub(super) fn devices_changed(&mut self, changes: DeviceChanges, pods: &Informer<Pod>) {
        match changes {
            DeviceChanges::Claims(claims) => {
                for (key, claim) in claims {
                    self.claim_changed(&key, claim, pods);
                }
            }
            DeviceChanges::Classes(classes) => {
                if !classes.is_empty() {
                    // What a node must have depends on the extended resources of the classes.
                    self.profiles.values_mut().for_each(|running| running.progress.reset());
                }
                self.store(classes, ClusterEvent::DeviceClassUpdate, DraManager::set_class);
            }
            DeviceChanges::Slices(slices) => self.store(slices, ClusterEvent::ResourceSliceUpdate, DraManager::set_slice),
            DeviceChanges::TaintRules(rules) => self.store(rules, ClusterEvent::ResourceSliceUpdate, DraManager::set_taint_rule),
        }
    }

    /// The cache has all devices and claims: Pods with claims may be tried.
    pub(super) fn devices_synced(&mut self, pods: &Informer<Pod>) {
        if !std::mem::replace(&mut self.claim_waits.is_synced, true) {
            let waiting = self.claim_waits.take_all();
            self.apply_again(waiting, pods);
        }
    }

    /// Stores the new states of the objects.
    fn store<K>(&mut self, objects: Objects<K>, event: ClusterEvent, set: fn(&mut DraManager, &str, Option<Arc<K>>)) {
        if objects.is_empty() {
            return;
        }
        let dra = self.cache.dra_mut();
        objects.into_iter().for_each(|(key, object)| set(dra, &key.name, object));
        self.happened(Occurrence::new(event));
    }

    pub(super) fn claim_changed(&mut self, key: &ObjectKey, claim: Option<Arc<ResourceClaim>>, pods: &Informer<Pod>) {
        let is_awaited = claim.as_deref().and_then(allocation_of_claim).is_some_and(has_binding_conditions);
        let change = self.cache.dra_mut().set_claim(&key.to_string(), claim);
        // A Pod may wait for the devices of the claim.
        if is_awaited || change.is_deallocated {
            self.wake_pre_bindings();
        }
        if change.is_deallocated {
            // Devices are free: any Pod may fit.
            self.happened(Occurrence::new(ClusterEvent::ResourceClaimUpdate));
        } else if let Some(key) = change.key {
            self.happened(Occurrence::of_resource_claim(key));
        }
        let waiting = self.claim_waits.take(&key.to_string());
        self.apply_again(waiting, pods);
    }

    /// Tries the Pods, unless they wait for something else.
    fn apply_again(&mut self, waiting: impl IntoIterator<Item = ObjectKey>, pods: &Informer<Pod>) {
        for key in waiting {
            if let Some(pod) = pods.get(&key) {
                self.pod_applied(&pod);
            }
        }
    }
}

#[cfg(test)]
mod tests;
