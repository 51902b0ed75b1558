//! Machines with a simulated kubelet each: it registers its Node, renews its Lease, runs the Pods that are bound to it for as
//! long as chance says, reports their status and ends deleted Pods within their grace period. A machine may lose its power or
//! its network.

pub mod pod;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use api_client::informer::{Batch, Informer, ObjectKey};
use api_client::lease;
use api_clock::rand::Rng as _;
use api_clock::rand::rngs::StdRng;
use api_model::request::UserInfo;
use api_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::control::Cluster;
use crate::ledger::Ledger;
use crate::net::Process;

/// How long a Node's Lease lasts, upstream's; it is renewed every quarter of it.
const LEASE_DURATION: Duration = Duration::from_secs(40);
/// The kubelet's `nodeStatusUpdateFrequency`.
const STATUS_EVERY: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Sends a worker the present state of its Pod; `None` when it is gone.
type PodSender = watch::Sender<Option<Arc<Pod>>>;

/// A machine.
pub struct Machine {
    pub name: String,
    cluster: Cluster,
    ledger: Arc<Ledger>,
    rng: Arc<Mutex<StdRng>>,
    /// Thousandths of a core.
    cpu: Arc<AtomicI64>,
    /// How many times slower than others it is.
    slowness: f64,
    boots: u32,
    running: Option<(Arc<Process>, CancellationToken)>,
}

impl Machine {
    pub fn new(cluster: &Cluster, ledger: &Arc<Ledger>, number: u32, cpu: i64, is_slow: bool) -> Self {
        let name = format!("n{number}");
        Self {
            rng: Arc::new(Mutex::new(crate::entropy::stream(&name))),
            name,
            cluster: cluster.clone(),
            ledger: Arc::clone(ledger),
            cpu: Arc::new(AtomicI64::new(cpu)),
            slowness: if is_slow { 8.0 } else { 1.0 },
            boots: 0,
            running: None,
        }
    }

    pub fn is_on(&self) -> bool {
        self.running.is_some()
    }

    /// Switches the machine on.
    pub fn boot(&mut self) {
        self.boots += 1;
        let process = Process::new(format!("{}.{}", self.name, self.boots));
        self.note(&format!("! {} boots", process.name));
        let cancel = CancellationToken::new();
        let user = UserInfo::new(format!("system:node:{}", self.name), &["system:nodes", "system:authenticated"]);
        let kubelet = Kubelet {
            node: self.name.clone(),
            client: self.cluster.client(&process, user),
            ledger: Arc::clone(&self.ledger),
            rng: Arc::clone(&self.rng),
            cpu: Arc::clone(&self.cpu),
            slowness: self.slowness,
            cancel: cancel.clone(),
        };
        let stop = cancel.clone();
        tokio::spawn(async move { stop.run_until_cancelled(kubelet.run()).await });
        self.running = Some((process, cancel));
    }

    /// Switches the machine off. What ran on it has ended.
    pub fn power_off(&mut self) {
        let Some((process, cancel)) = self.running.take() else { return };
        process.kill();
        cancel.cancel();
        self.ledger.end_all(&self.name);
        self.note(&format!("! {} loses its power", self.name));
    }

    /// Cuts the machine off the network, or connects it again. What runs on it goes on.
    pub fn cut(&self, is_cut: bool) {
        let Some((process, _)) = &self.running else { return };
        process.cut(is_cut);
        self.note(&format!("! {} is {}", self.name, if is_cut { "cut off" } else { "connected" }));
    }

    /// Gives the machine more CPU, which its kubelet reports.
    pub fn grow(&self, cpu: i64) {
        self.cpu.fetch_add(cpu, Ordering::SeqCst);
    }

    fn note(&self, what: &str) {
        self.cluster.history.incident(what, |incidents, now| incidents.node(now));
    }
}

/// The kubelet of a machine, from one boot to the next.
#[derive(Clone)]
struct Kubelet {
    node: String,
    client: Client,
    ledger: Arc<Ledger>,
    rng: Arc<Mutex<StdRng>>,
    cpu: Arc<AtomicI64>,
    slowness: f64,
    cancel: CancellationToken,
}

impl Kubelet {
    /// Thousandths of a core.
    fn cpu(&self) -> i64 {
        self.cpu.load(Ordering::SeqCst)
    }

    async fn run(self) {
        self.register().await;
        let (client, node, cancel) = (self.client.clone(), self.node.clone(), self.cancel.clone());
        tokio::spawn(async move { lease::heartbeat(client, &node, LEASE_DURATION, cancel).await });
        let reporting = self.clone();
        tokio::spawn(async move { reporting.cancel.clone().run_until_cancelled(reporting.report_node()).await });
        self.follow_pods().await;
    }

    async fn register(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": self.node, "labels": {"kubernetes.io/hostname": self.node}},
            "spec": {},
        }))
        .expect("a Node");
        loop {
            match nodes.create(&PostParams::default(), &node).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.is_already_exists() => break,
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
        while self.write_node_status(&nodes).await.is_err() {
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Writes the Node's status whenever it is not the kubelet's any more.
    async fn report_node(self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        loop {
            tokio::time::sleep(STATUS_EVERY).await;
            let Ok(Some(node)) = nodes.get_opt(&self.node).await else { continue };
            let status = node.status.unwrap_or_default();
            let is_ready = status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            let cpu = Quantity(format!("{}m", self.cpu()));
            if !is_ready || status.allocatable.is_none_or(|allocatable| allocatable.get("cpu") != Some(&cpu)) {
                let _ = self.write_node_status(&nodes).await;
            }
        }
    }

    async fn write_node_status(&self, nodes: &Api<Node>) -> kube::Result<Node> {
        let now = api_clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let kinds = [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")];
        let conditions: Vec<Value> = kinds
            .iter()
            .map(|(kind, status)| {
                json!({"type": kind, "status": status, "reason": "Simulated", "lastHeartbeatTime": now, "lastTransitionTime": now})
            })
            .collect();
        let room = json!({"cpu": format!("{}m", self.cpu()), "memory": "64Gi", "pods": "110"});
        let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": format!("10.0.0.{}", self.node.trim_start_matches('n'))}]}});
        nodes.patch_status(&self.node, &PatchParams::default(), &Patch::Strategic(&status)).await
    }

    /// One worker for each Pod, by UID.
    async fn follow_pods(self) {
        let tasks = Tasks::new(self.cancel.clone());
        let fields = format!("spec.nodeName={}", self.node);
        let informer = Informer::<Pod>::start_untrimmed(Api::all(self.client.clone()), "pods", &fields, &tasks);
        let mut changes = informer.changes();
        let mut workers: BTreeMap<ObjectKey, (Option<String>, PodSender)> = BTreeMap::new();
        loop {
            let Batch { keys, .. } = changes.next().await;
            for key in keys {
                let pod = informer.get(&key);
                let uid = pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
                match workers.get(&key) {
                    Some((of, worker)) if pod.is_some() && *of == uid => {
                        worker.send_replace(pod);
                        continue;
                    }
                    Some((_, worker)) => drop(worker.send_replace(None)),
                    None => {}
                }
                workers.remove(&key);
                let Some(pod) = pod else { continue };
                let (sender, receiver) = watch::channel(Some(Arc::clone(&pod)));
                workers.insert(key, (uid, sender));
                let (worker, cancel) = (pod::Worker::new(self.clone(), &pod, receiver), self.cancel.clone());
                tokio::spawn(async move { cancel.run_until_cancelled(worker.run()).await });
            }
        }
    }

    /// A time up to `max`, longer on a slow machine.
    fn up_to(&self, max: Duration) -> Duration {
        max.mul_f64(self.chance() * self.slowness)
    }

    /// A number from zero to one.
    fn chance(&self) -> f64 {
        self.rng.lock().random()
    }
}
