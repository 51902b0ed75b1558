//! Two control planes on one etcd. The one whose scheduler and controllers lead is killed in the middle of the work, and later its
//! successor is stopped for longer than its Leases last, and continues. Each time the other one goes on within the lease time, and no work
//! is done twice: a leader that was stopped writes nothing of what it was about to write. The nodes have no agent: the story starts and
//! ends Pods in the agents' place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::{Cluster, Etcd, Kubectl, Net, client, eventually_within};

use crate::etcd::servers_with;

/// After this time without a renewal, another server may take a Lease: upstream's 15 s. Then come at most one period of 2 s between
/// attempts, and what a debug build on a busy machine adds.
const SUCCESSION_LIMIT: Duration = Duration::from_secs(15 + 2 + 8);
/// How long the rest of the work may take.
const WORK_LIMIT: Duration = Duration::from_secs(120);
const NODES: usize = 20;
/// The Pods of each Job, and how many of them run at a time.
const COMPLETIONS: usize = 120;
const PARALLELISM: usize = 5;
const LEASES: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

#[test]
fn a_leader_that_is_killed_or_stopped_is_followed_by_another_and_nothing_is_done_twice() {
    let net = Net::alone();
    let etcd = Etcd::cluster(&net, 1);
    let mut servers = servers_with(&net, &Etcd::urls(&etcd), 2, &["--controllers=*,-node-lifecycle-controller"]);
    servers[1].kubectl().until_usable("default");
    (0..NODES).for_each(|number| servers[1].kubectl().add_node(&format!("n{number}"), &json!({}), "32", "128Gi"));
    let first = holders(&servers[1].kubectl());

    let pods = Pods::watched(&servers[1]);
    servers[1].kubectl().apply(&workload()).ok();
    let history = pods.until("the Job is in the middle of its work", History::default(), WORK_LIMIT, |history| history.ended("sums") >= 40);
    servers[0].kill();
    let history = goes_on(&pods, &servers[1].kubectl(), history);
    succeeded(&servers[1].kubectl(), &first);
    let history = pods.until("everything is done", history, WORK_LIMIT, |history| is_done(history, 300, &["sums"]));
    servers[1].kubectl().until("job/sums", "/status/succeeded", COMPLETIONS as u64);
    servers[1].kubectl().until("statefulset/ordered", "/status/readyReplicas", 3);
    nothing_twice(&history, 300, &["sums"]);

    servers[0].start();
    drop(pods);
    a_stopped_leader_comes_back(&servers, history);
}

/// The successor stops in the middle of another Job, and continues when the other server has taken over.
fn a_stopped_leader_comes_back(servers: &[Cluster], history: History) {
    let kubectl = servers[0].kubectl();
    let led = holders(&kubectl);
    let pods = Pods::watched(&servers[0]);
    kubectl.apply(&job("products").to_string()).ok();
    kubectl.ok("scale deployment web --replicas=400");
    let history = pods.until("the second Job is in the middle of its work", history, WORK_LIMIT, |history| history.ended("products") >= 40);
    let stopped = Stopped::new(servers[1].pid());
    let history = goes_on(&pods, &kubectl, history);
    let jobs = ["sums", "products"];
    let history = pods.until("everything is done", history, WORK_LIMIT, |history| is_done(history, 400, &jobs));
    succeeded(&kubectl, &led);
    drop(stopped);
    // The server that was stopped has lost its Leases, and reports that.
    eventually_within(SUCCESSION_LIMIT, "the old leader gives up", || {
        let log = servers[1].log();
        let lost = LEASES.iter().filter(|lease| log.contains(&format!("no longer leading lease=\"{lease}\""))).count();
        if lost == LEASES.len() { Ok(()) } else { Err(log) }
    });
    servers[1].kubectl().ok("scale deployment web --replicas=350");
    let history = pods.until("the Deployment shrinks", history, WORK_LIMIT, |history| history.alive("web") == 350);
    nothing_twice(&history, 400, &jobs);
    servers[1].kubectl().until("job/products", "/status/succeeded", COMPLETIONS as u64);
}

/// Waits until more Pods are created and bound than there were when the leader was gone.
fn goes_on(pods: &Pods, kubectl: &Kubectl<'_>, history: History) -> History {
    let gone = Instant::now();
    let count = |selector: &str| kubectl.ok(&format!("get pods -o name {selector}")).lines().count();
    let (created, bound) = (count(""), count("--field-selector=spec.nodeName!="));
    let history = pods.until("more Pods are created", history, SUCCESSION_LIMIT, |history| history.pods.len() > created);
    let history = pods.until("more Pods are bound", history, SUCCESSION_LIMIT, |history| history.bound() > bound);
    eprintln!("the work goes on {:?} after the leader", gone.elapsed());
    history
}

/// A process that is stopped until this value is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: u32) -> Self {
        let pid = Pid::from_raw(pid.try_into().expect("a process id"));
        kill(pid, Signal::SIGSTOP).expect("the server stops");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).expect("the server goes on");
    }
}

/// The template of an app's Pods.
fn template(app: &str, restart_policy: &str) -> Value {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m"}}});
    json!({"metadata": {"labels": {"app": app}}, "spec": {"restartPolicy": restart_policy, "containers": [container]}})
}

/// An Indexed Job, which takes a while: few of its Pods run at a time.
fn job(app: &str) -> Value {
    let spec =
        json!({"completions": COMPLETIONS, "parallelism": PARALLELISM, "completionMode": "Indexed", "template": template(app, "Never")});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": app}, "spec": spec})
}

/// A Deployment, an Indexed Job and a StatefulSet.
fn workload() -> String {
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let objects = [
        job("sums"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 300, "selector": selector("web"), "template": template("web", "Always")}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "ordered"},
            "spec": {"replicas": 3, "serviceName": "ordered", "selector": selector("ordered"), "template": template("ordered", "Always")}}),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// Who holds the Leases.
fn holders(kubectl: &Kubectl<'_>) -> [Value; 2] {
    LEASES.map(|lease| kubectl.json(&format!("get lease {lease} -n kube-system"))["spec"]["holderIdentity"].clone())
}

/// Both Leases have other holders.
#[track_caller]
fn succeeded(kubectl: &Kubectl<'_>, before: &[Value; 2]) {
    let now = holders(kubectl);
    assert!(now.iter().zip(before).all(|(now, before)| now != before && *now != ""), "{before:?}, then {now:?}");
}

/// What was observed of a Pod.
#[derive(Default)]
struct History {
    /// By UID.
    pods: BTreeMap<String, PodHistory>,
}

#[derive(Default)]
struct PodHistory {
    app: String,
    name: String,
    index: Option<String>,
    /// Every node that the Pod was bound to.
    nodes: BTreeSet<String>,
    is_ready: bool,
    succeeded: bool,
    /// Whether the Pod is being deleted, or is gone.
    is_deleted: bool,
}

impl History {
    fn of(&self, app: &str) -> impl Iterator<Item = &PodHistory> {
        self.pods.values().filter(move |pod| pod.app == app)
    }

    /// How many Pods of the app there are that nobody deletes.
    fn alive(&self, app: &str) -> usize {
        self.of(app).filter(|pod| !pod.is_deleted).count()
    }

    /// How many Pods of the app have succeeded.
    fn ended(&self, app: &str) -> usize {
        self.of(app).filter(|pod| pod.succeeded).count()
    }

    /// How many Pods have a node.
    fn bound(&self) -> usize {
        self.pods.values().filter(|pod| !pod.nodes.is_empty()).count()
    }

    fn add(&mut self, pod: &Pod, is_gone: bool) {
        let value = serde_json::to_value(pod).expect("a Pod is JSON");
        let of = self.pods.entry(pod.uid().unwrap_or_default()).or_default();
        of.app = pod.labels().get("app").cloned().unwrap_or_default();
        of.name = pod.name_any();
        of.index = pod.labels().get("batch.kubernetes.io/job-completion-index").cloned();
        of.nodes.extend(value["spec"]["nodeName"].as_str().map(str::to_owned));
        of.is_ready = tests::kubectl::is_ready(&value);
        of.succeeded |= value["status"]["phase"] == "Succeeded";
        of.is_deleted |= is_gone || pod.metadata.deletion_timestamp.is_some();
    }
}

fn is_done(history: &History, replicas: usize, jobs: &[&str]) -> bool {
    let ready = |app: &str| history.of(app).filter(|pod| pod.is_ready && !pod.is_deleted).count();
    ready("web") == replicas && ready("ordered") == 3 && jobs.iter().all(|job| history.ended(job) == COMPLETIONS)
}

/// Every Pod had one node at most, and nobody created a Pod more than was wanted.
#[track_caller]
fn nothing_twice(history: &History, replicas: usize, jobs: &[&str]) {
    let elsewhere: Vec<_> = history.pods.values().filter(|pod| pod.nodes.len() > 1).map(|pod| (&pod.name, &pod.nodes)).collect();
    assert!(elsewhere.is_empty(), "on two nodes: {elsewhere:?}");
    assert_eq!((history.of("web").count(), history.of("ordered").count()), (replicas, 3), "Pods that were created");
    for job in jobs {
        let indexes: BTreeSet<_> = history.of(job).map(|pod| &pod.index).collect();
        assert_eq!(indexes.len(), COMPLETIONS, "indexes of {job}");
        assert_eq!(history.of(job).count(), COMPLETIONS, "Pods of {job}");
    }
    let names: BTreeSet<_> = history.of("ordered").map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["ordered-0", "ordered-1", "ordered-2"]));
}

/// The Pods as a server reports them. A task in the agents' place makes bound Pods ready, ends those of the Job, and removes those that are
/// deleted.
struct Pods(Receiver<(Pod, bool)>);

impl Pods {
    fn watched(server: &Cluster) -> Self {
        let (sender, changes) = channel();
        client::start(server, async move |client: Client| {
            let events = watcher::watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
            let changes = events.filter_map(async |event| match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => Some((pod, false)),
                Ok(Event::Delete(pod)) => Some((pod, true)),
                // The watch begins again by itself.
                Ok(Event::Init | Event::InitDone) | Err(_) => None,
            });
            let mut changes = std::pin::pin!(changes);
            while let Some((pod, is_gone)) = changes.next().await {
                if sender.send((pod.clone(), is_gone)).is_err() {
                    return;
                }
                if !is_gone {
                    act_for_the_agent(&client, &pod).await;
                }
            }
        });
        Self(changes)
    }

    /// Adds changes to the history until it fulfills the condition.
    #[track_caller]
    fn until(&self, what: &str, mut history: History, limit: Duration, is_reached: impl Fn(&History) -> bool) -> History {
        let deadline = Instant::now() + limit;
        while !is_reached(&history) {
            match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((pod, is_gone)) => history.add(&pod, is_gone),
                Err(RecvTimeoutError::Timeout) => {
                    let count = |app: &str| (history.of(app).count(), history.bound(), history.ended(app));
                    panic!(
                        "not within {limit:?}: {what}; Pods, all bound ones, ended ones: {:?}",
                        ["web", "sums", "products", "ordered"].map(count)
                    );
                }
                Err(RecvTimeoutError::Disconnected) => panic!("the watch ended before: {what}"),
            }
        }
        history
    }
}

/// What the agent of the Pod's node would do.
async fn act_for_the_agent(client: &Client, pod: &Pod) {
    let (pods, name) = (Api::<Pod>::default_namespaced(client.clone()), pod.name_any());
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let result = if pod.metadata.deletion_timestamp.is_some() {
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await.map(drop)
    } else if is_bound && phase == "Pending" {
        let of_job = pod.spec.as_ref().is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"));
        let phase = if of_job { "Succeeded" } else { "Running" };
        let is_ready = if phase == "Running" { "True" } else { "False" };
        let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": is_ready}]}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.map(drop)
    } else {
        Ok(())
    };
    match result {
        // The Pod is gone, or its next event comes.
        Ok(()) => {}
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
        Err(error) => panic!("{name}: {error}"),
    }
}
