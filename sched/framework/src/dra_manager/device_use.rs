//! What claims use of a device: the whole device, or shares of a device that allows several allocations (upstream's
//! `DRAConsumableCapacity`).

use std::collections::BTreeMap;

use api_model::quantity;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequestAllocationResult};

use super::DeviceId;

/// The most that a share counts of a capacity, in billionths: upstream's greatest quantity. Billions of them can be added.
const CONSUMED_MAX: i128 = i64::MAX as i128 * 1_000_000_000;

/// What claims use of a device, or will use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// The number of allocations of the whole device.
    whole: usize,
    /// The number of its shares.
    shares: usize,
    /// What the shares consume of each capacity, in billionths, by its full name.
    consumed: BTreeMap<String, i128>,
}

/// A device of an allocation, or a share of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllocatedDevice {
    pub id: DeviceId,
    /// What a share consumes of each capacity; `None` for a whole device.
    share: Option<Vec<(String, i128)>>,
}

impl DeviceUse {
    /// Whether a claim has the whole device.
    pub fn is_whole(&self) -> bool {
        self.whole > 0
    }

    /// What the shares consume of the capacity of that full name, in billionths.
    pub fn consumed(&self, capacity: &str) -> i128 {
        self.consumed.get(capacity).copied().unwrap_or_default()
    }

    /// The number of capacities that shares consume of.
    pub fn capacities(&self) -> usize {
        self.consumed.len()
    }

    pub(super) fn add(&mut self, device: &AllocatedDevice) {
        let Some(share) = &device.share else {
            self.whole += 1;
            return;
        };
        self.shares += 1;
        for (capacity, amount) in share {
            *self.consumed.entry(capacity.clone()).or_default() += amount;
        }
    }

    /// Takes away what was added. Returns whether nobody uses the device any more.
    pub(super) fn remove(&mut self, device: &AllocatedDevice) -> bool {
        match &device.share {
            None => self.whole = self.whole.saturating_sub(1),
            Some(share) => {
                self.shares = self.shares.saturating_sub(1);
                for (capacity, amount) in share {
                    *self.consumed.entry(capacity.clone()).or_default() -= amount;
                }
                self.consumed.retain(|_, amount| *amount != 0);
            }
        }
        self.whole == 0 && self.shares == 0
    }
}

/// The full name of a capacity. The domain may be left out when it is the driver's.
pub fn capacity_full_name(driver: &str, name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{driver}/{name}") }
}

/// The devices of the allocation that count as used. Administrators' access does not keep others from a device.
pub(super) fn allocated_devices(allocation: &AllocationResult) -> impl Iterator<Item = AllocatedDevice> + '_ {
    let results = allocation.devices.as_ref().and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    results.filter(|result| result.admin_access != Some(true)).map(|result| AllocatedDevice {
        id: DeviceId { driver: result.driver.clone(), pool: result.pool.clone(), device: result.device.clone() },
        share: result.share_id.as_ref().map(|_| share(result)),
    })
}

fn share(result: &DeviceRequestAllocationResult) -> Vec<(String, i128)> {
    let amount = |text: &str| quantity::nano(text).unwrap_or(CONSUMED_MAX).clamp(0, CONSUMED_MAX);
    let consumed = result.consumed_capacity.iter().flatten();
    consumed.map(|(name, quantity)| (capacity_full_name(&result.driver, name), amount(&quantity.0))).collect()
}
