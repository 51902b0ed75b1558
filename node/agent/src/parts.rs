//! The parts of the node that the agent drives, each behind an object-safe trait, so that a test or a trial with a thousand
//! nodes can replace a part by something small.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use node_images::{Image, ImageError, ImageStore, InUse, PullPolicy, RegistryAuth, WritableLayer};
use node_logind::{Logind, LogindError, ShutdownWatch};
use node_network::{HostPort, Network, NetworkError, Peer, PodNetwork};
use runtimes_contract::{Content, ContentKind, Runtime, UserNamespace};
use runtimes_host::disk::Disk;

/// The parts that the agent drives.
#[derive(Clone)]
pub struct Parts {
    /// The runtimes, one a RuntimeClass handler. A Pod without a RuntimeClass gets the first one that runs its kind of content.
    pub runtimes: Vec<Arc<dyn Runtime>>,
    /// The image store.
    pub images: Arc<dyn Images>,
    /// The Pod network.
    pub network: Arc<dyn Networks>,
    /// Who announces that the machine shuts down.
    pub shutdowns: Arc<dyn Shutdowns>,
}

impl Parts {
    /// The runtime of that handler.
    pub(crate) fn by_handler(&self, handler: &str) -> Option<&Arc<dyn Runtime>> {
        self.runtimes.iter().find(|runtime| runtime.handler() == handler)
    }

    /// The runtime for a kind of content.
    pub(crate) fn by_kind(&self, kind: ContentKind) -> Option<&Arc<dyn Runtime>> {
        self.runtimes.iter().find(|runtime| runtime.runs() == kind)
    }
}

/// The agent's view of an image store; see [`ImageStore`] for the promises.
#[async_trait]
pub trait Images: Send + Sync {
    /// Fetches an image according to the policy.
    async fn pull(&self, reference: &str, policy: PullPolicy, auth: &[RegistryAuth]) -> Result<Image, ImageError>;
    /// The image of that name, if it is in the store.
    async fn get(&self, reference: &str) -> Result<Option<Image>, ImageError>;
    /// All images.
    async fn list(&self) -> Result<Vec<Image>, ImageError>;
    /// The content that a runtime runs, mounted for `key` alone.
    async fn mount(&self, image: &Image, key: &str, user: Option<&UserNamespace>) -> Result<Content, ImageError>;
    /// Mounts the files of an image for reading at a directory of the Pod that `key` stands for.
    async fn mount_files(&self, image: &Image, key: &str, at: &Path, user: Option<&UserNamespace>) -> Result<(), ImageError>;
    /// Undoes `mount`, and ends what `mount_files` needs.
    async fn unmount(&self, key: &str) -> Result<(), ImageError>;
    /// Keys of the mounts that exist.
    async fn mounts(&self) -> Result<Vec<String>, ImageError>;
    /// The directory of a container's writable layer, if it has one.
    fn writable_layer(&self, key: &str) -> Option<WritableLayer>;
    /// The store's directory, if it has one: it may be on a file system of its own.
    fn dir(&self) -> Option<PathBuf>;
    /// What the images take on the disk; `None` when it is not known now.
    async fn usage(&self) -> Result<Option<Disk>, ImageError> {
        Ok(None)
    }
    /// Frees space on a full disk.
    async fn collect(&self, in_use: InUse<'_>, high: u8, low: u8) -> Result<usize, ImageError>;
}

#[async_trait]
impl Images for ImageStore {
    async fn pull(&self, reference: &str, policy: PullPolicy, auth: &[RegistryAuth]) -> Result<Image, ImageError> {
        Self::pull(self, reference, policy, auth).await
    }

    async fn get(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        Self::get(self, reference).await
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        Self::list(self).await
    }

    async fn mount(&self, image: &Image, key: &str, user: Option<&UserNamespace>) -> Result<Content, ImageError> {
        Self::mount(self, image, key, user).await
    }

    async fn mount_files(&self, image: &Image, key: &str, at: &Path, user: Option<&UserNamespace>) -> Result<(), ImageError> {
        Self::mount_files(self, image, key, at, user).await
    }

    async fn unmount(&self, key: &str) -> Result<(), ImageError> {
        Self::unmount(self, key).await
    }

    async fn mounts(&self) -> Result<Vec<String>, ImageError> {
        Self::mounts(self).await
    }

    fn writable_layer(&self, key: &str) -> Option<WritableLayer> {
        Some(Self::writable_layer(self, key))
    }

    fn dir(&self) -> Option<PathBuf> {
        Some(Self::dir(self).to_owned())
    }

    async fn usage(&self) -> Result<Option<Disk>, ImageError> {
        Self::usage(self).await
    }

    async fn collect(&self, in_use: InUse<'_>, high: u8, low: u8) -> Result<usize, ImageError> {
        Self::collect(self, in_use, high, low).await.map(|removed| removed.len())
    }
}

/// The agent's view of the Pod network; see [`Network`] for the promises.
#[async_trait]
pub trait Networks: Send + Sync {
    /// Sets the node's range of Pod addresses.
    async fn set_pod_cidr(&self, cidr: Ipv4Net) -> Result<(), NetworkError>;
    /// Gives no other Pod an address until a range is set. Returns the number of Pods with an address outside of the next range.
    fn withdraw_pod_cidr(&self, next: Ipv4Net) -> usize;
    /// Creates a Pod's namespaces and address, or finds the existing ones. With `first_id`, the node's id of the Pod's root, a user
    /// namespace owns them.
    async fn add_pod(&self, uid: &str, hostname: &str, host_ports: &[HostPort], first_id: Option<u32>) -> Result<PodNetwork, NetworkError>;
    /// Creates the IPC namespace of a Pod on the node's network, or finds the existing one.
    async fn add_host_network_pod(&self, uid: &str) -> Result<PathBuf, NetworkError>;
    /// The name of the node's end of the interface of the Pod with that address, if Pods have interfaces.
    fn interface(&self, _ip: IpAddr) -> Option<String> {
        None
    }
    /// Whether an interface of the node was made for Pods.
    fn owns_interface(&self, _name: &str) -> bool {
        false
    }
    /// Frees everything of a Pod.
    async fn remove_pod(&self, uid: &str) -> Result<(), NetworkError>;
    /// UIDs of the Pods that have anything here.
    async fn pods(&self) -> Result<Vec<String>, NetworkError>;
    /// Sets the routes to other nodes' Pods.
    async fn set_routes(&self, peers: &[Peer]) -> Result<(), NetworkError>;
    /// Removes every trace.
    async fn remove_all(&self) -> Result<(), NetworkError>;
}

#[async_trait]
impl Networks for Network {
    async fn set_pod_cidr(&self, cidr: Ipv4Net) -> Result<(), NetworkError> {
        Self::set_pod_cidr(self, cidr).await
    }

    fn withdraw_pod_cidr(&self, next: Ipv4Net) -> usize {
        Self::withdraw_pod_cidr(self, next)
    }

    async fn add_pod(&self, uid: &str, hostname: &str, host_ports: &[HostPort], first_id: Option<u32>) -> Result<PodNetwork, NetworkError> {
        Self::add_pod(self, uid, hostname, host_ports, first_id).await
    }

    async fn add_host_network_pod(&self, uid: &str) -> Result<PathBuf, NetworkError> {
        Self::add_host_network_pod(self, uid).await
    }

    fn interface(&self, ip: IpAddr) -> Option<String> {
        Self::interface(self, ip)
    }

    fn owns_interface(&self, name: &str) -> bool {
        Self::owns_interface(self, name)
    }

    async fn remove_pod(&self, uid: &str) -> Result<(), NetworkError> {
        Self::remove_pod(self, uid).await
    }

    async fn pods(&self) -> Result<Vec<String>, NetworkError> {
        Self::pods(self).await
    }

    async fn set_routes(&self, peers: &[Peer]) -> Result<(), NetworkError> {
        Self::set_routes(self, peers).await
    }

    async fn remove_all(&self) -> Result<(), NetworkError> {
        Self::remove_all(self).await
    }
}

/// The agent's view of who shuts the machine down; see [`Logind`] for the promises.
#[async_trait]
pub trait Shutdowns: Send + Sync {
    /// Connects, and delays the next shutdown for up to that time.
    async fn watch(&self, delay: Duration) -> Result<ShutdownWatch, LogindError>;
    /// Removes every trace.
    async fn remove_setting(&self) -> Result<(), LogindError>;
}

#[async_trait]
impl Shutdowns for Logind {
    async fn watch(&self, delay: Duration) -> Result<ShutdownWatch, LogindError> {
        Self::watch(self, delay).await
    }

    async fn remove_setting(&self) -> Result<(), LogindError> {
        Self::remove_setting(self).await
    }
}
