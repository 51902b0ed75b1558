//! The device manager (upstream's `pkg/kubelet/cm/devicemanager`): it knows the plugins and their devices, and gives devices to containers.
//! A container has its devices in the file of allocations before it starts. The decisions are pure: [`inventory`](crate::inventory),
//! [`choose`], [`response`]. No lock is locked while a plugin is called: what is chosen is reserved meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api_files::{PRIVATE, write_atomic};
use api_metrics::{Counters, Families, Histograms};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::allocations::{Allocation, Allocations};
use crate::checkpoint::Checkpoint;
use crate::choose::{self, Offer, Supply};
use crate::directory::Directory;
use crate::error::{AllocateError, OpenError, PrepareError, RegisterError};
use crate::inventory::{Amount, Inventory};
use crate::plugin::Plugin;
use crate::resource_name::is_extended_resource;
use crate::response::{self, ContainerDevices};
use crate::wire::{RegisterRequest, VERSION};

/// Prometheus' default bounds, as upstream.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The settings of the manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory in which plugins have their sockets; `None` for no plugins.
    pub dir: Option<PathBuf>,
    /// The file of allocations.
    pub state_file: PathBuf,
    /// The present boot of the machine.
    pub boot_id: String,
}

/// What a Pod requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest {
    /// The Pod's UID.
    pub uid: String,
    /// Its containers, in the order in which they start.
    pub containers: Vec<ContainerRequest>,
}

/// What a container requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequest {
    /// Its name.
    pub name: String,
    /// Whether it ends before containers after it start, which may have its devices then.
    pub ends_first: bool,
    /// Its limits of extended resources.
    pub limits: BTreeMap<String, u64>,
}

/// A connected plugin.
pub(crate) struct Connected {
    plugin: Arc<Plugin>,
    stop: CancellationToken,
}

struct Inner {
    inventory: Inventory<Connected>,
    allocations: Allocations,
    /// The number of changes of the allocations, and how many of them the file has.
    changes: u64,
    stored: u64,
}

/// A plugin that has registered; [`DevicePlugins::follow`] takes its lists.
pub(crate) struct Registered {
    resource: String,
    number: u64,
    plugin: Arc<Plugin>,
    stop: CancellationToken,
}

/// The device plugins of a node.
pub struct DevicePlugins {
    config: Config,
    inner: Mutex<Inner>,
    /// The file is written by one at a time, also by one that nobody waits for any more.
    writing: Arc<tokio::sync::Mutex<()>>,
    changes: watch::Sender<u64>,
    registrations: Counters<1>,
    durations: Histograms<1>,
}

impl DevicePlugins {
    /// Reads the file of allocations; blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let path = || config.state_file.clone();
        let written = match std::fs::read(&config.state_file) {
            Ok(bytes) => Checkpoint::decode(&bytes).map_err(|why| OpenError::Corrupt { path: path(), why })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Checkpoint::default(),
            Err(source) => return Err(OpenError::Read { path: path(), source }),
        };
        // The containers of another boot are gone, and so may be what plugins had prepared for them.
        let is_of_this_boot = written.boot_id == config.boot_id;
        let allocations = if is_of_this_boot { written.allocations } else { Allocations::default() };
        let inventory = Inventory::restored(written.resources, Instant::now());
        Ok(Self {
            config,
            inner: Mutex::new(Inner { inventory, allocations, changes: 0, stored: 0 }),
            writing: Arc::default(),
            changes: watch::Sender::new(0),
            registrations: Counters::new(
                "kubelet_device_plugin_registration_total",
                "Cumulative number of device plugin registrations. Broken down by resource name.",
                ["resource_name"],
            ),
            durations: Histograms::new(
                "kubelet_device_plugin_alloc_duration_seconds",
                "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
                ["resource_name"],
                SECONDS,
            ),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// How much of each resource the node has. One whose plugin has gone for good has the amount 0.
    pub fn amounts(&self) -> BTreeMap<String, Amount> {
        self.inner.lock().inventory.amounts(Instant::now())
    }

    /// Changes with the amounts.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether this manager, and not the Node object, says how much of a resource is left.
    pub fn manages(&self, resource: &str) -> bool {
        let inner = self.inner.lock();
        inner.inventory.healthy(resource, Instant::now()).is_some() || inner.allocations.has_resource(resource)
    }

    /// Whether a container of the Pod has devices.
    pub fn has_devices(&self, uid: &str) -> bool {
        self.inner.lock().allocations.has(uid)
    }

    /// The UIDs of the Pods that have devices.
    pub fn pods(&self) -> Vec<String> {
        self.inner.lock().allocations.uids().cloned().collect()
    }

    /// Adds upstream's metrics.
    pub fn add_metrics(&self, families: &mut Families) {
        self.registrations.add_to(families);
        self.durations.add_to(families);
    }

    /// Connects to a plugin that registers. `stop` is cancelled when another one takes its place, or the node ends.
    pub(crate) async fn register(
        &self,
        directory: &Directory,
        request: RegisterRequest,
        stop: CancellationToken,
    ) -> Result<Registered, RegisterError> {
        let RegisterRequest { version, endpoint, resource_name: resource, .. } = request;
        if version != VERSION {
            return Err(RegisterError::Version(version));
        }
        if !is_extended_resource(&resource) {
            return Err(RegisterError::ResourceName(resource));
        }
        self.inner.lock().inventory.has_room(&resource, Instant::now())?;
        let plugin = Arc::new(Plugin::connect(directory, &endpoint).await?);
        let (number, before, is_new) = {
            let mut inner = self.inner.lock();
            let is_new = !inner.inventory.names().contains(&resource);
            let connected = Connected { plugin: plugin.clone(), stop: stop.clone() };
            let (number, before) = inner.inventory.connect(&resource, connected, Instant::now())?;
            (number, before, is_new)
        };
        // Only now: the names of all that ever tried would be series without bound.
        self.registrations.count([&resource]);
        if let Some(before) = before {
            before.stop.cancel();
        }
        self.changed();
        if is_new && let Err(error) = self.store().await {
            // The node's status then keeps the amount of a plugin that does not come back after the next start.
            tracing::warn!(resource, error, "the resource of a device plugin is not in the file of allocations");
        }
        tracing::info!(resource, endpoint, "device plugin registered");
        Ok(Registered { resource, number, plugin, stop })
    }

    /// Takes the lists of a plugin until it has gone, or another one has taken its place.
    pub(crate) async fn follow(&self, registered: Registered) {
        let Registered { resource, number, plugin, stop } = registered;
        let _stopped = Stopped { plugins: self, resource: &resource, number };
        let lists = async {
            let mut lists = plugin.list_and_watch().await.map_err(|error| error.to_string())?;
            while let Some(list) = lists.message().await.map_err(|status| status.message().to_owned())? {
                let has_changed = self.inner.lock().inventory.list(&resource, number, list.devices)?;
                if has_changed {
                    self.changed();
                }
            }
            Err::<(), String>("the plugin has ended its list".to_owned())
        };
        if let Some(Err(error)) = stop.run_until_cancelled(lists).await {
            tracing::warn!(resource, error, "device plugin has gone; its devices count as unhealthy until it registers again");
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Gives the containers of a Pod their devices, before any of them starts. May be repeated. A Pod of which containers run has what it
    /// has. When it fails, the Pod has no devices, unless containers of it run.
    ///
    /// # Errors
    /// There are no devices, or a plugin fails.
    pub async fn allocate(&self, pod: &PodRequest, runs: bool) -> Result<(), AllocateError> {
        let allocated = self.allocate_all(pod, runs).await;
        if allocated.is_err() && !runs {
            self.release(&pod.uid).await;
        }
        allocated
    }

    async fn allocate_all(&self, pod: &PodRequest, runs: bool) -> Result<(), AllocateError> {
        for container in &pod.containers {
            self.allocate_to(pod, container, runs).await?;
        }
        self.store_changes().await
    }

    async fn allocate_to(&self, pod: &PodRequest, container: &ContainerRequest, runs: bool) -> Result<(), AllocateError> {
        for (resource, number) in &container.limits {
            let reusable = self.reusable(pod, container, resource);
            self.allocate_one(&pod.uid, &container.name, resource, *number, &reusable, runs).await?;
        }
        Ok(())
    }

    /// The devices that containers of the Pod leave to one that starts after them.
    fn reusable(&self, pod: &PodRequest, container: &ContainerRequest, resource: &str) -> BTreeSet<String> {
        let mut reusable = BTreeSet::new();
        for before in pod.containers.iter().take_while(|before| before.name != container.name) {
            let devices = self.devices(&pod.uid, &before.name, resource);
            if before.ends_first {
                reusable.extend(devices);
            } else {
                reusable.retain(|device| !devices.contains(device));
            }
        }
        reusable
    }

    /// Writes the file, unless it has all allocations.
    async fn store_changes(&self) -> Result<(), AllocateError> {
        let is_stored = {
            let inner = self.inner.lock();
            inner.changes == inner.stored
        };
        if is_stored { Ok(()) } else { self.store().await.map_err(AllocateError::NotStored) }
    }

    fn devices(&self, uid: &str, container: &str, resource: &str) -> BTreeSet<String> {
        let inner = self.inner.lock();
        inner.allocations.get(uid, container, resource).map(|allocation| allocation.devices.clone()).unwrap_or_default()
    }

    /// Gives a container devices of one resource, unless it has them.
    async fn allocate_one(
        &self,
        uid: &str,
        container: &str,
        resource: &str,
        number: u64,
        reusable: &BTreeSet<String>,
        runs: bool,
    ) -> Result<(), AllocateError> {
        if number == 0 || !self.manages(resource) {
            return Ok(());
        }
        let before = self.inner.lock().allocations.get(uid, container, resource).map(|allocation| allocation.devices.len());
        if let Some(before) = before {
            let (pod, container, resource) = (uid.to_owned(), container.to_owned(), resource.to_owned());
            let is_same = u64::try_from(before) == Ok(number);
            return if is_same { Ok(()) } else { Err(AllocateError::Changed { pod, container, resource, before, after: number }) };
        }
        if runs {
            return Ok(());
        }
        let (plugin, offer) = self.offer(resource, reusable, number)?;
        let preferred = if plugin.has_preferences() && offer.missing > 0 {
            plugin.preferred(&offer.free.union(&offer.reused).cloned().collect(), &offer.reused, number).await?
        } else {
            BTreeSet::new()
        };
        // Others may have been faster than the plugin's answer.
        let (devices, reservation) = self.reserve(resource, reusable, number, &preferred)?;
        // As upstream, plugins allocate for one container after the other.
        let one_at_a_time = plugin.allocating.lock().await;
        let began = Instant::now();
        let answer = plugin.allocate(&devices).await;
        drop(one_at_a_time);
        self.durations.observe([resource], began.elapsed().as_secs_f64());
        let none = || AllocateError::Response { resource: resource.to_owned(), what: "no containers".to_owned() };
        let response = answer?.ok_or_else(none)?;
        response::check(resource, &response)?;
        {
            let mut inner = self.inner.lock();
            inner.allocations.insert(uid, container, resource, Allocation { devices, response });
            inner.changes += 1;
        }
        drop(reservation);
        Ok(())
    }

    fn offer(&self, resource: &str, reusable: &BTreeSet<String>, number: u64) -> Result<(Arc<Plugin>, Offer), AllocateError> {
        let inner = self.inner.lock();
        let offer = inner.offer(resource, reusable, number)?;
        match inner.inventory.plugin(resource) {
            Some((connected, true)) => Ok((connected.plugin.clone(), offer)),
            _ => Err(AllocateError::Stopped(resource.to_owned())),
        }
    }

    fn reserve(
        &self,
        resource: &str,
        reusable: &BTreeSet<String>,
        number: u64,
        preferred: &BTreeSet<String>,
    ) -> Result<(BTreeSet<String>, Reservation<'_>), AllocateError> {
        let mut inner = self.inner.lock();
        let devices = inner.offer(resource, reusable, number)?.choose(preferred);
        let number = inner.allocations.reserve(resource, &devices);
        Ok((devices, Reservation { plugins: self, number }))
    }

    /// Frees the devices of a Pod. None of its containers may be left.
    pub async fn release(&self, uid: &str) {
        {
            let mut inner = self.inner.lock();
            if !inner.allocations.remove(uid) {
                return;
            }
            inner.changes += 1;
        }
        match self.store().await {
            Ok(()) => tracing::info!(uid, "the devices of a Pod are free"),
            // The next start finds that the Pod has gone, or frees the devices of a Pod that has ended once more.
            Err(error) => tracing::warn!(uid, error, "the devices of a Pod are free, but the file still has them"),
        }
    }

    /// Gets a container's devices ready for a start, and returns what the container gets.
    ///
    /// # Errors
    /// The container has no devices, or a plugin fails.
    pub async fn prepare(&self, pod: &PodRequest, container: &ContainerRequest) -> Result<ContainerDevices, PrepareError> {
        // As upstream: when the Pod was admitted, the resource may have had no plugin.
        self.allocate_to(pod, container, false).await?;
        self.store_changes().await?;
        for resource in container.limits.keys() {
            self.pre_start(&pod.uid, &container.name, resource).await?;
        }
        let inner = self.inner.lock();
        Ok(inner.allocations.of_container(&pod.uid, &container.name).map(response::merge).unwrap_or_default())
    }

    async fn pre_start(&self, uid: &str, container: &str, resource: &str) -> Result<(), PrepareError> {
        let devices = self.devices(uid, container, resource);
        let (plugin, is_connected) = match self.inner.lock().inventory.plugin(resource) {
            Some((connected, is_connected)) if !devices.is_empty() => (connected.plugin.clone(), is_connected),
            // As upstream: a plugin that has not registered since the node began is not waited for.
            _ => return Ok(()),
        };
        match (plugin.is_started_first(), is_connected) {
            (false, _) => Ok(()),
            (true, false) => Err(PrepareError::Stopped(resource.to_owned())),
            (true, true) => plugin.pre_start(&devices).await.map_err(PrepareError::PreStart),
        }
    }

    /// Writes the file, as all is when the write begins.
    pub(crate) async fn store(&self) -> Result<(), String> {
        let only = self.writing.clone().lock_owned().await;
        let (checkpoint, changes) = {
            let inner = self.inner.lock();
            let checkpoint = Checkpoint {
                boot_id: self.config.boot_id.clone(),
                dir: self.config.dir.clone(),
                resources: inner.inventory.names(),
                allocations: inner.allocations.clone(),
            };
            (checkpoint, inner.changes)
        };
        let path = self.config.state_file.clone();
        let written = api_tasks::blocking("device-plugins/allocations", move || {
            let _only = only;
            let bytes = checkpoint.encode()?;
            write_atomic(&path, &bytes, PRIVATE).map_err(|error| format!("writing {}: {error}", path.display()))
        });
        written.await.unwrap_or_else(|_| Err("interrupted".to_owned()))?;
        let mut inner = self.inner.lock();
        inner.stored = inner.stored.max(changes);
        Ok(())
    }
}

impl Inner {
    fn offer(&self, resource: &str, reusable: &BTreeSet<String>, number: u64) -> Result<Offer, AllocateError> {
        let healthy = self.inventory.healthy(resource, Instant::now());
        let healthy = healthy.ok_or_else(|| AllocateError::Unregistered(resource.to_owned()))?;
        choose::offer(resource, &Supply { healthy, in_use: &self.allocations.in_use(resource), reusable }, number)
    }
}

/// Devices that others do not get while their plugin is called.
struct Reservation<'a> {
    plugins: &'a DevicePlugins,
    number: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.plugins.inner.lock().allocations.unreserve(self.number);
    }
}

/// However the task of a plugin ends, its devices count as unhealthy then.
struct Stopped<'a> {
    plugins: &'a DevicePlugins,
    resource: &'a str,
    number: u64,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let was_connected = self.plugins.inner.lock().inventory.stop(self.resource, self.number, Instant::now());
        if was_connected {
            self.plugins.changed();
        }
    }
}
