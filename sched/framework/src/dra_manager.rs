//! The objects of dynamic resource allocation that plugins read, and the allocations that are not written yet: upstream's
//! `SharedDRAManager`.

mod device_use;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, DeviceTaintRule, DeviceTaintSelector, ResourceClaim, ResourceSlice};

use crate::device_taint::selects_device;
use crate::extended_resource::{DEVICE_CLASS_PREFIX, DeviceResources};

/// The annotation of the claim that a scheduler creates for the extended resources of a Pod.
pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

use self::device_use::{AllocatedDevice, allocated_devices};
pub use self::device_use::{DeviceUse, capacity_full_name};

/// The identity of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The driver that publishes the device.
    pub driver: String,
    /// The pool of the driver.
    pub pool: String,
    /// The name in the pool.
    pub device: String,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// The identity of a pool: its driver and its name.
pub type PoolId = (String, String);

/// What a change of a ResourceClaim may mean for Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimChange {
    /// `namespace/name` of the claim when it is new or has another status: Pods that use it may fit.
    pub key: Option<String>,
    /// Whether devices became free: any Pod with claims may fit.
    pub is_deallocated: bool,
}

/// An allocation that was decided, until the informer has the claim with it.
#[derive(Clone, Debug)]
struct PendingAllocation {
    /// `namespace/name` of the claim.
    key: String,
    devices: Vec<AllocatedDevice>,
    /// Whether the devices count as used. They do not when the claim has an allocation, which counts itself.
    is_counted: bool,
    write: AllocationWrite,
    /// Whether the scheduler is to create the claim.
    is_new: bool,
    /// Whether the Pod for which it was decided is not bound after all.
    is_abandoned: bool,
}

/// Another allocation of the claim of that `namespace/name` is pending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim {0} is in the process of being allocated")]
pub struct AllocationPending(String);

/// How far the writing of an allocation is. The task that writes reports it; clones share it.
#[derive(Clone, Debug, Default)]
pub struct AllocationWrite(Arc<WriteProgress>);

#[derive(Debug, Default)]
struct WriteProgress {
    step: AtomicU64,
    /// The claim that was created for the allocation.
    created: OnceLock<CreatedClaim>,
}

/// A claim that the scheduler created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedClaim {
    /// Its namespace.
    pub namespace: String,
    /// The name that the server gave it.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl AllocationWrite {
    const FAILED: u64 = u64::MAX;
    const STARTED: u64 = u64::MAX - 1;

    /// The write begins: from now on the allocation may be in the store.
    pub fn start(&self) {
        self.0.step.store(Self::STARTED, Ordering::Release);
    }

    /// The claim was written with the allocation at this revision.
    pub fn written(&self, revision: u64) {
        self.0.step.store(revision, Ordering::Release);
    }

    /// The allocation is not in the store.
    pub fn failed(&self) {
        self.0.step.store(Self::FAILED, Ordering::Release);
    }

    /// The claim for the allocation was created. Later claims do not count.
    pub fn created(&self, claim: CreatedClaim) {
        self.0.created.get_or_init(|| claim);
    }

    /// The claim that was created for the allocation.
    pub fn created_claim(&self) -> Option<&CreatedClaim> {
        self.0.created.get()
    }
}

/// ResourceClaims, ResourceSlices with the taints of DeviceTaintRules, DeviceClasses, and the devices in use.
#[derive(Clone, Debug, Default)]
pub struct DraManager {
    /// By `namespace/name`.
    claims: HashMap<String, Arc<ResourceClaim>>,
    /// The keys of the claims for extended resources, by the namespace and the UID of their Pod.
    special: HashMap<(String, String), BTreeSet<String>>,
    /// The newest revision of a claim so far. Claims are delivered in the order of their revisions.
    revision: u64,
    /// By the UID of the claim.
    pending: HashMap<String, PendingAllocation>,
    /// The devices that claims use or will use. Administrators' access does not count.
    in_use: HashMap<DeviceId, DeviceUse>,
    classes: HashMap<String, Arc<DeviceClass>>,
    /// The names of the classes by the extended resource that they name.
    by_resource: HashMap<String, BTreeSet<String>>,
    taint_rules: BTreeMap<String, Arc<DeviceTaintRule>>,
    /// As their drivers publish them, by name.
    published: BTreeMap<String, Arc<ResourceSlice>>,
    /// The same with the taints of the rules.
    slices: BTreeMap<String, Arc<ResourceSlice>>,
    /// The names of the slices with devices of one node, by the name of the node; those for several nodes have the empty name.
    by_node: HashMap<String, BTreeSet<String>>,
    by_pool: HashMap<PoolId, BTreeSet<String>>,
}

impl DraManager {
    /// The claim of that name.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(&format!("{namespace}/{name}"))
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.classes.get(name)
    }

    /// The class whose devices back the extended resource. Of several classes that name it, the newest one does, and of classes of the
    /// same age the first one by name.
    pub fn class_of_resource(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if let Some(class) = resource.strip_prefix(DEVICE_CLASS_PREFIX) {
            return self.class(class);
        }
        let classes = self.by_resource.get(resource)?.iter().rev().filter_map(|name| self.classes.get(name));
        classes.max_by_key(|class| class.metadata.creation_timestamp.as_ref().map(|time| time.0))
    }

    /// The extended resources of these containers that devices back, each with the name of its class.
    pub fn classes_of(&self, containers: &[DeviceResources]) -> BTreeMap<String, String> {
        let resources = containers.iter().flat_map(|container| container.requests.keys());
        resources.filter_map(|resource| Some((resource.clone(), self.class_of_resource(resource)?.metadata.name.clone()?))).collect()
    }

    /// A claim for extended resources that a scheduler created for the Pod.
    pub fn special_claim(&self, namespace: &str, pod_uid: &str) -> Option<&Arc<ResourceClaim>> {
        if self.special.is_empty() {
            return None;
        }
        let keys = self.special.get(&(namespace.to_owned(), pod_uid.to_owned()))?;
        keys.iter().find_map(|key| self.claims.get(key))
    }

    /// Whether a claim uses the device, or will use it.
    pub fn is_allocated(&self, device: &DeviceId) -> bool {
        self.in_use.contains_key(device)
    }

    /// What claims use of the device; `None` when no claim uses it.
    pub fn use_of(&self, device: &DeviceId) -> Option<&DeviceUse> {
        self.in_use.get(device)
    }

    /// Whether the allocation of the claim with this UID was decided and the claim does not have it yet.
    pub fn claim_has_pending_allocation(&self, uid: &str) -> bool {
        self.pending.contains_key(uid)
    }

    /// The slices that may have devices for the node: those of the node, and all for several nodes.
    pub fn slices_for_node(&self, node: &str) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        let named = |name: &str| self.by_node.get(name).into_iter().flatten().filter_map(|slice| self.slices.get(slice));
        named(node).chain(named(""))
    }

    /// All slices of a pool, of any generation and for any node.
    pub fn slices_of_pool(&self, pool: &PoolId) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        self.by_pool.get(pool).into_iter().flatten().filter_map(|slice| self.slices.get(slice))
    }

    /// Stores the new state of a claim, or removes a claim that is gone. `key` is `namespace/name`.
    pub fn set_claim(&mut self, key: &str, claim: Option<Arc<ResourceClaim>>) -> ClaimChange {
        let before = match &claim {
            Some(claim) => self.claims.insert(key.to_owned(), Arc::clone(claim)),
            None => self.claims.remove(key),
        };
        self.revision = self.revision.max(claim.as_deref().and_then(revision_of).unwrap_or_default());
        let (owner_before, owner) = (before.as_deref().and_then(owner_of_special), claim.as_deref().and_then(owner_of_special));
        owner_before.iter().for_each(|owner| remove(&mut self.special, owner, key));
        if let Some(owner) = owner {
            self.special.entry(owner).or_default().insert(key.to_owned());
        }
        let (old, new) = (before.as_deref().and_then(allocation_of_claim), claim.as_deref().and_then(allocation_of_claim));
        let (used, uses): (Vec<_>, Vec<_>) =
            (old.into_iter().flat_map(allocated_devices).collect(), new.into_iter().flat_map(allocated_devices).collect());
        used.iter().for_each(|device| self.release(device));
        uses.iter().for_each(|device| self.take(device));
        // The informer may have missed the state between two allocations. Without its old claim, a Pod gets a new one.
        let is_deallocated =
            old.is_some() && new.is_none() || used.iter().any(|device| !uses.contains(device)) || owner_before.is_some() && claim.is_none();
        let has_status = claim.as_deref().is_some_and(|claim| before.as_deref().is_none_or(|before| before.status != claim.status));
        let uid = claim.as_deref().and_then(|claim| claim.metadata.uid.as_deref());
        let is_replaced = uid.and_then(|uid| self.pending_of(uid)).is_some_and(|pending| self.count_pending(&pending));
        let is_freed = self.end_all_pending();
        ClaimChange { key: has_status.then(|| key.to_owned()), is_deallocated: is_deallocated || is_replaced || is_freed }
    }

    /// Stores the new state of a class, or removes one that is gone.
    pub fn set_class(&mut self, name: &str, class: Option<Arc<DeviceClass>>) {
        let resource = |class: &DeviceClass| class.spec.as_ref().and_then(|spec| spec.extended_resource_name.clone());
        if let Some(resource) = self.classes.remove(name).as_deref().and_then(resource) {
            remove(&mut self.by_resource, &resource, name);
        }
        let Some(class) = class else { return };
        if let Some(resource) = resource(&class) {
            self.by_resource.entry(resource).or_default().insert(name.to_owned());
        }
        self.classes.insert(name.to_owned(), class);
    }

    /// Stores the new state of a slice, or removes one that is gone.
    pub fn set_slice(&mut self, name: &str, slice: Option<Arc<ResourceSlice>>) {
        if let Some(before) = self.slices.remove(name) {
            remove(&mut self.by_node, &node_of(&before), name);
            remove(&mut self.by_pool, &pool_of(&before), name);
        }
        let Some(slice) = slice else {
            self.published.remove(name);
            return;
        };
        self.by_node.entry(node_of(&slice)).or_default().insert(name.to_owned());
        self.by_pool.entry(pool_of(&slice)).or_default().insert(name.to_owned());
        self.slices.insert(name.to_owned(), self.tainted(&slice));
        self.published.insert(name.to_owned(), slice);
    }

    /// Stores the new state of a DeviceTaintRule, or removes one that is gone.
    pub fn set_taint_rule(&mut self, name: &str, rule: Option<Arc<DeviceTaintRule>>) {
        match rule {
            Some(rule) => self.taint_rules.insert(name.to_owned(), rule),
            None => self.taint_rules.remove(name),
        };
        self.slices = self.published.iter().map(|(name, slice)| (name.clone(), self.tainted(slice))).collect();
    }

    /// The allocation of a claim was decided: its devices are in use. The task that writes it reports to the result.
    ///
    /// # Errors
    /// When another allocation of the claim is pending: its devices would be free while it may be in the store.
    pub fn signal_claim_pending_allocation(
        &mut self,
        claim: &ResourceClaim,
        allocation: &AllocationResult,
    ) -> Result<AllocationWrite, AllocationPending> {
        let (uid, write) = (claim.metadata.uid.clone().unwrap_or_default(), AllocationWrite::default());
        if self.claim_has_pending_allocation(&uid) {
            return Err(AllocationPending(claim_key(claim)));
        }
        let devices = allocated_devices(allocation).collect();
        let is_new = claim.metadata.generate_name.is_some() && claim.metadata.resource_version.is_none();
        let (key, write_of_pending) = (claim_key(claim), write.clone());
        let pending = PendingAllocation { key, devices, is_counted: false, write: write_of_pending, is_new, is_abandoned: false };
        self.pending.insert(uid.clone(), pending);
        self.count_pending(&uid);
        Ok(write)
    }

    /// The Pod for which this allocation of the claim with this UID was decided is not bound. An allocation that is being written stays
    /// until it is clear whether it was. Returns whether devices became free.
    pub fn remove_claim_pending_allocation(&mut self, uid: &str, write: &AllocationWrite) -> bool {
        // Another Pod may have an allocation of the claim by now.
        if let Some(pending) = self.pending.get_mut(uid).filter(|pending| Arc::ptr_eq(&pending.write.0, &write.0)) {
            pending.is_abandoned = true;
        }
        self.end_all_pending()
    }

    /// Ends the pending allocations that the informer has as they were written, and those that will never be in the store. Returns whether
    /// devices became free. To be called when a write has ended.
    pub fn end_all_pending(&mut self) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        let has_ended = |uid: &String, pending: &PendingAllocation| {
            let revision = match self.claim_of(uid, pending) {
                Some(claim) => revision_of(claim),
                // The informer may not have the claim yet.
                None if pending.is_new => Some(self.revision),
                // A claim that is gone has no devices.
                None => return true,
            };
            match pending.write.0.step.load(Ordering::Acquire) {
                0 => pending.is_abandoned,
                AllocationWrite::STARTED => false,
                AllocationWrite::FAILED => true,
                written => revision.is_none_or(|revision| revision >= written),
            }
        };
        let ended: Vec<String> = self.pending.iter().filter(|(uid, pending)| has_ended(uid, pending)).map(|(uid, _)| uid.clone()).collect();
        // Each of them ends, not the first one alone that frees devices.
        ended.iter().filter(|uid| self.end_pending(uid)).count() > 0
    }

    /// Counts the devices of the pending allocation, unless the claim has an allocation: a share that counts twice would keep others
    /// from what is left. Returns whether devices became free, because the claim has others.
    fn count_pending(&mut self, uid: &str) -> bool {
        let Some(pending) = self.pending.get(uid) else { return false };
        let allocation = self.claim_of(uid, pending).and_then(|claim| allocation_of_claim(claim)).cloned();
        let (devices, counts) = (pending.devices.clone(), allocation.is_none());
        if pending.is_counted == counts {
            return false;
        }
        self.pending.get_mut(uid).into_iter().for_each(|pending| pending.is_counted = counts);
        let Some(allocation) = &allocation else {
            devices.iter().for_each(|device| self.take(device));
            return false;
        };
        let is_replaced = allocated_devices(allocation).ne(devices.iter().cloned());
        devices.iter().for_each(|device| self.release(device));
        is_replaced
    }

    /// Returns whether devices became free.
    fn end_pending(&mut self, uid: &str) -> bool {
        let Some(pending) = self.pending.remove(uid).filter(|pending| pending.is_counted) else { return false };
        pending.devices.iter().for_each(|device| self.release(device));
        true
    }

    /// The key of the pending allocation of a claim, which may have been created for it.
    fn pending_of(&self, claim: &str) -> Option<String> {
        let is_of = |(uid, pending): &(&String, &PendingAllocation)| pending.claim(uid).is_some_and(|(_, uid)| uid == claim);
        self.pending.iter().find(is_of).map(|(uid, _)| uid.clone())
    }

    /// The claim of the pending allocation, if the informer has it.
    fn claim_of(&self, uid: &str, pending: &PendingAllocation) -> Option<&Arc<ResourceClaim>> {
        let (key, uid) = pending.claim(uid)?;
        self.claims.get(&key).filter(|claim| claim.metadata.uid.as_ref() == Some(&uid))
    }

    fn take(&mut self, device: &AllocatedDevice) {
        self.in_use.entry(device.id.clone()).or_default().add(device);
    }

    fn release(&mut self, device: &AllocatedDevice) {
        if self.in_use.get_mut(&device.id).is_some_and(|in_use| in_use.remove(device)) {
            self.in_use.remove(&device.id);
        }
    }

    /// The slice with the taints of the rules that select its devices.
    fn tainted(&self, slice: &Arc<ResourceSlice>) -> Arc<ResourceSlice> {
        let selects = |selector: &DeviceTaintSelector, device: Option<&str>| {
            selects_device(selector, &slice.spec.driver, &slice.spec.pool.name, device)
        };
        let rules = self.taint_rules.values().filter_map(|rule| Some((rule.spec.device_selector.as_ref()?, &rule.spec.taint)));
        let rules: Vec<_> = rules.filter(|(selector, _)| selects(selector, None)).collect();
        if rules.is_empty() {
            return Arc::clone(slice);
        }
        let mut tainted = ResourceSlice::clone(slice);
        for device in tainted.spec.devices.iter_mut().flatten() {
            let of_device = rules.iter().filter(|(selector, _)| selects(selector, Some(&device.name)));
            let taints: Vec<_> = of_device.map(|(_, taint)| (*taint).clone()).collect();
            if !taints.is_empty() {
                device.taints.get_or_insert_default().extend(taints);
            }
        }
        Arc::new(tainted)
    }
}

impl PendingAllocation {
    /// `namespace/name` and UID of the claim; `None` for a claim that the scheduler has not created yet.
    fn claim(&self, uid: &str) -> Option<(String, String)> {
        match self.write.created_claim() {
            Some(created) => Some((format!("{}/{}", created.namespace, created.name), created.uid.clone())),
            None if self.is_new => None,
            None => Some((self.key.clone(), uid.to_owned())),
        }
    }
}

/// The Pod, by namespace and UID, for which the scheduler created the claim.
fn owner_of_special(claim: &ResourceClaim) -> Option<(String, String)> {
    let metadata = &claim.metadata;
    metadata.annotations.as_ref()?.get(EXTENDED_RESOURCE_CLAIM).filter(|value| *value == "true")?;
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true) && owner.kind == "Pod")?;
    Some((metadata.namespace.clone().unwrap_or_default(), owner.uid.clone()))
}

fn revision_of(claim: &ResourceClaim) -> Option<u64> {
    claim.metadata.resource_version.as_ref().and_then(|revision| revision.parse().ok())
}

/// `namespace/name` of a claim.
fn claim_key(claim: &ResourceClaim) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&claim.metadata.namespace), part(&claim.metadata.name))
}

/// The allocation of a claim, once it has one.
pub fn allocation_of_claim(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

fn node_of(slice: &ResourceSlice) -> String {
    slice.spec.node_name.clone().unwrap_or_default()
}

fn pool_of(slice: &ResourceSlice) -> PoolId {
    (slice.spec.driver.clone(), slice.spec.pool.name.clone())
}

fn remove<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<String>>, key: &K, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
