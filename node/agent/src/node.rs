//! The state that all parts of the agent share, and the directory of running Pods, which the node's server and the housekeeping
//! read.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api_client::events::Recorder;
use api_tasks::Pulse;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use node_device_plugins::DevicePlugins;
use node_volumes::{Allocatable, Volumes};
use parking_lot::{Mutex, RwLock};
use runtimes_contract::{ContainerId, Sandbox};
use runtimes_host::cgroup::Cgroups;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, mpsc, watch};

use crate::app_armor::AppArmor;
use crate::config::Config;
use crate::container;
use crate::cpu_manager::CpuManager;
use crate::cpu_rates::CpuRates;
use crate::disk_usages::DiskUsages;
use crate::eviction::Pressure;
use crate::fair_queue::FairQueue;
use crate::kubelet_metrics::KubeletMetrics;
use crate::layout::{Layout, PodName};
use crate::machine::{Host, Machine};
use crate::objects::Objects;
use crate::parts::Parts;
use crate::probe_results::ProbeResults;
use crate::resize::{self, Allocation, Deferred, Pending};
use crate::termination::Termination;
use crate::user_namespaces::UserNamespaces;

/// Shared by all workers.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) client: kube::Client,
    pub(crate) parts: Parts,
    pub(crate) volumes: Volumes,
    pub(crate) objects: Objects,
    pub(crate) recorder: Recorder,
    pub(crate) layout: Layout,
    pub(crate) machine: Machine,
    /// Whether its runtimes make mounts read-only with all that is mounted below.
    pub(crate) recursive_read_only: bool,
    /// The profiles of containers.
    pub(crate) app_armor: AppArmor,
    /// The ids of Pods with user namespaces.
    pub(crate) user_namespaces: UserNamespaces,
    /// Why a runtime has no user namespaces, by its handler.
    pub(crate) without_user_namespaces: BTreeMap<&'static str, String>,
    /// `None` when the node runs without cgroups (trials with many nodes on one machine).
    pub(crate) cgroups: Option<Cgroups>,
    /// The queue of image pulls.
    pub(crate) pulls: FairQueue,
    /// The queue of modules to prepare, and that of those which take long.
    pub(crate) preparations: FairQueue,
    pub(crate) long_preparations: FairQueue,
    /// The key from which the tokens of this node's probes are derived.
    pub(crate) probe_key: String,
    pub(crate) directory: Directory,
    /// Whether the network has the node's Pod range.
    pub(crate) has_pod_range: watch::Sender<bool>,
    /// Of the Pod manager's loop.
    pub(crate) pulse: Pulse,
    /// What Pods have on the disk.
    pub(crate) disk_usages: DiskUsages,
    /// The CPU use of the node, Pods and containers.
    pub(crate) cpu_rates: CpuRates,
    /// Assigns CPUs to containers; `None` when all containers run on all CPUs.
    pub(crate) cpu_manager: Option<CpuManager>,
    /// Whether the capacity of local volumes was enforced when the agent started.
    pub(crate) enforces_capacity: bool,
    /// Gives devices of plugins to containers.
    pub(crate) device_plugins: Arc<DevicePlugins>,
    /// What the node counts and times.
    pub(crate) kubelet_metrics: Arc<KubeletMetrics>,
    /// The conditions of eviction.
    pub(crate) pressure: watch::Sender<Pressure>,
    /// Whether the machine is about to shut down.
    pub(crate) shutting_down: AtomicBool,
    /// To the Pod manager.
    pub(crate) terminations: mpsc::Sender<Termination>,
}

impl Node {
    /// The amount that all Pods together may use.
    pub(crate) fn allocatable(&self) -> Allocatable {
        self.machine.allocatable(self.config.reserved, &self.config.eviction_thresholds)
    }

    /// What the status of a Pod says of the node.
    pub(crate) fn host(&self) -> Host {
        Host { ip: self.config.node_ip, recursive_read_only: self.recursive_read_only }
    }

    /// The highest number of processes and threads of one Pod.
    pub(crate) fn pod_pids_max(&self) -> i64 {
        self.config.pod_pids_max.unwrap_or_else(|| self.machine.pod_pids_max())
    }

    /// The token with which a probe identifies itself to that container; only the node can compute it.
    pub(crate) fn probe_token(&self, id: &ContainerId) -> String {
        let digest = Sha256::digest(format!("{}\n{id}\n{}", self.probe_key, self.probe_key));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Has a Pod ended by its worker.
    pub(crate) async fn terminate(&self, termination: Termination) {
        tracing::info!(uid = termination.uid, why = termination.message, "ending a Pod");
        if self.terminations.send(termination).await.is_err() {
            tracing::debug!("the Pod manager has ended");
        }
    }

    /// Whether the machine is about to shut down.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    /// Records an event on the Node, as upstream by its name alone.
    pub(crate) fn note_node(&self, warning: bool, reason: &str, message: impl Into<String>) {
        let name = Some(self.config.node_name.clone());
        let (api_version, kind) = (Some("v1".to_owned()), Some("Node".to_owned()));
        let object = ObjectReference { api_version, kind, uid: name.clone(), name, ..ObjectReference::default() };
        self.note_object(&object, warning, reason, message);
    }

    /// Records an event on a Pod, or on one of its containers.
    pub(crate) fn note(&self, pod: &Pod, container: Option<&str>, warning: bool, reason: &str, message: impl Into<String>) {
        self.note_object(&reference(pod, container), warning, reason, message);
    }

    fn note_object(&self, object: &ObjectReference, warning: bool, reason: &str, message: impl Into<String>) {
        if warning {
            self.recorder.warning(object, reason, message);
        } else {
            self.recorder.normal(object, reason, message);
        }
    }
}

/// A Pod as events name it, with the field path of a container.
fn reference(pod: &Pod, container: Option<&str>) -> ObjectReference {
    let field = container.and_then(|name| container::field_path(pod, name));
    ObjectReference { field_path: field, ..api_client::events::reference(pod) }
}

/// The state of a Pod on this node.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) pod: Arc<Pod>,
    /// Whether the Pod comes from a file of the node.
    pub(crate) is_static: bool,
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) containers: BTreeMap<String, Instance>,
    /// The status as last computed.
    pub(crate) status: Arc<k8s_openapi::api::core::v1::PodStatus>,
    /// Whether everything of the Pod on the node is freed.
    pub(crate) is_clean: bool,
    /// Whether the API has that status.
    pub(crate) is_reported: bool,
    pub(crate) probe_results: Arc<ProbeResults>,
}

impl Entry {
    /// Whether the Pod may still use anything.
    pub(crate) fn is_active(&self) -> bool {
        let over = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        !over || self.containers.values().any(|instance| instance.running.is_some())
    }

    /// Whether nothing of the Pod runs, and its volumes and namespaces are freed.
    pub(crate) fn is_freed(&self) -> bool {
        self.is_clean && !self.is_active()
    }

    /// Whether what the Pod requests counts in the cgroup of its class: it has been admitted, and has a cgroup or may get one.
    pub(crate) fn requests_count(&self) -> bool {
        self.is_active() && !self.is_clean
    }

    /// The entry of an admitted Pod with that allocation, whose worker has not published anything yet.
    pub(crate) fn taken(pod: &Arc<Pod>, allocation: &Allocation, is_static: bool) -> Self {
        let status = Arc::new(pod.status.clone().unwrap_or_default());
        Self {
            pod: resize::with_allocation(pod, allocation),
            is_static,
            sandbox: None,
            ip: None,
            containers: BTreeMap::new(),
            status,
            is_clean: false,
            is_reported: false,
            probe_results: Arc::default(),
        }
    }
}

/// The newest instance of a container.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// `None` when the runtime does not have the container any more.
    pub(crate) running: Option<(ContainerId, String)>,
    pub(crate) attempt: u32,
}

/// The running Pods by UID. Workers publish entries; all others read them, each as of one moment.
#[derive(Default)]
pub(crate) struct Directory {
    entries: RwLock<HashMap<String, Arc<Entry>>>,
    /// Pods whose resizes are deferred, by UID. Locked after `entries` where both are locked.
    deferred: Mutex<HashMap<String, Deferred>>,
    /// Whether all Pods that the API has of this node have been here.
    complete: AtomicBool,
    /// For the writer of the cgroups of the quality of service classes.
    requests_changed: Notify,
}

impl Directory {
    pub(crate) fn publish(&self, uid: &str, entry: Entry) {
        let entry = Arc::new(entry);
        let before = self.entries.write().insert(uid.to_owned(), entry.clone());
        let is_same = |before: &Entry| Arc::ptr_eq(&before.pod, &entry.pod) && before.requests_count() == entry.requests_count();
        if before.is_none_or(|before| !is_same(&before)) {
            self.requests_changed.notify_one();
        }
    }

    /// Waits until what the Pods request together may be another than when this last returned. For one caller.
    pub(crate) async fn requests_changed(&self) {
        self.requests_changed.notified().await;
    }

    /// Allocates the resources that a Pod requests if the node has room for them beside the other Pods. One Pod at a time; Pods
    /// that wait for room come in the order of their rank.
    pub(crate) fn allocate(&self, uid: &str, pod: &Arc<Pod>, node: Allocatable, now: Timestamp) -> Result<(), Pending> {
        let mut entries = self.entries.write();
        let mut deferred = self.deferred.lock();
        let over = |entry: &Entry| matches!(entry.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let pods: Vec<(&str, &Pod)> =
            entries.iter().filter(|(_, entry)| !over(entry)).map(|(uid, entry)| (uid.as_str(), &*entry.pod)).collect();
        let since = deferred.get(uid).map_or_else(|| resize::deferred_since(pod).unwrap_or(now), |before| before.rank.3);
        let allocated = entries.get(uid).map_or(pod, |entry| &entry.pod);
        let own = Deferred::new(pod, allocated, since);
        let weighed = resize::weigh_in_order(&own, &deferred.values().collect::<Vec<_>>(), &pods, node);
        match &weighed {
            Err(pending) if pending.is_deferred() => deferred.insert(uid.to_owned(), own),
            _ => deferred.remove(uid),
        };
        if weighed.is_ok()
            && let Some(entry) = entries.get_mut(uid)
        {
            Arc::make_mut(entry).pod = pod.clone();
            self.requests_changed.notify_one();
        }
        weighed
    }

    /// The Pod has the resources that it requests.
    pub(crate) fn content(&self, uid: &str) {
        self.deferred.lock().remove(uid);
    }

    /// Records that all Pods of the node are known.
    pub(crate) fn completed(&self) {
        self.complete.store(true, Ordering::Release);
        self.requests_changed.notify_one();
    }

    /// Whether something may be weighed beside the other Pods.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    pub(crate) fn withdraw(&self, uid: &str) {
        if self.entries.write().remove(uid).is_some() {
            self.requests_changed.notify_one();
        }
        self.content(uid);
    }

    /// The Pod of that name; of several (one is being deleted) the one that is not being deleted.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read();
        let fits = |entry: &&Arc<Entry>| {
            let names = PodName::of(&entry.pod);
            names.namespace == namespace && names.name == name
        };
        entries.values().filter(fits).min_by_key(|entry| entry.pod.metadata.deletion_timestamp.is_some()).cloned()
    }

    /// The Pod of that UID.
    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Entry>> {
        self.entries.read().get(uid).cloned()
    }

    /// Whether a Pod matches.
    pub(crate) fn any(&self, mut is_wanted: impl FnMut(&Entry) -> bool) -> bool {
        self.entries.read().values().any(|entry| is_wanted(entry))
    }

    /// A value of each Pod that matches.
    pub(crate) fn select<T>(&self, mut is_wanted: impl FnMut(&Entry) -> bool, value: impl Fn(&Arc<Entry>) -> T) -> Vec<T> {
        self.entries.read().values().filter(|entry| is_wanted(entry)).map(value).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }
}
