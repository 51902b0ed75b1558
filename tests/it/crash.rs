//! The crash story: the whole process is killed ten times during writes. Afterwards every acknowledged write is
//! present, containers run on, and `skiff down` leaves nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tests::run::run;
use tests::{Cluster, Kubectl, Net, eventually, eventually_within};

const KILLS: usize = 10;
/// Maximum number of writes of the load, if the story does not end before.
const WRITES_MAX: usize = 2_000;

#[test]
fn a_killed_cluster_loses_no_answered_write_and_restarts_no_container() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    let before = cluster.trace();
    cluster.start();
    cluster.load_samples();
    cluster.kubectl().ok("apply -f samples/quickstart/web.yaml -f samples/quickstart/tools.yaml");
    cluster.kubectl().ok("rollout status deployment/web --timeout=60s");
    cluster.kubectl().until_ready("tools");
    until_the_service_answers(&cluster.kubectl());
    let containers = containers(&cluster.kubectl());
    let shims = cluster.shims();
    assert_eq!((containers.len(), shims.len()), (3, 3), "{containers:?}");

    let load = Load::start(&cluster.kubectl());
    for kill in 0..KILLS {
        load.until_answered(1 + kill % 4);
        cluster.kill();
        assert_eq!(cluster.shims(), shims, "shims live on without skiff");
        cluster.start();
        let kubectl = cluster.kubectl();
        let answered = load.answered();
        let stored = names(&kubectl, "configmaps");
        let lost: Vec<_> = answered.iter().filter(|name| !stored.contains(*name)).collect();
        assert!(lost.is_empty(), "lost after kill {kill}: {lost:?}");
        until_the_service_answers(&kubectl);
        assert_eq!(self::containers(&kubectl), containers, "after kill {kill}");
    }
    load.stop();
    let events = cluster.kubectl().ok("get events");
    assert!(!events.contains("FailedCreatePodSandBox"), "{events}");

    assert_eq!(cluster.stop(), 0, "SIGTERM stops it cleanly:\n{}", cluster.log());
    assert_eq!(cluster.shims(), shims, "containers run on");
    cluster.start();
    until_the_service_answers(&cluster.kubectl());
    assert_eq!(self::containers(&cluster.kubectl()), containers, "the next start adopts them");
    assert_eq!(cluster.shims(), shims);
    assert!(cluster.trace().sees_a_cluster());

    assert_eq!(cluster.stop(), 0);
    cluster.down();
    assert_eq!(cluster.trace(), before);
    cluster.down();
    assert_eq!(cluster.trace(), before);
}

/// The contents of the run directory and the data directory after a power cut, if neither is on a tmpfs: records of
/// processes that no longer exist, half of them torn. Other processes have their pids now.
#[test]
fn what_an_earlier_boot_left_is_removed_unread() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    let before = cluster.trace();
    cluster.start();
    cluster.load_samples();
    cluster.kubectl().ok("apply -f samples/quickstart/web.yaml -f samples/quickstart/tools.yaml");
    cluster.kubectl().ok("rollout status deployment/web --timeout=60s");
    cluster.kubectl().until_ready("tools");
    // One Pod is ending when the power is cut.
    let ending = ["run", "ending", "--image=samples/tools:latest", "--image-pull-policy=Never", "--"];
    cluster.kubectl().run(&[&ending[..], &["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]].concat()).ok();
    cluster.kubectl().until_ready("ending");
    cluster.kubectl().ok("delete pod ending --wait=false --grace-period=300");
    let run_dir = std::fs::read_link(cluster.data_dir().join("run")).expect("a link");
    let bystander = Command::new("sleep").arg("1000").spawn().expect("sleeps");
    cluster.lose_power();
    forge_an_earlier_boot(&run_dir, bystander.id());
    forge_an_earlier_boot(cluster.data_dir(), bystander.id());

    cluster.start();
    until_the_service_answers(&cluster.kubectl());
    cluster.kubectl().until_ready("tools");
    eventually("the Pod that was ending is gone", || {
        let pods = cluster.kubectl().ok("get pods -o name");
        if pods.contains("pod/ending") { Err(pods) } else { Ok(()) }
    });
    let log = cluster.log();
    for complaint in ["not removed", "half made", "ending shim", "runc failed"] {
        assert!(!log.contains(complaint), "{complaint}:\n{log}");
    }
    for old in ["runc", "wasmtime", "network"] {
        assert!(!cluster.data_dir().join(old).exists(), "{old} is left");
    }
    let mut bystander = bystander;
    assert!(bystander.try_wait().expect("a child").is_none(), "a process that has an old pid is not signalled");
    bystander.kill().expect("it is ours");
    bystander.wait().expect("it ends");
    assert_eq!(cluster.stop(), 0);
    cluster.down();
    assert_eq!(cluster.trace(), before);
}

/// Writes what an earlier boot would have left into a directory: torn records, and whole ones whose pid belongs to
/// another process.
fn forge_an_earlier_boot(dir: &Path, pid: u32) {
    let record = format!("shim {pid} 1\ninit {pid} 1\nboot earlier\nstarted 1\nend\n");
    for (file, content) in [
        ("boot", "boot earlier\ndata-dir /"),
        ("runc/containers/torn/spec.json", ""),
        ("runc/containers/torn/pid", &record),
        ("runc/containers/empty/exit", "\0\0"),
        ("runc/runc/torn/state.json", "{\"id\":"),
        ("wasmtime/containers/torn/pid", &record[..20]),
        ("network/pods/torn.json", "{"),
        ("network/ns/torn/net", ""),
    ] {
        let path = dir.join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, content).expect("written");
    }
}

fn until_the_service_answers(kubectl: &Kubectl<'_>) {
    eventually_within(Duration::from_secs(20), "the Service answers", || {
        let ran = kubectl.run(&["exec", "tools", "--", "wget", "-qO-", "http://web/x"]);
        if ran.succeeded() { Ok(()) } else { Err(format!("{ran}\n{}", kubectl.run(&["get", "pods,endpointslices", "-o", "wide"]))) }
    });
}

/// Every container: its Pod, its id, the number of its restarts and its start time.
fn containers(kubectl: &Kubectl<'_>) -> BTreeSet<String> {
    let pods = kubectl.json("get pods");
    let pods = pods["items"].as_array().expect("a list");
    let of = |pod: &serde_json::Value| {
        let name = pod["metadata"]["name"].clone();
        let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        statuses
            .into_iter()
            .map(move |status| format!("{name} {} restarts {} {}", status["containerID"], status["restartCount"], status["state"]))
    };
    pods.iter().flat_map(of).collect()
}

fn names(kubectl: &Kubectl<'_>, kind: &str) -> BTreeSet<String> {
    let listed = kubectl.ok(&format!("get {kind} -o name"));
    listed.lines().filter_map(|line| line.split('/').nth(1)).map(str::to_owned).collect()
}

/// ConfigMaps created one after the other.
struct Load {
    answered: Arc<Mutex<BTreeSet<String>>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(kubectl: &Kubectl<'_>) -> Self {
        let writes: Vec<(String, Command)> = (0..WRITES_MAX)
            .map(|n| {
                let name = format!("write-{n}");
                let command = kubectl.command(&["create", "configmap", &name, "--from-literal=n=1"]);
                (name, command)
            })
            .collect();
        let (answered, stop) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<AtomicBool>::default());
        let (to, stopped) = (answered.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for (name, mut command) in writes {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if run(&mut command, None).succeeded() {
                    to.lock().expect("not poisoned").insert(name);
                }
            }
        });
        Self { answered, stop, thread }
    }

    fn answered(&self) -> BTreeSet<String> {
        self.answered.lock().expect("not poisoned").clone()
    }

    /// Waits until that many more writes were answered.
    fn until_answered(&self, more: usize) {
        let began = self.answered().len();
        eventually("writes are answered", || {
            let now = self.answered().len();
            if now >= began + more { Ok(()) } else { Err(format!("{now} after {began}")) }
        });
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load ends");
    }
}
