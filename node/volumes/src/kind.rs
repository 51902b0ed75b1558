//! A volume kind, and what it needs. `kinds.rs` has the table of the kinds.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};

use crate::local::Local;
use crate::{Allocatable, Source, VolumeError};

/// What a kind needs to set up a volume.
pub struct Context<'a> {
    /// The Pod's directory.
    pub pod_dir: PathBuf,
    /// The Pod.
    pub pod: &'a Pod,
    /// The node's amounts.
    pub allocatable: Allocatable,
    /// The limit of the Pod's cgroup, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// The source of the objects.
    pub source: &'a dyn Source,
    /// The directories of the provisioner's volumes.
    pub(crate) local: Local,
    /// The present time, for the rotation of tokens.
    pub now: Timestamp,
}

impl<'a> Context<'a> {
    /// As of now.
    pub(crate) fn new(
        pod_dir: PathBuf,
        pod: &'a Pod,
        allocatable: Allocatable,
        memory_limit_bytes: Option<u64>,
        source: &'a dyn Source,
        local: Local,
    ) -> Self {
        Self { pod_dir, pod, allocatable, memory_limit_bytes, source, local, now: api_clock::now() }
    }

    /// The Pod's namespace.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    /// `spec.securityContext.fsGroup`.
    pub fn fs_group(&self) -> Option<u32> {
        let group = self.spec()?.security_context.as_ref()?.fs_group?;
        u32::try_from(group).ok()
    }

    /// Whether `fsGroup` is applied only where the top of the volume does not have it yet.
    pub fn fs_group_on_mismatch(&self) -> bool {
        let policy = self.spec().and_then(|spec| spec.security_context.as_ref()?.fs_group_change_policy.as_deref());
        policy == Some("OnRootMismatch")
    }

    /// The user of all containers, if they have the same one in their specs: that user owns token files.
    pub fn fs_user(&self) -> Option<u32> {
        let spec = self.spec()?;
        let of_pod = spec.security_context.as_ref().and_then(|security| security.run_as_user);
        let mut users = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
            .map(|container| container.security_context.as_ref().and_then(|security| security.run_as_user).or(of_pod));
        let first = users.next()??;
        users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
    }

    fn spec(&self) -> Option<&'a PodSpec> {
        self.pod.spec.as_ref()
    }
}

/// One kind of volume.
///
/// Promises: `set_up` may be called any number of times, also after a kill in the middle, and updates the content so that a
/// reader never sees half of it; it creates files below the Pod's directory only (hostPath creates none there, and
/// the provisioner's volumes have a directory of their own); `path` does no
/// I/O.
#[async_trait]
pub trait VolumeKind: Send + Sync {
    /// Upstream's plugin name, for example `configmap`.
    fn name(&self) -> &'static str;

    /// Sets the volume up or updates it; returns when it must be called again at the latest.
    async fn set_up(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<Timestamp>, VolumeError>;

    /// The file or directory that containers mount.
    fn path(&self, pod_dir: &Path, volume: &Volume) -> PathBuf {
        pod_dir.join("volumes").join(format!("kubernetes.io~{}", self.name())).join(&volume.name)
    }

    /// Whether containers can only read it.
    fn read_only(&self, _volume: &Volume) -> bool {
        false
    }

    /// Whether no program in it can be run.
    fn no_exec(&self) -> bool {
        false
    }

    /// Whether its files have the ids of the Pod's user namespace: the agent, which mounts them, has mapped them.
    fn ids_mapped(&self) -> bool {
        false
    }

    /// What is behind [`VolumeKind::path`] if that is a link, once the volume is set up. Blocks.
    fn target(&self, path: PathBuf) -> Result<PathBuf, VolumeError> {
        Ok(path)
    }
}

/// Whether the Pod wants to read the claim only.
pub(crate) fn claim_is_read_only(volume: &Volume) -> bool {
    volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true))
}
