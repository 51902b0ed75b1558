//! The pools of devices that a node can use. Of a pool, the newest generation counts alone, and only when all its slices are there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use api_model::quantity;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{Counter, Device, DeviceAttribute, ResourceSlice};
use sched_framework::{DeviceId, DraManager, NodeInfo, PoolId, selector_matches};

use super::allocator::Effort;
use super::cycle_cache::CycleCache;
use super::error::AllocationError;

/// Amounts by the names of the counter set and of the counter, in billionths.
pub(super) type Counters = HashMap<(String, String), i128>;

/// A pool with devices for the node.
#[derive(Debug)]
pub(super) struct Pool {
    pub id: PoolId,
    pub state: PoolState,
    /// The slices with devices for the node, by their names.
    pub slices: Vec<Arc<ResourceSlice>>,
    pub counters: Arc<SharedCounters>,
}

/// The counters that the devices of a pool share.
#[derive(Debug, Default)]
pub(super) struct SharedCounters {
    /// What is left of them. Less than nothing is no error.
    pub left: Counters,
    /// Whether less than nothing is left of one of them: no device of the pool that consumes counters can be allocated.
    pub is_overdrawn: bool,
}

/// What nodes have in common that use a pool.
#[derive(Debug)]
pub(crate) struct PoolSummary {
    /// The newest generation.
    generation: i64,
    /// The number of slices of that generation.
    slices: usize,
    /// Their counters; `None` when sets or counters do not fit together.
    counters: Option<Arc<SharedCounters>>,
}

impl PoolSummary {
    /// The summary, and the steps that it took.
    pub fn new(dra: &DraManager, id: &PoolId) -> (Self, usize) {
        let generation = dra.slices_of_pool(id).map(|slice| slice.spec.pool.generation).max().unwrap_or_default();
        let newest: Vec<_> = dra.slices_of_pool(id).filter(|slice| slice.spec.pool.generation == generation).collect();
        let (mut left, mut steps) = (Counters::new(), dra.slices_of_pool(id).count());
        let fits = counters_left(dra, &newest, &mut left, &mut steps).is_some();
        let is_overdrawn = left.values().any(|left| *left < 0);
        let counters = fits.then(|| Arc::new(SharedCounters { left, is_overdrawn }));
        (Self { generation, slices: newest.len(), counters }, steps)
    }
}

/// Whether devices of a pool may be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolState {
    Usable,
    /// The driver is replacing the slices.
    Incomplete,
    /// Two devices have one name, or a device consumes counters that do not exist.
    Invalid,
}

impl Pool {
    /// Whether a device has binding conditions.
    fn has_binding_conditions(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        devices.any(|device| device.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty()))
    }

    /// The name in messages.
    pub fn name(&self) -> String {
        format!("{}/{}", self.id.0, self.id.1)
    }
}

/// The pools with devices for the node, by driver and name. Those whose devices must be prepared go last.
pub(super) fn gather(dra: &DraManager, node: &NodeInfo, cache: &mut CycleCache, effort: &mut Effort) -> Result<Vec<Pool>, AllocationError> {
    let mut newest: BTreeMap<PoolId, Vec<Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in dra.slices_for_node(&node.name) {
        effort.take(1 + devices_that_select(slice))?;
        if !is_relevant(slice, node) {
            continue;
        }
        let id = (slice.spec.driver.clone(), slice.spec.pool.name.clone());
        let slices = newest.entry(id).or_default();
        let generation = slices.first().map(|first| first.spec.pool.generation);
        match generation.map(|generation| slice.spec.pool.generation.cmp(&generation)) {
            Some(std::cmp::Ordering::Less) => {}
            Some(std::cmp::Ordering::Greater) => *slices = vec![Arc::clone(slice)],
            Some(std::cmp::Ordering::Equal) | None => slices.push(Arc::clone(slice)),
        }
    }
    let mut pools = Vec::new();
    for (id, slices) in newest {
        let summary = cache.pool(dra, &id);
        pools.extend(pool(&summary, id, slices, effort)?);
    }
    pools.sort_by_cached_key(Pool::has_binding_conditions);
    Ok(pools)
}

/// The number of devices of the slice that are to be asked whether they have something for a node.
fn devices_that_select(slice: &ResourceSlice) -> usize {
    let devices = slice.spec.devices.as_ref().filter(|_| slice.spec.per_device_node_selection == Some(true));
    devices.map_or(0, Vec::len)
}

/// Whether the slice has devices for the node, or counters. A slice that selects its nodes in another way is not used.
fn is_relevant(slice: &ResourceSlice, node: &NodeInfo) -> bool {
    let spec = &slice.spec;
    if spec.shared_counters.as_ref().is_some_and(|counters| !counters.is_empty()) {
        return true;
    }
    if spec.per_device_node_selection == Some(true) {
        return spec.devices.iter().flatten().any(|device| device_matches(device, node));
    }
    node_matches(spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref(), node)
}

/// Whether a device that selects its nodes itself can be used from the node.
pub(super) fn device_matches(device: &Device, node: &NodeInfo) -> bool {
    node_matches(device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref(), node)
}

fn node_matches(name: Option<&str>, all: Option<bool>, selector: Option<&NodeSelector>, node: &NodeInfo) -> bool {
    match (name.filter(|name| !name.is_empty()), all, selector) {
        (Some(name), ..) => name == node.name,
        (None, Some(true), _) => true,
        (None, _, Some(selector)) => selector_matches(selector, &node.name, &node.labels),
        (None, _, None) => false,
    }
}

/// The pool of these slices, which are of one generation; `None` when a newer generation has no devices for the node.
fn pool(
    summary: &PoolSummary,
    id: PoolId,
    mut slices: Vec<Arc<ResourceSlice>>,
    effort: &mut Effort,
) -> Result<Option<Pool>, AllocationError> {
    let Some(first) = slices.first().map(|slice| &slice.spec.pool).filter(|pool| pool.generation == summary.generation) else {
        return Ok(None);
    };
    let unusable = |id, state| Ok(Some(Pool { id, state, slices: Vec::new(), counters: Arc::default() }));
    if i64::try_from(summary.slices).ok() != Some(first.resource_slice_count) {
        return unusable(id, PoolState::Incomplete);
    }
    slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    slices.retain(|slice| slice.spec.shared_counters.as_ref().is_none_or(Vec::is_empty));
    effort.take(slices.iter().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum())?;
    match &summary.counters {
        Some(counters) if has_distinct_devices(&slices) => {
            Ok(Some(Pool { id, state: PoolState::Usable, slices, counters: Arc::clone(counters) }))
        }
        _ => unusable(id, PoolState::Invalid),
    }
}

fn has_distinct_devices(slices: &[Arc<ResourceSlice>]) -> bool {
    let mut names = HashSet::new();
    slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()).all(|device| names.insert(device.name.as_str()))
}

/// Finds what is `left` of the counters of the pool without what allocated devices consume; `None` when sets or counters do not fit
/// together. Adds a step for each device and counter.
fn counters_left(dra: &DraManager, all: &[&Arc<ResourceSlice>], left: &mut Counters, steps: &mut usize) -> Option<()> {
    let mut sets = BTreeSet::new();
    for set in all.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten()) {
        if !sets.insert(set.name.as_str()) {
            return None;
        }
        for (counter, amount) in &set.counters {
            *steps += 1;
            left.insert((set.name.clone(), counter.clone()), nano(amount)?);
        }
    }
    for slice in all {
        for device in slice.spec.devices.iter().flatten() {
            *steps += 1;
            if device.consumes_counters.is_none() {
                continue;
            }
            let id = device_id(slice, device);
            for (counter, amount) in consumed(device)? {
                *steps += 1;
                let left = left.get_mut(&counter)?;
                if dra.is_allocated(&id) {
                    *left -= amount;
                }
            }
        }
    }
    Some(())
}

/// The amounts of counters that the device consumes; `None` when one is no quantity.
pub(super) fn consumed(device: &Device) -> Option<Vec<((String, String), i128)>> {
    let of_sets = device.consumes_counters.iter().flatten();
    let all = of_sets.flat_map(|of| of.counters.iter().map(|(counter, amount)| ((of.counter_set.clone(), counter.clone()), nano(amount))));
    all.map(|(counter, amount)| Some((counter, amount?))).collect()
}

fn nano(counter: &Counter) -> Option<i128> {
    quantity::nano(&counter.value.0).ok()
}

/// The identity of a device of a slice.
pub(super) fn device_id(slice: &ResourceSlice, device: &Device) -> DeviceId {
    DeviceId { driver: slice.spec.driver.clone(), pool: slice.spec.pool.name.clone(), device: device.name.clone() }
}

/// Whether all fields of slice and device that an allocation depends on are supported. A device is not allocated when one is not:
/// lists as attributes, resources of the node, compatibility groups, and operations of the node that are skipped.
pub(super) fn is_supported(slice: &ResourceSlice, device: &Device) -> bool {
    let is_list = |attribute: &DeviceAttribute| {
        attribute.bools.is_some() || attribute.ints.is_some() || attribute.strings.is_some() || attribute.versions.is_some()
    };
    let is_empty = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
    is_empty(&slice.spec.skip_node_operations)
        && device.node_allocatable_resources.as_ref().is_none_or(BTreeMap::is_empty)
        && !device.attributes.iter().flatten().any(|(_, attribute)| is_list(attribute))
        && device.consumes_counters.iter().flatten().all(|consumes| is_empty(&consumes.compatibility_groups))
}
