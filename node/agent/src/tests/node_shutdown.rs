//! The machine announces that it shuts down.

use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use futures::StreamExt as _;
use node_logind::{InhibitorLock, LogindError, ShutdownWatch};
use runtimes_fake::Behaviour;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::kubelet_metrics::{scrape, value};
use super::*;
use crate::PriorityGracePeriods;
use crate::parts::Shutdowns;

/// A logind that announces what a test wants.
#[derive(Default)]
pub(super) struct FakeLogind {
    connection: Mutex<Option<mpsc::UnboundedSender<bool>>>,
    has_begun: Mutex<bool>,
    /// The other end of each lock.
    locks: Mutex<Vec<UnixStream>>,
    delays: Mutex<Vec<Duration>>,
    /// Connections that fail.
    faults: AtomicUsize,
}

#[async_trait]
impl Shutdowns for FakeLogind {
    async fn watch(&self, delay: Duration) -> Result<ShutdownWatch, LogindError> {
        self.delays.lock().push(delay);
        let is_fault = |left: usize| left.checked_sub(1);
        if self.faults.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_fault).is_ok() {
            let source = std::io::Error::other("no bus");
            return Err(LogindError::Setting { path: "/bus".into(), source });
        }
        let (sender, announced) = mpsc::unbounded_channel();
        *self.connection.lock() = Some(sender);
        let has_begun = *self.has_begun.lock();
        let lock = (!has_begun).then(|| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("set");
            self.locks.lock().push(ours);
            InhibitorLock::from(OwnedFd::from(theirs))
        });
        Ok(ShutdownWatch { has_begun, announcements: UnboundedReceiverStream::new(announced).boxed(), lock, delay_fault: None })
    }

    async fn remove_setting(&self) -> Result<(), LogindError> {
        Ok(())
    }
}

impl FakeLogind {
    /// The number of locks that delay a shutdown now.
    fn locks(&self) -> usize {
        let is_open = |mut lock: &UnixStream| matches!(lock.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.locks.lock().iter().filter(|lock| is_open(lock)).count()
    }

    fn announce(&self, begins: bool) {
        *self.has_begun.lock() = begins;
        self.connection.lock().as_ref().expect("a connection").send(begins).expect("somebody listens");
    }

    fn disconnect(&self) {
        *self.connection.lock() = None;
    }
}

/// A node whose Pods have that long, with its containers.
async fn node(periods: &str, script: Script) -> (Cluster, Running) {
    let mut cluster = Cluster::new(script).await;
    let periods = ShutdownGracePeriods::new(Duration::ZERO, Duration::ZERO, periods.parse().expect("periods"));
    cluster.config.shutdown_grace_periods = periods.expect("periods");
    let agent = cluster.start();
    cluster.node_ready().await;
    until("a lock", async || cluster.logind.locks() == 1).await;
    (cluster, agent)
}

fn with_priority(class: &str, grace: i64) -> Value {
    let mut spec = one("web:1");
    spec["terminationGracePeriodSeconds"] = json!(grace);
    if !class.is_empty() {
        spec["priorityClassName"] = json!(class);
    }
    spec
}

/// The node's condition `Ready` while it shuts down.
const SHUTTING_DOWN: [&str; 3] = ["False", "KubeletNotReady", "node is shutting down"];

fn finished_at(status: &Value) -> Option<&str> {
    status["containerStatuses"][0]["state"]["terminated"]["finishedAt"].as_str()
}

#[tokio::test]
async fn pods_end_in_groups_and_the_machine_waits_for_them() {
    let (cluster, _agent) = node("0=20s,2000000000=10s", Script::default().containers(|_| Behaviour::IgnoreTerm)).await;
    assert_eq!(*cluster.logind.delays.lock(), [Duration::from_secs(34)], "with time for the API server");
    cluster.create("web", with_priority("", 2)).await;
    cluster.create("critical", with_priority("system-node-critical", 1)).await;
    cluster.create("done", json!({"containers": [{"name": "c", "image": "missing:1"}], "restartPolicy": "Never"})).await;
    cluster.ready("web").await;
    cluster.ready("critical").await;
    cluster.logind.announce(true);
    cluster.event("web", "Killing: Stopping container c").await;
    let is_ending = async |name: &str| cluster.events(name).await.iter().any(|event| event.starts_with("Killing"));
    assert!(!is_ending("critical").await, "the others have not ended yet");
    until("no lock", async || cluster.logind.locks() == 0).await;
    // The API has the end of each Pod before the machine goes.
    for name in ["web", "critical", "done"] {
        let status = serde_json::to_value(cluster.pods().get(name).await.expect("the pod").status).expect("JSON");
        let found = [&status["phase"], &status["reason"], &status["message"]];
        assert_eq!(found, ["Failed", "Terminated", "Pod was terminated in response to imminent node shutdown."], "{status:#}");
        let target = status["conditions"].as_array().and_then(|all| all.iter().find(|one| one["type"] == "DisruptionTarget"));
        let target = target.expect("it was disrupted");
        assert_eq!([&target["status"], &target["reason"]], ["True", "TerminationByKubelet"]);
        assert_eq!(target["message"], status["message"]);
    }
    let end = async |name: &str| serde_json::to_value(cluster.pods().get(name).await.expect("the pod").status).expect("JSON");
    let (web, critical) = (end("web").await, end("critical").await);
    assert!(finished_at(&web) < finished_at(&critical), "{web:#} {critical:#}");
    assert_eq!(cluster.events("web").await.iter().filter(|event| event.starts_with("Evicted")).count(), 0);
    cluster.event(NODE, "NodeShutdown: Shutdown manager detected shutdown event").await;
    until("not ready", async || cluster.node_condition("Ready").await == SHUTTING_DOWN).await;
    // A Pod that comes now is turned away, however critical it is.
    cluster.create("late", with_priority("system-node-critical", 1)).await;
    let status = cluster.status("late", "Failed", |status| status["phase"] == "Failed").await;
    let found = [&status["reason"], &status["message"]];
    assert_eq!(found, ["NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down."]);
    let text = scrape(&cluster).await;
    assert_eq!(value(&text, "kubelet_admission_rejections_total{reason=\"NodeShutdown\"}"), Some(1), "{text}");
    let [start, end] = ["start", "end"].map(|which| value(&text, &format!("kubelet_graceful_shutdown_{which}_time_seconds")));
    assert!(start > Some(1_700_000_000) && end >= start, "{start:?} {end:?}");
}

#[tokio::test]
async fn a_pod_has_its_own_grace_period_or_that_of_its_group() {
    let (cluster, _agent) = node("0=3s,1000=30s", Script::default().containers(|_| Behaviour::IgnoreTerm)).await;
    // Both do not hear SIGTERM. One has a short grace period, the other is in a group that has a shorter one than the Pod.
    let mut quick = with_priority("", 1);
    quick["priorityClassName"] = json!("system-cluster-critical");
    cluster.create("quick", quick).await;
    cluster.create("slow", with_priority("", 600)).await;
    cluster.ready("quick").await;
    cluster.ready("slow").await;
    // It is being deleted, with all the time that it wants.
    cluster.create("deleted", with_priority("", 600)).await;
    cluster.ready("deleted").await;
    cluster.delete("deleted", 600).await;
    let began = std::time::Instant::now();
    cluster.logind.announce(true);
    until("no lock", async || cluster.logind.locks() == 0).await;
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    // The API has the end of those that were killed, too.
    assert!(cluster.pods().get_opt("deleted").await.expect("an answer").is_none());
    let status = serde_json::to_value(cluster.pods().get("slow").await.expect("the pod").status).expect("JSON");
    assert_eq!(
        [&status["reason"], &status["containerStatuses"][0]["state"]["terminated"]["exitCode"]],
        [&json!("Terminated"), &json!(137)]
    );
}

#[tokio::test]
async fn a_cancelled_shutdown_ends_no_further_pod_and_the_next_one_is_delayed_too() {
    let (cluster, _agent) = node("0=600s,2000000000=10s", Script::default().containers(|_| Behaviour::IgnoreTerm)).await;
    cluster.create("critical", with_priority("system-node-critical", 30)).await;
    cluster.create("stubborn", with_priority("", 600)).await;
    cluster.ready("critical").await;
    cluster.ready("stubborn").await;
    cluster.logind.announce(true);
    until("not ready", async || cluster.node_condition("Ready").await == SHUTTING_DOWN).await;
    cluster.event("stubborn", "Killing: Stopping container c").await;
    cluster.logind.announce(false);
    cluster.node_ready().await;
    cluster.event(NODE, "NodeShutdown: Shutdown manager detected shutdown cancellation").await;
    until("the next lock", async || cluster.logind.locks() == 1).await;
    assert_eq!(condition(&cluster.ready("critical").await, "DisruptionTarget"), "", "its turn never came");
    cluster.create("later", one("web:1")).await;
    cluster.ready("later").await;
}

#[tokio::test]
async fn a_connection_that_is_lost_is_made_again() {
    let (cluster, _agent) = node("0=20s", Script::default()).await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    cluster.logind.faults.store(2, Ordering::SeqCst);
    cluster.logind.disconnect();
    let attempts = async |number: usize| {
        assert_eq!(cluster.logind.locks(), 1, "the lock is kept until there is another");
        cluster.logind.delays.lock().len() == number
    };
    until("a third attempt", async || attempts(3).await).await;
    until("another lock", async || cluster.logind.delays.lock().len() == 4 && cluster.logind.locks() == 1).await;
    // The shutdown begins while nobody listens.
    *cluster.logind.has_begun.lock() = true;
    cluster.logind.disconnect();
    let status = cluster.status("web", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "Terminated");
    until("not ready", async || cluster.node_condition("Ready").await == SHUTTING_DOWN).await;
    // So does its end.
    *cluster.logind.has_begun.lock() = false;
    cluster.logind.disconnect();
    cluster.node_ready().await;
}

#[tokio::test]
async fn an_agent_that_is_killed_meanwhile_goes_on_where_it_was() {
    let (cluster, agent) = node("0=20s", Script::default().containers(|_| Behaviour::IgnoreTerm)).await;
    cluster.create("web", with_priority("", 600)).await;
    cluster.ready("web").await;
    cluster.logind.announce(true);
    cluster.event("web", "Killing: Stopping container c").await;
    let began = std::time::Instant::now();
    agent.kill().await;
    assert_eq!(cluster.logind.locks(), 0, "a lock ends with its process");
    let mut cluster = cluster;
    let periods = ShutdownGracePeriods::new(Duration::from_secs(1), Duration::ZERO, "".parse().expect("none")).expect("periods");
    cluster.config.shutdown_grace_periods = periods;
    let _agent = cluster.start();
    let status = cluster.status("web", "Failed", |status| status["phase"] == "Failed").await;
    assert_eq!(status["reason"], "Terminated");
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
}

/// Makes that many Pods and waits until they are ready.
async fn many(cluster: &Cluster, number: usize) {
    let names: Vec<String> = (0..number).map(|number| format!("web-{number}")).collect();
    for name in &names {
        cluster.create(name, with_priority("", 30)).await;
    }
    for name in &names {
        cluster.ready(name).await;
    }
}

#[tokio::test]
async fn many_pods_end_at_once_even_without_a_grace_period() {
    for (periods, behaviour) in [("0=60s", Behaviour::Run), ("0=0s,2000000000=5s", Behaviour::Run), ("0=0s", Behaviour::IgnoreTerm)] {
        let (cluster, agent) = node(periods, Script::default().containers(move |_| behaviour.clone())).await;
        many(&cluster, 100).await;
        cluster.create("critical", with_priority("system-node-critical", 3)).await;
        cluster.ready("critical").await;
        cluster.logind.announce(true);
        until("no lock", async || cluster.logind.locks() == 0).await;
        for pod in cluster.pods().list(&kube::api::ListParams::default()).await.expect("Pods").items {
            let status = pod.status.unwrap_or_default();
            let found = (status.phase.as_deref(), status.reason.as_deref());
            assert_eq!(found, (Some("Failed"), Some("Terminated")), "{:?} {periods}", pod.metadata.name);
        }
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_static_pod_ends_last_if_it_is_critical_and_starts_again_after_the_boot() {
    let mut cluster = Cluster::new(Script::default()).await;
    let dir = cluster.data.path().join("manifests");
    std::fs::create_dir(&dir).expect("made");
    let manifest = |name: &str, class: &str| {
        let spec = json!({"priorityClassName": class, "containers": [{"name": "c", "image": "web:1"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string();
        std::fs::write(dir.join(format!("{name}.json")), pod).expect("written");
    };
    manifest("first", "system-node-critical");
    cluster.config.pod_manifest_path = Some(dir.clone());
    cluster.config.shutdown_grace_periods =
        ShutdownGracePeriods::new(Duration::from_secs(20), Duration::from_secs(10), PriorityGracePeriods::default()).expect("periods");
    let agent = cluster.start();
    cluster.node_ready().await;
    let mirror = async |name: &str, wanted: &str| {
        let look = async || {
            let pod = cluster.pods().get_opt(name).await.expect("an answer");
            let status = serde_json::to_value(pod.and_then(|pod| pod.status)).expect("JSON");
            status["reason"] == wanted || (wanted == "Ready" && condition(&status, "Ready") == "True")
        };
        until(&format!("{name} is {wanted}"), look).await;
    };
    mirror("first-n1", "Ready").await;
    let priority = cluster.pods().get("first-n1").await.expect("the mirror").spec.and_then(|spec| spec.priority);
    assert_eq!(priority, Some(2_000_001_000));
    until("a lock", async || cluster.logind.locks() == 1).await;
    cluster.logind.announce(true);
    mirror("first-n1", "Terminated").await;
    // One that comes meanwhile is rejected.
    manifest("second", "");
    mirror("second-n1", "NodeShutdown").await;
    agent.stop().await;
    *cluster.logind.has_begun.lock() = false;
    let _agent = cluster.start();
    mirror("first-n1", "Ready").await;
    mirror("second-n1", "Ready").await;
}
