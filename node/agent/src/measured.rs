//! The node's parts with their operations counted and timed: each part is wrapped once, so that no caller counts anything.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use ipnet::Ipv4Net;
use node_images::{Image, ImageError, InUse, PullPolicy, RegistryAuth, WritableLayer};
use node_network::{HostPort, NetworkError, Peer, PodNetwork};
use runtimes_contract::{
    AttachSession, ContainerId, ContainerSpec, ContainerStatus, Content, ContentKind, ExecSession, ExecSpec, Exit, HttpRequests,
    Preparation, Runtime, RuntimeError, Stats, UserNamespace,
};
use runtimes_host::disk::Disk;

use crate::kubelet_metrics::{KubeletMetrics, Operation};
use crate::parts::{Images, Networks, Parts};

/// The same parts, measured.
pub(crate) fn measured(parts: Parts, metrics: &Arc<KubeletMetrics>) -> Parts {
    let Parts { runtimes, images, network, shutdowns } = parts;
    let runtime = |inner| -> Arc<dyn Runtime> { Arc::new(Measured { inner, metrics: metrics.clone() }) };
    Parts {
        runtimes: runtimes.into_iter().map(runtime).collect(),
        images: Arc::new(Measured { inner: images, metrics: metrics.clone() }),
        network: Arc::new(Measured { inner: network, metrics: metrics.clone() }),
        shutdowns,
    }
}

struct Measured<P: ?Sized> {
    inner: Arc<P>,
    metrics: Arc<KubeletMetrics>,
}

impl<P: ?Sized> Measured<P> {
    async fn measure<T, E>(&self, operation: Operation, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.metrics.operations.measure(operation, work).await
    }
}

#[async_trait]
impl Runtime for Measured<dyn Runtime> {
    fn handler(&self) -> &'static str {
        self.inner.handler()
    }

    fn runs(&self) -> ContentKind {
        self.inner.runs()
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        self.inner.check().await
    }

    fn mounts_recursively_read_only(&self) -> bool {
        self.inner.mounts_recursively_read_only()
    }

    fn supports_user_namespaces(&self, dirs: &[&Path]) -> Result<(), RuntimeError> {
        self.inner.supports_user_namespaces(dirs)
    }

    async fn preparation(&self, spec: &ContainerSpec) -> Result<Option<Preparation>, RuntimeError> {
        self.inner.preparation(spec).await
    }

    async fn prepare(&self, spec: &ContainerSpec, tenant: &str) -> Result<Duration, RuntimeError> {
        self.inner.prepare(spec, tenant).await
    }

    async fn work_in_background(&self) {
        self.inner.work_in_background().await;
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<(), RuntimeError> {
        self.measure(Operation::CreateContainer, self.inner.create(spec)).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.measure(Operation::StartContainer, self.inner.start(id)).await
    }

    /// `stop_container` is the signal and the wait for the end, which the worker measures.
    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError> {
        self.inner.signal(id, signal).await
    }

    async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError> {
        self.inner.wait(id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.measure(Operation::RemoveContainer, self.inner.remove(id)).await
    }

    async fn list(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        self.measure(Operation::ListContainers, self.inner.list()).await
    }

    async fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError> {
        self.measure(Operation::UpdateContainerResources, self.inner.set_cpus(id, cpus)).await
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.measure(Operation::ReopenContainerLog, self.inner.reopen_log(id)).await
    }

    async fn prepare_exec(&self, id: &ContainerId, exec: &ExecSpec) -> Result<(), RuntimeError> {
        self.inner.prepare_exec(id, exec).await
    }

    async fn exec(&self, id: &ContainerId, exec: ExecSpec) -> Result<ExecSession, RuntimeError> {
        self.measure(Operation::Exec, self.inner.exec(id, exec)).await
    }

    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError> {
        self.measure(Operation::Attach, self.inner.attach(id, stdin)).await
    }

    async fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError> {
        self.measure(Operation::ContainerStats, self.inner.stats(id)).await
    }

    async fn list_stats(&self, ids: &[ContainerId]) -> HashMap<ContainerId, Stats> {
        let listed = self.measure(Operation::ListContainerStats, self.inner.list_stats(ids).map(Ok::<_, Infallible>)).await;
        listed.unwrap_or_else(|never| match never {})
    }

    async fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        self.inner.http_requests(id).await
    }
}

#[async_trait]
impl Images for Measured<dyn Images> {
    async fn pull(&self, reference: &str, policy: PullPolicy, auth: &[RegistryAuth]) -> Result<Image, ImageError> {
        self.measure(Operation::PullImage, self.inner.pull(reference, policy, auth)).await
    }

    async fn get(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        self.measure(Operation::ImageStatus, self.inner.get(reference)).await
    }

    async fn list(&self) -> Result<Vec<Image>, ImageError> {
        self.measure(Operation::ListImages, self.inner.list()).await
    }

    async fn mount(&self, image: &Image, key: &str, user: Option<&UserNamespace>) -> Result<Content, ImageError> {
        self.inner.mount(image, key, user).await
    }

    async fn mount_files(&self, image: &Image, key: &str, at: &Path, user: Option<&UserNamespace>) -> Result<(), ImageError> {
        self.inner.mount_files(image, key, at, user).await
    }

    async fn unmount(&self, key: &str) -> Result<(), ImageError> {
        self.inner.unmount(key).await
    }

    async fn mounts(&self) -> Result<Vec<String>, ImageError> {
        self.inner.mounts().await
    }

    fn writable_layer(&self, key: &str) -> Option<WritableLayer> {
        self.inner.writable_layer(key)
    }

    fn dir(&self) -> Option<PathBuf> {
        self.inner.dir()
    }

    async fn usage(&self) -> Result<Option<Disk>, ImageError> {
        self.measure(Operation::ImageFsInfo, self.inner.usage()).await
    }

    async fn collect(&self, in_use: InUse<'_>, high: u8, low: u8) -> Result<usize, ImageError> {
        let removed = self.inner.collect(in_use, high, low).await?;
        self.metrics.images_collected(removed);
        Ok(removed)
    }
}

#[async_trait]
impl Networks for Measured<dyn Networks> {
    async fn set_pod_cidr(&self, cidr: Ipv4Net) -> Result<(), NetworkError> {
        self.inner.set_pod_cidr(cidr).await
    }

    fn withdraw_pod_cidr(&self, next: Ipv4Net) -> usize {
        self.inner.withdraw_pod_cidr(next)
    }

    async fn add_pod(&self, uid: &str, hostname: &str, host_ports: &[HostPort], first_id: Option<u32>) -> Result<PodNetwork, NetworkError> {
        self.measure(Operation::RunPodSandbox, self.inner.add_pod(uid, hostname, host_ports, first_id)).await
    }

    async fn add_host_network_pod(&self, uid: &str) -> Result<PathBuf, NetworkError> {
        self.measure(Operation::RunPodSandbox, self.inner.add_host_network_pod(uid)).await
    }

    fn interface(&self, ip: IpAddr) -> Option<String> {
        self.inner.interface(ip)
    }

    fn owns_interface(&self, name: &str) -> bool {
        self.inner.owns_interface(name)
    }

    async fn remove_pod(&self, uid: &str) -> Result<(), NetworkError> {
        self.measure(Operation::StopPodSandbox, self.inner.remove_pod(uid)).await
    }

    async fn pods(&self) -> Result<Vec<String>, NetworkError> {
        self.measure(Operation::ListPodSandbox, self.inner.pods()).await
    }

    async fn set_routes(&self, peers: &[Peer]) -> Result<(), NetworkError> {
        self.inner.set_routes(peers).await
    }

    async fn remove_all(&self) -> Result<(), NetworkError> {
        self.inner.remove_all().await
    }
}
