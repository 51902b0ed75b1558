//! The CPU manager (upstream's `pkg/kubelet/cm/cpumanager`) under the policy `static`: Pods get CPUs alone when they are admitted, and
//! lose them when none of their containers is left; all other containers run on the rest, the shared pool. What is assigned is in a
//! file before any container runs by it. Under the policy `none` there is no [`CpuManager`], and nothing about CPUs is written.
//!
//! The decisions are pure: [`policy`] over [`topology`] and [`state`]. This file holds the assignments and the containers that live, and
//! has runtimes bind containers to CPUs.

mod cpu_set;
mod distribute;
mod live;
mod options;
mod policy;
mod reservation;
mod state;
mod take;
mod topology;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use runtimes_contract::{ContainerId, RuntimeError};
use runtimes_host::files::{PRIVATE, write_atomic};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use cpu_set::{CpuSet, CpuSetError};
pub use options::{CpuManagerError, CpuManagerPolicy, CpuPolicyOptions};
pub use reservation::{Reservation, ReservationError};

use crate::admit::Rejection;
use crate::error::{AgentError, chain};
use crate::parts::Parts;
use live::Containers;
use policy::{Refusal, StaticPolicy};
use state::Assignments;

/// How long a container with CPUs of its own waits for starts of others that began when these CPUs were shared. Upstream lets them
/// share for as long as its reconcile period.
const STARTS_WAIT: Duration = Duration::from_secs(10);

/// The settings of the CPU manager.
#[derive(Clone, Debug)]
pub struct CpuManagerConfig {
    /// Upstream's `--cpu-manager-policy`.
    pub policy: CpuManagerPolicy,
    /// Upstream's `--cpu-manager-policy-options`.
    pub options: CpuPolicyOptions,
    /// Upstream's `--reserved-cpus`; empty reserves by number ([`Config::reserved`](crate::Config::reserved)).
    pub reserved_cpus: CpuSet,
    /// Upstream's `--cpu-manager-reconcile-period`.
    pub reconcile_period: Duration,
}

impl Default for CpuManagerConfig {
    fn default() -> Self {
        let reconcile_period = Duration::from_secs(10);
        Self { policy: CpuManagerPolicy::None, options: CpuPolicyOptions::default(), reserved_cpus: CpuSet::default(), reconcile_period }
    }
}

/// Counts since the start of the agent, and the present sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Containers for which CPUs of their own were requested.
    pub(crate) requests: u64,
    /// Those that got none.
    pub(crate) errors: u64,
    /// The shared CPUs that could still become a container's own, in thousandths.
    pub(crate) shared_milli: u64,
    /// CPUs that belong to one container.
    pub(crate) exclusive: u64,
}

/// What is assigned, and to which containers it was given.
#[derive(Default)]
struct Inner {
    assigned: Assignments,
    containers: Containers,
}

/// Assigns CPUs to containers.
pub(crate) struct CpuManager {
    policy: StaticPolicy,
    file: PathBuf,
    inner: Mutex<Inner>,
    /// Assignments change one after the other: each is written before it counts.
    changing: tokio::sync::Mutex<()>,
    /// Containers are bound one after the other, so that the last CPUs that were decided are the last that are set.
    binding: tokio::sync::Mutex<()>,
    /// A container has started, or has not.
    settled: Notify,
    requests: AtomicU64,
    errors: AtomicU64,
}

impl CpuManager {
    /// Reads the machine's CPUs from `sys_dir`, and the state file. `None` under the policy `none`. `reserved_milli` are thousandths of a
    /// CPU.
    pub(crate) fn open(
        settings: &CpuManagerConfig,
        reserved_milli: i64,
        sys_dir: &Path,
        file: PathBuf,
    ) -> Result<Option<Self>, AgentError> {
        let written = written(&file, settings.policy.name())?;
        if settings.policy == CpuManagerPolicy::None {
            let Some(given) = settings.options.given() else { return Ok(None) };
            return Err(AgentError::CpuManager(format!("None policy: received unsupported options={given}")));
        }
        let topology = topology::read(sys_dir).map_err(|error| AgentError::CpuManager(chain(&error)))?;
        let policy = StaticPolicy::new(topology, reserved_milli, &settings.reserved_cpus, settings.options.clone());
        let policy = policy.map_err(|error| AgentError::CpuManager(chain(&error)))?;
        let assigned = match written {
            Some(assigned) => policy.check(&assigned).map(|()| assigned).map_err(|error| misfit(&chain(&error), &file))?,
            None => {
                let initial = policy.initial();
                write(&file, &initial).map_err(|source| AgentError::Io { doing: "writing", path: file.clone(), source })?;
                initial
            }
        };
        tracing::info!(shared = %assigned.shared, exclusive = %assigned.all_exclusive(), "CPU manager with policy static");
        Ok(Some(Self {
            policy,
            file,
            inner: Mutex::new(Inner { assigned, containers: Containers::default() }),
            changing: tokio::sync::Mutex::default(),
            binding: tokio::sync::Mutex::default(),
            settled: Notify::new(),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }))
    }

    /// Assigns a Pod the CPUs that its containers have alone, before any of them starts. May be repeated.
    pub(crate) async fn allocate(&self, pod: &Pod) -> Result<(), Rejection> {
        let _only = self.changing.lock().await;
        let present = self.inner.lock().assigned.clone();
        let mut tried = 0;
        let next = self.policy.allocate(pod, &present, &mut tried);
        self.requests.fetch_add(tried, Ordering::Relaxed);
        let stored = match next {
            Ok(next) if next == present => Ok(()),
            Ok(next) => self.store(next).await.map_err(Refusal::NotStored),
            Err(refusal) => Err(refusal),
        };
        stored.map_err(|refusal| {
            self.errors.fetch_add(1, Ordering::Relaxed);
            refusal.rejection()
        })
    }

    /// Returns a Pod's CPUs to the shared pool. None of its containers may be left.
    pub(crate) async fn release(&self, uid: &str, parts: &Parts) {
        {
            let _only = self.changing.lock().await;
            let present = self.inner.lock().assigned.clone();
            let next = present.without(uid);
            if next == present {
                return;
            }
            if let Err(error) = self.store(next.clone()).await {
                // The next start finds that the Pod is gone, or returns the CPUs of a Pod that has ended once more.
                tracing::warn!(uid, error, "the CPUs of a Pod that is gone are free, but the file still has them");
                self.inner.lock().assigned = next;
            }
        }
        tracing::info!(uid, "the CPUs of a Pod are shared again");
        self.bind(parts).await;
    }

    /// Returns the CPUs of Pods that left nothing on the node, not even a container. `present` says whether a Pod is here.
    pub(crate) async fn release_absent(&self, present: impl Fn(&str) -> bool, parts: &Parts) {
        let uids: Vec<String> = self.inner.lock().assigned.exclusive.keys().filter(|uid| !present(uid)).cloned().collect();
        for uid in uids {
            self.release(&uid, parts).await;
        }
    }

    /// Whether a container of the Pod has CPUs alone.
    pub(crate) fn has_exclusive(&self, uid: &str) -> bool {
        self.inner.lock().assigned.exclusive.contains_key(uid)
    }

    /// The CPUs of a container that is about to be created, and whether it has them alone. Until [`CpuManager::started`] or
    /// [`CpuManager::forget`] is called, it counts as one that may begin to run on them at any moment.
    pub(crate) fn begin(&self, uid: &str, name: &str, id: &ContainerId, handler: &str) -> (CpuSet, bool) {
        let mut inner = self.inner.lock();
        let Inner { assigned, containers } = &mut *inner;
        containers.begin(uid, name, id, handler, assigned)
    }

    /// Waits until nobody else runs on CPUs that a container has alone: starts that began earlier are over, for at most [`STARTS_WAIT`],
    /// and all containers of the shared pool are bound to what is left of it.
    pub(crate) async fn clear(&self, cpus: &CpuSet, id: &ContainerId, parts: &Parts) {
        let over = async {
            loop {
                let settled = self.settled.notified();
                let mut settled = std::pin::pin!(settled);
                // Before the check, so that no end of a start is missed.
                settled.as_mut().enable();
                if !self.inner.lock().containers.starts_on(cpus, id) {
                    return;
                }
                settled.await;
            }
        };
        if tokio::time::timeout(STARTS_WAIT, over).await.is_err() {
            tracing::warn!(container = %id, %cpus, "another container has begun to start on these CPUs and is not done yet");
        }
        self.bind(parts).await;
    }

    /// A container runs. It gets other CPUs if the shared pool has changed since it was created.
    pub(crate) async fn started(&self, id: &ContainerId, parts: &Parts) {
        self.inner.lock().containers.started(id);
        self.settled.notify_waiters();
        self.bind(parts).await;
    }

    /// A container that an earlier agent started, or an earlier worker. Its CPUs are set anew.
    pub(crate) fn adopt(&self, uid: &str, name: &str, id: &ContainerId, handler: &str) {
        self.inner.lock().containers.adopt(uid, name, id, handler);
        self.settled.notify_waiters();
    }

    /// A container does not exist any more.
    pub(crate) fn forget(&self, id: &ContainerId) {
        self.inner.lock().containers.forget(id);
        self.settled.notify_waiters();
    }

    /// Binds all containers that have other CPUs than they are to have.
    pub(crate) async fn bind(&self, parts: &Parts) {
        let is_due = {
            let inner = self.inner.lock();
            inner.containers.has_due(&inner.assigned)
        };
        if !is_due {
            return;
        }
        let _only = self.binding.lock().await;
        let due = {
            let inner = self.inner.lock();
            inner.containers.due(&inner.assigned)
        };
        for (id, handler, cpus) in due {
            let Some(runtime) = parts.by_handler(&handler) else { continue };
            match runtime.set_cpus(&id, &cpus.to_string()).await {
                Ok(()) => self.inner.lock().containers.bound(&id, cpus),
                Err(RuntimeError::NotFound(_)) => self.forget(&id),
                Err(error) => tracing::warn!(container = %id, %cpus, error = chain(&error), "the container is not bound to its CPUs"),
            }
        }
    }

    /// Binds what an earlier agent started. Then sets the CPUs of all containers in each period, also of those that have what they are to
    /// have: others may have changed it.
    pub(crate) async fn run(&self, parts: &Parts, period: Duration, cancel: CancellationToken) {
        let work = async {
            self.bind(parts).await;
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.inner.lock().containers.unsettle();
                self.bind(parts).await;
            }
        };
        cancel.run_until_cancelled(work).await;
    }

    pub(crate) fn figures(&self) -> Figures {
        let inner = self.inner.lock();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Figures {
            requests: self.requests.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            shared_milli: number(self.policy.available(&inner.assigned).len()).saturating_mul(1_000),
            exclusive: number(inner.assigned.all_exclusive().len()),
        }
    }

    /// Writes assignments to the file; from then on they count.
    async fn store(&self, next: Assignments) -> Result<(), String> {
        let (file, content) = (self.file.clone(), next.clone());
        let stored = api_tasks::blocking("node-agent/cpu-manager-state", move || write(&file, &content)).await;
        match stored {
            Ok(Ok(())) => {
                self.inner.lock().assigned = next;
                Ok(())
            }
            Ok(Err(error)) => Err(format!("writing {}: {error}", self.file.display())),
            Err(_) => Err(format!("writing {} was interrupted", self.file.display())),
        }
    }
}

/// The assignments in the file; `None` without a file.
fn written(file: &Path, policy: &str) -> Result<Option<Assignments>, AgentError> {
    match std::fs::read(file) {
        Ok(content) => Assignments::decode(&content, policy).map(Some).map_err(|error| misfit(&chain(&error), file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AgentError::Io { doing: "reading", path: file.to_owned(), source }),
    }
}

fn misfit(error: &str, file: &Path) -> AgentError {
    AgentError::CpuManager(format!(
        "could not restore state from checkpoint: {error}, please drain this node and delete the CPU manager checkpoint file {:?} before \
         starting it again",
        file.display().to_string()
    ))
}

fn write(file: &Path, assigned: &Assignments) -> std::io::Result<()> {
    let content = assigned.encode(CpuManagerPolicy::Static.name()).map_err(std::io::Error::other)?;
    write_atomic(file, &content, PRIVATE)
}
