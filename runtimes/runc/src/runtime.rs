//! Implements the contract with bundles, runc and shims.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oci_spec::runtime::Spec;
use runtimes_contract::{
    AttachSession, ContainerId, ContainerSpec, ContainerState, ContainerStatus, Content, ContentKind, Device, ExecSession, ExecSpec, Exit,
    HttpRequests, Preparation, Processes, Runtime, RuntimeError, Stats,
};
use runtimes_host::blocking;
use runtimes_host::files::{PRIVATE, write_volatile};
use runtimes_host::mounts::have_recursive_attributes;
use runtimes_host::process::ProcessRef;
use runtimes_shim::exec::Permits;
use runtimes_shim::launch::{PidNamespace, launch};
use runtimes_shim::shims::Shims;
use runtimes_shim::state::open_log;
use serde::Serialize;
use serde_json::{Value, json};

use crate::bundle::{Facts, RECURSIVE_READ_ONLY, bundle};
use crate::stage::{self, Stage};
use crate::tool::{Runc, flags};
use crate::{errors, exec, pause, project_quota};

/// Processes of one container that may outlive their sessions. Each has a helper on the node, whose memory no limit of the Pod covers.
const OUTLIVING_MAX: usize = 64;

/// The paths and programs of a [`RuncRuntime`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Its containers' records, and runc's own.
    pub state_dir: PathBuf,
    /// The binary `skiff-shim-runc`.
    pub shim: PathBuf,
    /// runc: a path, or a name that is searched in PATH.
    pub runc: PathBuf,
}

/// Runs Linux images, each container with a shim of its own.
pub struct RuncRuntime {
    shims: Shims,
    shim: PathBuf,
    runc: Runc,
    /// Whether runc has the mount option [`RECURSIVE_READ_ONLY`].
    has_rro: Arc<AtomicBool>,
    permits: Permits,
}

impl RuncRuntime {
    /// Opens the state directory; existing containers are known at once.
    pub fn new(config: Config) -> Result<Self, RuntimeError> {
        let shims = Shims::open(&config.state_dir)?;
        let runc = Runc { binary: config.runc, root: config.state_dir.join("runc") };
        Ok(Self { shims, shim: config.shim, runc, has_rro: Arc::default(), permits: Permits::new(OUTLIVING_MAX) })
    }
}

#[async_trait]
impl Runtime for RuncRuntime {
    fn handler(&self) -> &'static str {
        "runc"
    }

    fn runs(&self) -> ContentKind {
        ContentKind::Linux
    }

    fn mounts_recursively_read_only(&self) -> bool {
        self.has_rro.load(Ordering::Relaxed) && have_recursive_attributes()
    }

    fn supports_user_namespaces(&self, dirs: &[&Path]) -> Result<(), RuntimeError> {
        self.shims.check_user_namespaces(dirs)
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        let (shim, runc, has_rro) = (self.shim.clone(), self.runc.clone(), self.has_rro.clone());
        blocking(move || {
            runc.check()?;
            has_rro.store(runc.has_mount_option(RECURSIVE_READ_ONLY), Ordering::Relaxed);
            match nix::unistd::access(&shim, nix::unistd::AccessFlags::X_OK) {
                Ok(()) => Ok(()),
                Err(error) => {
                    let help = "it is built and installed beside skiff";
                    Err(RuntimeError::Missing(format!("{} cannot be executed ({}); {help}", shim.display(), error.desc())))
                }
            }
        })
        .await
    }

    async fn preparation(&self, _spec: &ContainerSpec) -> Result<Option<Preparation>, RuntimeError> {
        Ok(None)
    }

    /// A first start needs no preparation: the image store has the root file system.
    async fn prepare(&self, spec: &ContainerSpec, _tenant: &str) -> Result<Duration, RuntimeError> {
        match spec.content {
            Content::Linux { .. } | Content::Pause => Ok(Duration::ZERO),
            Content::Wasm { .. } => {
                Err(RuntimeError::BadContent("runtime handler runc runs Linux images, but the image holds a WebAssembly module".into()))
            }
        }
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<(), RuntimeError> {
        let (shims, runc, spec) = (self.shims.clone(), self.runc.clone(), spec.clone());
        blocking(move || create(&shims, &runc, &spec)).await
    }

    async fn start(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let shims = self.shims.clone();
        let owned = id.clone();
        let made = blocking(move || shims.startable(&owned)).await?;
        let group = self.shims.group(&made.spec)?;
        let dir = self.shims.state.dir(id);
        if made.spec.content == Content::Pause {
            let args = pause::args(&dir, &made.spec);
            // In a user namespace it makes its PID namespace itself, which only then belongs to the user namespace.
            let pids = if made.spec.sandbox.user.is_some() { PidNamespace::OfChild } else { PidNamespace::Own };
            return launch(&self.shim, args, &dir, Some(group), pids).await;
        }
        let counter = group.oom_counter();
        let mut args: Vec<OsString> = vec!["run".into()];
        args.extend([&dir, &self.runc.binary, &self.runc.root].map(|path| path.clone().into_os_string()));
        args.extend([OsString::from(&id.0), made.spec.log_path.clone().into(), counter.into()]);
        args.extend(flags(made.spec.tty, made.spec.stdin));
        args.extend(made.spec.stdin_once.then(|| OsString::from("stdin-once")));
        args.extend(project_quota::flag(&made.spec));
        // The kernel ends all processes of a PID namespace with its first. The others of a shared namespace stay.
        let shares = made.spec.processes != Processes::Own;
        args.extend(shares.then(|| OsString::from(format!("cgroup={}", made.spec.cgroup))));
        // runc puts the container's processes into its cgroup. The shim stays out of it, so that it can report the end of a
        // container whose memory ran out.
        let started = self.beside_its_moves(launch(&self.shim, args, &dir, None, PidNamespace::Node)).await;
        match started {
            Err(RuntimeError::Start(_)) => Err(errors::complaint(&dir.join("runc.log"), "create").unwrap_or_else(|| self.mute())),
            other => other,
        }
    }

    async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), RuntimeError> {
        self.shims.signal(id, signal).await
    }

    async fn wait(&self, id: &ContainerId) -> Result<Exit, RuntimeError> {
        self.shims.wait(id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let (shims, runc, id) = (self.shims.clone(), self.runc.clone(), id.clone());
        blocking(move || remove(&shims, &runc, &id)).await
    }

    async fn list(&self) -> Result<Vec<ContainerStatus>, RuntimeError> {
        self.shims.list().await
    }

    async fn set_cpus(&self, id: &ContainerId, cpus: &str) -> Result<(), RuntimeError> {
        self.shims.set_cpus(id, cpus).await
    }

    async fn reopen_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        self.shims.reopen_log(id, None).await
    }

    async fn exec(&self, id: &ContainerId, exec: ExecSpec) -> Result<ExecSession, RuntimeError> {
        let shims = self.shims.clone();
        let owned = id.clone();
        let (dir, spec) = blocking(move || {
            let (made, state) = shims.look(&owned)?;
            match state {
                ContainerState::Running { .. } => Ok((shims.state.dir(&owned), made.spec)),
                _ => Err(RuntimeError::Start(format!("cannot exec in a container that is not running: {owned}"))),
            }
        })
        .await?;
        let permit = self.permits.take(id, &exec)?;
        self.beside_its_moves(exec::start(&self.shim, &self.runc, &dir, &spec, &exec, permit)).await
    }

    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<AttachSession, RuntimeError> {
        self.shims.attach(id, stdin).await
    }

    async fn stats(&self, id: &ContainerId) -> Result<Stats, RuntimeError> {
        self.shims.stats(id).await
    }

    async fn list_stats(&self, ids: &[ContainerId]) -> HashMap<ContainerId, Stats> {
        self.shims.list_stats(ids).await
    }

    async fn http_requests(&self, id: &ContainerId) -> Result<Option<HttpRequests>, RuntimeError> {
        self.shims.http_requests(id).await
    }
}

impl RuncRuntime {
    /// Starts runc, and meanwhile takes the kernel's wait before the moves of runc.
    async fn beside_its_moves<T>(&self, start: impl Future<Output = T>) -> T {
        let cgroups = self.shims.cgroups.clone();
        let prepared = blocking(move || cgroups.prepare_moves().map_err(RuntimeError::io("moving this process to its own cgroup")));
        tokio::pin!(start);
        tokio::select! {
            biased;
            started = &mut start => started,
            prepared = prepared => {
                if let Err(error) = prepared {
                    tracing::debug!(%error, "runc waits before it moves its processes");
                }
                start.await
            }
        }
    }

    fn mute(&self) -> RuntimeError {
        RuntimeError::Tool { tool: "runc", message: format!("{} failed and did not say why", self.runc.binary.display()) }
    }
}

fn create(shims: &Shims, runc: &Runc, spec: &ContainerSpec) -> Result<(), RuntimeError> {
    let group = shims.group(spec)?;
    let (stage, staged) = staged(shims, runc, spec)?.unzip();
    let staged = staged.as_ref().unwrap_or(spec);
    let oci = if spec.content == Content::Pause { None } else { Some(bundle(staged, &facts(shims, spec)?)?) };
    let dir = shims.state.create(spec)?;
    let made = match &oci {
        // Not by runc, which fails on such a limit where it has no controller of v1 for it.
        Some(oci) => furnish(&dir, oci, stage.as_ref(), spec)
            .and_then(|()| spec.resources.huge_pages.as_ref().map_or(Ok(()), |limits| group.limit_huge_pages(limits))),
        None => pause::furnish(&dir, &group, spec),
    };
    if made.is_err()
        && let Err(error) = remove(shims, runc, &spec.id)
    {
        tracing::warn!(container = %spec.id, %error, "clearing away a half-made container");
    }
    made
}

/// The stage of a container with a user namespace, and its spec for runc.
fn staged(shims: &Shims, runc: &Runc, spec: &ContainerSpec) -> Result<Option<(Stage, ContainerSpec)>, RuntimeError> {
    if spec.sandbox.user.is_none() {
        return Ok(None);
    }
    let needed = [shims.state.dir(&spec.id), runc.root.clone(), runc.binary.clone(), spec.log_path.clone()];
    stage::stage(spec, stage::mount_point(&needed)?)
}

fn facts(shims: &Shims, spec: &ContainerSpec) -> Result<Facts, RuntimeError> {
    let devices = if spec.security.privileged { host_devices(Path::new("/dev")) } else { Vec::new() };
    let (mode, limits_swap) = (shims.cgroups.mode(), shims.cgroups.limits_swap());
    let own_devices = spec.devices.iter().map(own_device).collect::<Result<_, _>>()?;
    Ok(Facts { cgroups: Some(mode), limits_swap, devices, own_devices, target: target(shims, spec)? })
}

fn furnish(dir: &Path, oci: &Spec, stage: Option<&Stage>, spec: &ContainerSpec) -> Result<(), RuntimeError> {
    write_json(&dir.join("config.json"), oci)?;
    if let Some(stage) = stage {
        write_json(&dir.join(stage::FILE), stage)?;
    }
    open_log(&spec.log_path, None).map(|_| ())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), RuntimeError> {
    let writing = || format!("writing {}", path.display());
    let text = serde_json::to_vec(value).map_err(io::Error::other).map_err(RuntimeError::io(writing()))?;
    write_volatile(path, &text, PRIVATE).map_err(RuntimeError::io(writing()))
}

/// The first process of the container whose PID namespace a container joins. The shim checks, before anything of the container
/// runs, that it has not ended since.
fn target(shims: &Shims, spec: &ContainerSpec) -> Result<Option<ProcessRef>, RuntimeError> {
    let Processes::OfContainer(id) = &spec.processes else { return Ok(None) };
    let (_, state) = shims.look(id)?;
    let pid = shims.state.pid(id)?.filter(|_| matches!(state, ContainerState::Running { .. }));
    let pid = pid.ok_or_else(|| RuntimeError::NoTarget(id.0.clone()))?;
    Ok(Some(pid.init))
}

fn remove(shims: &Shims, runc: &Runc, id: &ContainerId) -> Result<(), RuntimeError> {
    match shims.state.made(id) {
        Ok(made) => {
            shims.kill_and_free(id, &made.spec)?;
            runc.delete(id)?;
        }
        // Incomplete: runc does not know it.
        Err(RuntimeError::NotFound(_)) => {}
        Err(_) => {
            shims.kill_recorded(id)?;
            runc.delete(id)?;
        }
    }
    match shims.forget(id) {
        // An id that is not a valid container id does not exist.
        Err(RuntimeError::Unsupported(_)) => Ok(()),
        result => result,
    }
}

/// Every device node of the machine, for privileged containers. A node that vanishes meanwhile is left out.
fn host_devices(dir: &Path) -> Vec<Value> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut devices = Vec::new();
    for entry in entries.flatten() {
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        let kind = meta.file_type();
        let own = ["/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/console"].iter().any(|own| path == Path::new(own));
        if kind.is_dir() && !own {
            devices.extend(host_devices(&path));
        } else if !own {
            devices.extend(oci_device(&path, &meta));
        }
    }
    devices
}

/// A device of the spec, with the owner and the mode that it has on the node.
fn own_device(device: &Device) -> Result<Value, RuntimeError> {
    let reading = || format!("reading the device {}", device.source.display());
    let meta = fs::metadata(&device.source).map_err(RuntimeError::io(reading()))?;
    oci_device(&device.target, &meta).ok_or_else(|| RuntimeError::Unsupported(format!("{} is not a device", device.source.display())))
}

/// A device node as an OCI device object with this path in the container; `None` for other files.
fn oci_device(path: &Path, meta: &fs::Metadata) -> Option<Value> {
    let kind = match meta.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => return None,
    };
    let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
    let mode = meta.mode() & 0o7777;
    Some(json!({ "path": path, "type": kind, "major": major, "minor": minor, "fileMode": mode, "uid": meta.uid(), "gid": meta.gid() }))
}
