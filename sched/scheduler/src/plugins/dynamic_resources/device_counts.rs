//! How many devices of a class a node can use, and how many of them claims have: the amounts of an extended resource that devices back,
//! for the scores of nodes (upstream's `calculateDRAResourceTotals`). As for allocations, the newest generation of a complete pool counts
//! alone; upstream counts all slices here.

use std::collections::HashMap;
use std::sync::Arc;

use api_cel::device::DeviceValue;
use k8s_openapi::api::resource::v1::{Device, DeviceClass, ResourceSlice};
use sched_framework::{CycleState, DraManager, NodeInfo};

use super::allocator::Effort;
use super::cycle_cache::CycleCache;
use super::error::AllocationError;
use super::selectors::SelectorCache;
use super::{pools, resources_of_devices};
use crate::plugins::resource_allocation::Amounts;

/// The devices for one Pod, in one scheduling cycle.
pub(in crate::plugins) struct DeviceCounts {
    dra: Arc<DraManager>,
    /// The resources that the Pod wants and that devices back.
    resources: Vec<String>,
    /// The number of devices of each node, and of those that claims have, by resource.
    counted: HashMap<String, NodeCounts>,
}

/// The number of devices of a node, and of those that claims have, by the name of the node.
type NodeCounts = HashMap<String, (i64, i64)>;

impl DeviceCounts {
    /// For a Pod that wants one of these resources, if devices back it; `None` for others.
    pub fn of_cycle<'r>(state: &CycleState, dra: &Arc<DraManager>, resources: impl Iterator<Item = &'r str>) -> Option<Self> {
        let backed = resources_of_devices(state)?;
        let resources: Vec<String> = resources.filter(|name| backed.contains_key(*name)).map(str::to_owned).collect();
        (!resources.is_empty()).then(|| Self { dra: Arc::clone(dra), resources, counted: HashMap::new() })
    }

    /// Counts the devices of the nodes that are compared. A resource counts for all of them, or for none if that takes too long.
    pub fn count(&mut self, selectors: &SelectorCache, nodes: &[&NodeInfo]) {
        let (mut cache, mut effort) = (CycleCache::default(), Effort::of_node());
        for resource in &self.resources {
            let Some(class) = self.dra.class_of_resource(resource) else { continue };
            let mut of_node = |node: &&NodeInfo| {
                let counts = on_node(&self.dra, class, node, selectors, &mut cache, &mut effort)?;
                Ok((node.name.clone(), counts))
            };
            match nodes.iter().map(&mut of_node).collect::<Result<NodeCounts, AllocationError>>() {
                Ok(counts) => drop(self.counted.insert(resource.clone(), counts)),
                Err(error) => tracing::debug!(%error, resource, "devices not counted"),
            }
        }
    }

    /// The amounts of the resource on a node that does not have it itself, with the `wanted` amount; `None` when no device backs it there.
    pub fn amounts(&self, resource: &str, node: &NodeInfo, wanted: i64) -> Option<Amounts> {
        let (devices, allocated) = *self.counted.get(resource)?.get(&node.name)?;
        (devices > 0).then(|| Amounts { allocatable: devices, requested: allocated.saturating_add(wanted) })
    }
}

/// The number of devices of the class for the node, and of those that claims have.
fn on_node(
    dra: &DraManager,
    class: &DeviceClass,
    node: &NodeInfo,
    selectors: &SelectorCache,
    cache: &mut CycleCache,
    effort: &mut Effort,
) -> Result<(i64, i64), AllocationError> {
    let (mut devices, mut allocated) = (0, 0);
    let pools = pools::gather(dra, node, cache, effort)?;
    for slice in pools.iter().flat_map(|pool| &pool.slices) {
        for device in slice.spec.devices.iter().flatten() {
            effort.step()?;
            if is_for_node(slice, device, node) && selects(class, slice, device, selectors, cache, effort)? {
                devices += 1;
                allocated += i64::from(dra.is_allocated(&pools::device_id(slice, device)));
            }
        }
    }
    let steps = cache.take_steps();
    effort.take(steps)?;
    Ok((devices, allocated))
}

fn is_for_node(slice: &ResourceSlice, device: &Device, node: &NodeInfo) -> bool {
    slice.spec.per_device_node_selection != Some(true) || pools::device_matches(device, node)
}

/// Whether the selectors of the class select the device. One that fails selects nothing.
fn selects(
    class: &DeviceClass,
    slice: &ResourceSlice,
    device: &Device,
    selectors: &SelectorCache,
    cache: &mut CycleCache,
    effort: &mut Effort,
) -> Result<bool, AllocationError> {
    let expressions = class.spec.iter().flat_map(|spec| spec.selectors.iter().flatten()).filter_map(|selector| selector.cel.as_ref());
    for expression in expressions.map(|cel| &cel.expression) {
        let fields = device.attributes.as_ref().map_or(0, |all| all.len()) + device.capacity.as_ref().map_or(0, |all| all.len());
        effort.take(1 + fields)?;
        let Ok(selector) = cache.selector(selectors, expression)? else { return Ok(false) };
        let Ok(value) = DeviceValue::new(&slice.spec.driver, device) else { return Ok(false) };
        match selector.matches(&value, &mut effort.selectors) {
            Ok(true) => {}
            Err(error) if error.is_out_of_budget() => return Err(AllocationError::TimedOut),
            Ok(false) | Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{allocated, devices_of, manager, set_class, slice};
    use super::super::tests::cluster;
    use super::*;
    use crate::plugins::dynamic_resources::DynamicResources;
    use crate::plugins::fixtures::{node, pod};
    use sched_framework::{FilterPlugin as _, Status};

    const GPU: &str = "example.com/gpu";

    fn amounts(dra: DraManager, on: &NodeInfo, wanted: &str) -> Option<(i64, i64)> {
        let container = json!({"name": "c", "resources": {"requests": {GPU: wanted}}});
        let pod = pod("p", json!({"containers": [container]}));
        let (mut all, mut state) = (cluster(&[], &[]), CycleState::default());
        all.dra = Arc::new(dra);
        assert_eq!(DynamicResources::default().pre_filter(&mut state, &pod, &all), Status::Success);
        let mut counts = DeviceCounts::of_cycle(&state, &all.dra, ["cpu", GPU].into_iter())?;
        counts.count(&SelectorCache::default(), &[on]);
        let amounts = counts.amounts(GPU, on, pod.requests.get(GPU))?;
        Some((amounts.allocatable, amounts.requested))
    }

    #[test]
    fn the_devices_of_the_class_on_the_node_are_counted() {
        let n1 = || node("n1", json!({}));
        let large = |name: &str, memory: &str| json!({"name": name, "capacity": {"memory": {"value": memory}}});
        let mixed =
            slice("n1", json!({"nodeName": "n1"}), json!([large("a", "1Gi"), large("b", "80Gi"), large("c", "80Gi"), {"name": "d"}]));
        let of_node = |name: &str, node: &str| json!({"name": name, "nodeName": node});
        let each =
            slice("n1", json!({"perDeviceNodeSelection": true}), json!([of_node("a", "n1"), of_node("b", "n2"), of_node("c", "n1")]));
        let everywhere = slice("net", json!({"allNodes": true}), json!([{"name": "x"}]));
        let mut replaced = devices_of("n1", &["a", "b"]);
        replaced["spec"]["pool"]["resourceSliceCount"] = json!(2);
        let all = "true";
        let large_enough = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0";
        let taken = || vec![allocated("x", "n1", "a", &["q"]), allocated("y", "n2", "a", &["r"])];
        for (what, slices, claims, selector, wanted, expected) in [
            ("no device", vec![devices_of("n2", &["a"])], vec![], all, "1", None),
            ("two, one of them taken", vec![devices_of("n1", &["a", "b"]), devices_of("n2", &["a"])], taken(), all, "1", Some((2, 2))),
            ("by the selector", vec![mixed], vec![allocated("x", "n1", "c", &["q"])], large_enough, "2", Some((2, 3))),
            ("devices that choose their nodes", vec![each], taken(), all, "1", Some((2, 2))),
            ("a device of all nodes", vec![devices_of("n1", &["a"]), everywhere], vec![], all, "1", Some((2, 1))),
            ("a pool that is being replaced", vec![replaced], vec![], all, "1", None),
            ("a selector that does not compile", vec![devices_of("n1", &["a"])], vec![], "device.", "1", None),
            ("a Pod that wants none", vec![devices_of("n1", &["a"])], vec![], all, "0", None),
        ] {
            let mut dra = manager(&slices, &claims);
            set_class(&mut dra, "gpu", json!({"extendedResourceName": GPU, "selectors": [{"cel": {"expression": selector}}]}));
            assert_eq!(amounts(dra, &n1(), wanted), expected, "{what}");
        }
        assert_eq!(amounts(manager(&[devices_of("n1", &["a"])], &[]), &n1(), "1"), None::<(i64, i64)>, "no class has the resource");
    }

    #[test]
    fn devices_count_on_all_nodes_or_on_none() {
        let names: Vec<String> = (0..128).map(|n| format!("d{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let everywhere = |n: usize| slice(&format!("s{n}"), json!({"allNodes": true}), devices_of("", &names)["spec"]["devices"].clone());
        let (n1, n2) = (node("n1", json!({})), node("n2", json!({})));
        for (slices, expected) in [(10, [Some(1_280); 2]), (200, [None; 2])] {
            let mut dra = manager(&(0..slices).map(everywhere).collect::<Vec<_>>(), &[]);
            set_class(&mut dra, "gpu", json!({"extendedResourceName": GPU}));
            let mut counts = DeviceCounts { dra: Arc::new(dra), resources: vec![GPU.to_owned()], counted: HashMap::new() };
            counts.count(&SelectorCache::default(), &[&n1, &n2]);
            assert_eq!([&n1, &n2].map(|node| counts.amounts(GPU, node, 1).map(|amounts| amounts.allocatable)), expected, "{slices}");
        }
    }
}
