//! Which devices the node has: the last list of each plugin, and what is left of a plugin that has gone. Pure; `P` is what the manager
//! needs to call a plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::RegisterError;
use crate::wire::{Device, HEALTHY};

/// How long the node reports the capacity of a plugin that has gone; upstream's.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(300);
/// The resources that a node has room for.
const RESOURCES_MAX: usize = 256;
/// The devices of a resource.
const DEVICES_MAX: usize = 65_536;
/// The bytes of a device's name. The API promises 63; plugins have longer ones.
const DEVICE_ID_LEN_MAX: usize = 256;

/// How much of a resource the node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// All devices.
    pub capacity: usize,
    /// The healthy ones.
    pub allocatable: usize,
}

struct Resource<P> {
    healthy: BTreeSet<String>,
    unhealthy: BTreeSet<String>,
    /// The last plugin of the resource, with its number.
    plugin: Option<(u64, P)>,
    /// Since when no plugin is connected.
    stopped_at: Option<Instant>,
}

impl<P> Resource<P> {
    fn stopped(now: Instant) -> Self {
        Self { healthy: BTreeSet::new(), unhealthy: BTreeSet::new(), plugin: None, stopped_at: Some(now) }
    }

    fn is_gone(&self, now: Instant) -> bool {
        self.stopped_at.is_some_and(|at| now.saturating_duration_since(at) > STOP_GRACE_PERIOD)
    }
}

/// The resources of a node. One whose plugin has gone stays with the amount 0, so that the node's status says so.
pub(crate) struct Inventory<P> {
    resources: BTreeMap<String, Resource<P>>,
    plugins: u64,
}

impl<P> Inventory<P> {
    /// The resources of an earlier agent have no devices until their plugins register again.
    pub(crate) fn restored(names: BTreeSet<String>, now: Instant) -> Self {
        let resources = names.into_iter().take(RESOURCES_MAX).map(|name| (name, Resource::stopped(now))).collect();
        Self { resources, plugins: 0 }
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.resources.keys().cloned().collect()
    }

    /// Whether a resource may register.
    pub(crate) fn has_room(&self, name: &str, now: Instant) -> Result<(), RegisterError> {
        let has_room = self.resources.contains_key(name)
            || self.resources.len() < RESOURCES_MAX
            || self.resources.values().any(|resource| resource.is_gone(now));
        if has_room { Ok(()) } else { Err(RegisterError::TooMany(RESOURCES_MAX)) }
    }

    /// A plugin has connected. It takes the place of another one of its resource, whose devices stay until the first list. Returns its number,
    /// and the plugin that it replaces.
    pub(crate) fn connect(&mut self, name: &str, plugin: P, now: Instant) -> Result<(u64, Option<P>), RegisterError> {
        self.has_room(name, now)?;
        if !self.resources.contains_key(name) && self.resources.len() >= RESOURCES_MAX {
            let longest_gone = self.resources.iter().filter(|(_, resource)| resource.is_gone(now));
            let longest_gone = longest_gone.min_by_key(|(_, resource)| resource.stopped_at).map(|(name, _)| name.clone());
            self.resources.remove(&longest_gone.unwrap_or_default());
        }
        self.plugins += 1;
        let resource = self.resources.entry(name.to_owned()).or_insert_with(|| Resource::stopped(now));
        resource.stopped_at = None;
        let before = resource.plugin.replace((self.plugins, plugin));
        Ok((self.plugins, before.map(|(_, plugin)| plugin)))
    }

    /// A plugin has listed its devices. Returns whether something has changed.
    pub(crate) fn list(&mut self, name: &str, number: u64, devices: Vec<Device>) -> Result<bool, String> {
        if devices.len() > DEVICES_MAX {
            return Err(format!("it lists {} devices; at most {DEVICES_MAX} are possible", devices.len()));
        }
        if let Some(device) = devices.iter().find(|device| device.id.is_empty() || device.id.len() > DEVICE_ID_LEN_MAX) {
            return Err(format!("it lists a device with a name of {} bytes; 1 to {DEVICE_ID_LEN_MAX} are possible", device.id.len()));
        }
        let Some(resource) = self.connected(name, number) else { return Ok(false) };
        let (healthy, unhealthy): (Vec<Device>, Vec<Device>) = devices.into_iter().partition(|device| device.health == HEALTHY);
        let unhealthy: BTreeSet<String> = unhealthy.into_iter().map(|device| device.id).collect();
        // One that is listed both ways is broken.
        let healthy = healthy.into_iter().map(|device| device.id).filter(|id| !unhealthy.contains(id)).collect();
        let has_changed = resource.healthy != healthy || resource.unhealthy != unhealthy;
        (resource.healthy, resource.unhealthy) = (healthy, unhealthy);
        Ok(has_changed)
    }

    /// A plugin has gone: its devices are unhealthy at once. Returns whether it was the plugin of its resource.
    pub(crate) fn stop(&mut self, name: &str, number: u64, now: Instant) -> bool {
        let Some(resource) = self.connected(name, number) else { return false };
        resource.unhealthy.append(&mut resource.healthy);
        resource.stopped_at = Some(now);
        true
    }

    fn connected(&mut self, name: &str, number: u64) -> Option<&mut Resource<P>> {
        let is_it = |resource: &&mut Resource<P>| {
            resource.stopped_at.is_none() && resource.plugin.as_ref().is_some_and(|(present, _)| *present == number)
        };
        self.resources.get_mut(name).filter(is_it)
    }

    /// How much of each resource the node has.
    pub(crate) fn amounts(&self, now: Instant) -> BTreeMap<String, Amount> {
        let amount = |resource: &Resource<P>| {
            if resource.is_gone(now) {
                return Amount::default();
            }
            let allocatable = resource.healthy.len();
            Amount { capacity: allocatable + resource.unhealthy.len(), allocatable }
        };
        self.resources.iter().map(|(name, resource)| (name.clone(), amount(resource))).collect()
    }

    /// The healthy devices of a resource whose plugin is here, or may come back.
    pub(crate) fn healthy(&self, name: &str, now: Instant) -> Option<&BTreeSet<String>> {
        self.resources.get(name).filter(|resource| !resource.is_gone(now)).map(|resource| &resource.healthy)
    }

    /// The last plugin of a resource, and whether it is connected.
    pub(crate) fn plugin(&self, name: &str) -> Option<(&P, bool)> {
        let resource = self.resources.get(name)?;
        resource.plugin.as_ref().map(|(_, plugin)| (plugin, resource.stopped_at.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "example.com/thing";

    fn devices(text: &str) -> Vec<Device> {
        let device = |word: &str| match word.strip_prefix('!') {
            Some(id) => Device { id: id.to_owned(), health: "Unhealthy".to_owned() },
            None => Device { id: word.to_owned(), health: HEALTHY.to_owned() },
        };
        text.split_whitespace().map(device).collect()
    }

    fn amounts(inventory: &Inventory<u8>, now: Instant) -> (usize, usize) {
        inventory.amounts(now).get(NAME).map(|amount| (amount.capacity, amount.allocatable)).expect("the resource")
    }

    #[test]
    fn a_plugin_that_has_gone_leaves_its_capacity_for_a_while() {
        let now = Instant::now();
        let mut inventory = Inventory::restored(BTreeSet::new(), now);
        let (first, before) = inventory.connect(NAME, 1, now).expect("room");
        assert!(before.is_none() && amounts(&inventory, now) == (0, 0));
        assert_eq!(inventory.list(NAME, first, devices("a b !c")), Ok(true));
        assert_eq!(inventory.list(NAME, first, devices("b a !c")), Ok(false), "nothing has changed");
        assert_eq!(amounts(&inventory, now), (3, 2));
        assert_eq!(inventory.list(NAME, first, devices("a !a b")), Ok(true), "one that is both is broken");
        assert_eq!(amounts(&inventory, now), (2, 1));
        assert!(inventory.stop(NAME, first, now) && !inventory.stop(NAME, first, now));
        assert_eq!(amounts(&inventory, now + STOP_GRACE_PERIOD), (2, 0));
        assert!(inventory.healthy(NAME, now).is_some_and(BTreeSet::is_empty));
        let later = now + STOP_GRACE_PERIOD + Duration::from_secs(1);
        assert_eq!(amounts(&inventory, later), (0, 0));
        assert!(inventory.healthy(NAME, later).is_none());
        let (second, before) = inventory.connect(NAME, 2, later).expect("room");
        assert_eq!((before, inventory.list(NAME, first, devices("x"))), (Some(1), Ok(false)), "the first one does not count any more");
        assert_eq!(inventory.list(NAME, second, devices("a")), Ok(true));
        assert!(!inventory.stop(NAME, first, later));
        assert_eq!(amounts(&inventory, later), (1, 1));
    }

    #[test]
    fn a_plugin_that_registers_again_keeps_its_devices_until_its_list() {
        let now = Instant::now();
        let mut inventory = Inventory::restored([NAME.to_owned()].into(), now);
        assert_eq!(amounts(&inventory, now), (0, 0));
        let (first, _) = inventory.connect(NAME, 1, now).expect("room");
        inventory.list(NAME, first, devices("a b")).expect("a list");
        inventory.connect(NAME, 2, now).expect("room");
        assert_eq!(amounts(&inventory, now), (2, 2));
        assert_eq!(inventory.plugin(NAME), Some((&2, true)));
    }

    #[test]
    fn lists_and_resources_have_bounds() {
        let now = Instant::now();
        let mut inventory = Inventory::restored(BTreeSet::new(), now);
        let (first, _) = inventory.connect(NAME, 1, now).expect("room");
        let many = (0..=DEVICES_MAX).map(|number| Device { id: number.to_string(), health: HEALTHY.to_owned() }).collect();
        let long = vec![Device { id: "x".repeat(DEVICE_ID_LEN_MAX + 1), health: HEALTHY.to_owned() }];
        for bad in [many, long, vec![Device::default()]] {
            assert!(inventory.list(NAME, first, bad).is_err());
        }
        for number in 1..RESOURCES_MAX {
            inventory.connect(&format!("example.com/{number}"), 0, now).expect("room");
        }
        assert!(inventory.connect("example.com/new", 0, now).is_err());
        assert!(inventory.connect(NAME, 0, now).is_ok(), "those that are there go on");
        let (number, _) = inventory.connect("example.com/7", 0, now).expect("room");
        inventory.stop("example.com/7", number, now);
        assert!(inventory.connect("example.com/new", 0, now).is_err());
        let later = now + STOP_GRACE_PERIOD + Duration::from_secs(1);
        inventory.connect("example.com/new", 0, later).expect("the one that is gone makes room");
        assert!(!inventory.names().contains("example.com/7") && inventory.names().len() == RESOURCES_MAX);
    }
}
