//! Whether and when a Pod must leave because of the taints of its devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim, ResourceSlice,
};
use sched_framework::{allocation_of_claim, selects_device, tolerates_device_taint};

use crate::eviction::Verdict;
use crate::meta;

pub const NO_EXECUTE: &str = "NoExecute";

/// A DeviceTaintRule of that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    pub name: String,
    pub uid: String,
}

impl RuleId {
    pub fn of(rule: &DeviceTaintRule) -> Self {
        Self { name: meta::name(&rule.metadata).to_owned(), uid: meta::uid(&rule.metadata).to_owned() }
    }
}

/// Why and when Pods with a device leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    pub at: Timestamp,
    /// The rules because of which they leave. Taints in slices belong to no rule.
    pub rules: BTreeSet<RuleId>,
}

impl Eviction {
    /// The eviction for both reasons.
    fn and(mut self, other: Self) -> Self {
        self.at = self.at.min(other.at);
        self.rules.extend(other.rules);
        self
    }
}

/// The verdict on the Pod.
pub fn verdict(eviction: Option<&Eviction>) -> Verdict {
    eviction.map_or(Verdict::Stays, |eviction| Verdict::LeavesAt(eviction.at))
}

/// The devices that are allocated to a claim.
pub fn results(claim: &ResourceClaim) -> &[DeviceRequestAllocationResult] {
    let devices = allocation_of_claim(claim).and_then(|allocation| allocation.devices.as_ref());
    devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default()
}

/// The eviction of Pods with this device; `None` if it has no taint that evicts, or if the claim tolerates all of them. `slices` are those
/// of all pools of that name. For taints without `timeAdded` the time counts from `first_observed`.
pub fn of_device(
    result: &DeviceRequestAllocationResult,
    slices: &[Arc<ResourceSlice>],
    rules: &[Arc<DeviceTaintRule>],
    first_observed: Timestamp,
) -> Option<Eviction> {
    let of_slices = taints_in(slices, result).filter(|taint| taint.effect == NO_EXECUTE).map(|taint| (taint, None));
    let of_rules = rules.iter().filter(|rule| selects(rule, result)).map(|rule| (&rule.spec.taint, Some(RuleId::of(rule))));
    let tolerations = result.tolerations.as_deref().unwrap_or_default();
    let evictions = of_slices.chain(of_rules).filter_map(|(taint, rule)| {
        let at = leaves_at(taint, tolerations, first_observed)?;
        Some(Eviction { at, rules: rule.into_iter().collect() })
    });
    evictions.reduce(Eviction::and)
}

/// The eviction of a Pod with these claims.
pub fn of_claims(
    claims: &[Arc<ResourceClaim>],
    of_device: impl Fn(&DeviceRequestAllocationResult) -> Option<Eviction>,
) -> Option<Eviction> {
    claims.iter().flat_map(|claim| results(claim)).filter_map(of_device).reduce(Eviction::and)
}

/// Whether the rule selects the device.
pub fn selects(rule: &DeviceTaintRule, device: &DeviceRequestAllocationResult) -> bool {
    let selector = rule.spec.device_selector.as_ref();
    selector.is_some_and(|selector| selects_device(selector, &device.driver, &device.pool, Some(&device.device)))
}

/// The slices of a pool that have its newest generation.
fn newest<'a>(slices: impl Iterator<Item = &'a ResourceSlice> + Clone) -> impl Iterator<Item = &'a ResourceSlice> {
    let newest = slices.clone().map(|slice| slice.spec.pool.generation).max();
    slices.filter(move |slice| Some(slice.spec.pool.generation) == newest)
}

/// The number of devices that the rule selects, in the newest generation of each pool.
pub fn published(rule: &DeviceTaintRule, slices: &[Arc<ResourceSlice>]) -> usize {
    let Some(selector) = &rule.spec.device_selector else { return 0 };
    let mut pools: BTreeMap<(&str, &str), Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices {
        let (driver, pool) = (slice.spec.driver.as_str(), slice.spec.pool.name.as_str());
        if selects_device(selector, driver, pool, None) {
            pools.entry((driver, pool)).or_default().push(slice);
        }
    }
    let selected = |((driver, pool), slices): (&(&str, &str), &Vec<&ResourceSlice>)| {
        let devices = newest(slices.iter().copied()).flat_map(|slice| slice.spec.devices.iter().flatten());
        devices.filter(|device| selects_device(selector, driver, pool, Some(&device.name))).count()
    };
    pools.iter().map(selected).sum()
}

/// The taints that the driver published for the device.
fn taints_in<'a>(slices: &'a [Arc<ResourceSlice>], result: &'a DeviceRequestAllocationResult) -> impl Iterator<Item = &'a DeviceTaint> {
    let of_driver = slices.iter().map(|slice| slice.as_ref()).filter(move |slice: &&ResourceSlice| slice.spec.driver == result.driver);
    let devices = newest(of_driver).flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.filter(move |device| device.name == result.device).flat_map(|device| device.taints.iter().flatten())
}

/// The taints of a slice that evict, each with the name of its device.
pub fn evicting(slice: &ResourceSlice) -> Vec<(&str, &DeviceTaint)> {
    let devices = slice.spec.devices.iter().flatten();
    let taints = devices.flat_map(|device| device.taints.iter().flatten().map(move |taint| (device.name.as_str(), taint)));
    taints.filter(|(_, taint)| taint.effect == NO_EXECUTE).collect()
}

/// When Pods with the device leave because of a taint: when it was added, or when the shortest toleration of it has ended. `None` if a
/// toleration has no end.
fn leaves_at(taint: &DeviceTaint, tolerations: &[DeviceToleration], first_observed: Timestamp) -> Option<Timestamp> {
    let since = meta::instant(taint.time_added.as_ref()).unwrap_or(first_observed);
    let mut shortest: Option<i64> = None;
    for toleration in tolerations.iter().filter(|toleration| tolerates_device_taint(toleration, taint)) {
        let seconds = toleration.toleration_seconds?.max(0);
        shortest = Some(shortest.map_or(seconds, |other| other.min(seconds)));
    }
    Some(since.checked_add(SignedDuration::from_secs(shortest.unwrap_or(0))).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests;
