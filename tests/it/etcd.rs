//! Control planes on etcd: a single one in normal use, and three that share one etcd while parts are killed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::run::run;
use tests::{Cluster, Etcd, Kubectl, Net, eventually, eventually_within};

/// That many control planes in one namespace on one etcd, all with the keys of the first.
pub fn servers(net: &Net, urls: &str, count: usize) -> Vec<Cluster> {
    servers_with(net, urls, count, &[])
}

/// [`servers`] with further flags.
pub fn servers_with(net: &Net, urls: &str, count: usize, flags: &[&str]) -> Vec<Cluster> {
    let mut servers: Vec<Cluster> = Vec::new();
    for number in 0..count {
        let (port, etcd) = (format!("--secure-port={}", 6443 + number), format!("--etcd-servers={urls}"));
        let mut server = Cluster::prepared(net.shared(), &[&["server", port.as_str(), etcd.as_str()], flags].concat());
        if let Some(first) = servers.first() {
            copy_keys(first, &server);
        }
        server.start();
        servers.push(server);
    }
    servers
}

/// Gives a server the keys of another, so that both belong to one cluster.
fn copy_keys(from: &Cluster, to: &Cluster) {
    run(std::process::Command::new("cp").arg("-a").arg(from.data_dir().join("pki")).arg(to.data_dir().join("pki")), None).ok();
}

#[test]
fn a_control_plane_on_etcd_is_used_like_any_other() {
    let net = Net::alone();
    let mut etcd = Etcd::cluster(&net, 1);
    let mut server = servers(&net, &Etcd::urls(&etcd), 1).pop().expect("one");
    let kubectl = server.kubectl();
    kubectl.ok("create namespace one");
    kubectl.ok("create configmap settings --from-literal=a=1 -n one");
    kubectl.ok("create deployment web --image=none -n one --replicas=2");
    // Scheduler and controllers lead and work.
    eventually("the Deployment has Pods", || {
        let pods = kubectl.ok("get pods -n one -o name");
        if pods.lines().count() == 2 { Ok(()) } else { Err(format!("{pods}\n{}", kubectl.ok("get leases -A"))) }
    });
    eventually("the scheduler has looked at them", || {
        let events = kubectl.ok("get events -n one");
        if events.contains("FailedScheduling") { Ok(()) } else { Err(events) }
    });
    kubectl.ok("patch configmap settings -n one -p {\"data\":{\"b\":\"2\"}}");
    assert!(kubectl.ok("get --raw /readyz/etcd").contains("ok"));
    assert!(!server.data_dir().join("state.db").exists(), "nothing is kept beside etcd");

    server.kill();
    etcd[0].kill();
    etcd[0].start();
    server.start();
    let kubectl = server.kubectl();
    assert_eq!(kubectl.json("get configmap settings -n one")["data"], serde_json::json!({"a": "1", "b": "2"}));
    kubectl.ok("delete namespace one --timeout=30s");
    assert!(kubectl.fails("get configmap settings -n one").contains("NotFound"));

    let stranger = Cluster::prepared(net.shared(), &["server", "--secure-port=7443", &format!("--etcd-servers={}", Etcd::urls(&etcd))]);
    let refused = stranger.skiff(&["server", "--secure-port=7443", &format!("--etcd-servers={}", Etcd::urls(&etcd))]).fails();
    assert!(refused.contains("another cluster") && refused.contains("pki"), "{refused}");
}

#[test]
fn three_servers_on_three_members_lose_nothing_when_one_of_each_is_killed() {
    let net = Net::alone();
    let mut etcd = Etcd::cluster(&net, 3);
    let mut servers = servers(&net, &Etcd::urls(&etcd), 3);
    // What one server acknowledged, the others return.
    for n in 0..6 {
        let (writer, reader) = (servers[n % 3].kubectl(), servers[(n + 1) % 3].kubectl());
        writer.ok(&format!("create configmap seen-{n} --from-literal=n={n}"));
        reader.ok(&format!("get configmap seen-{n}"));
        reader.ok(&format!("delete configmap seen-{n}"));
        assert!(writer.fails(&format!("get configmap seen-{n}")).contains("NotFound"));
    }
    let leader = |kubectl: &Kubectl<'_>| kubectl.json("get lease kube-controller-manager -n kube-system")["spec"]["holderIdentity"].clone();
    let led = leader(&servers[1].kubectl());

    let load = Load::start(&servers);
    load.until_answered(9);
    servers[0].kill();
    load.until_answered(6);
    etcd[0].kill();
    load.until_answered(6);
    let answered = load.stop();
    for server in &servers[1..] {
        let stored = names(&server.kubectl());
        let lost: Vec<_> = answered.iter().filter(|name| !stored.contains(*name)).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
    }
    // The controllers of the first server led. Now those of another server lead.
    let kubectl = servers[1].kubectl();
    eventually_within(Duration::from_secs(40), "another server's controllers lead", || {
        let now = leader(&kubectl);
        if now != led { Ok(()) } else { Err(now.to_string()) }
    });
    kubectl.ok("create namespace after");
    // The controllers work.
    kubectl.until_usable("after");
    etcd[0].start();
    servers[0].start();
    let stored = names(&servers[0].kubectl());
    assert!(answered.iter().all(|name| stored.contains(name)));
}

fn names(kubectl: &Kubectl<'_>) -> BTreeSet<String> {
    kubectl.ok("get configmaps -o name").lines().filter_map(|line| line.split('/').nth(1)).map(str::to_owned).collect()
}

/// ConfigMaps, created by one client for each server.
struct Load {
    answered: Arc<Mutex<BTreeSet<String>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(servers: &[Cluster]) -> Self {
        let (answered, stop) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<AtomicBool>::default());
        let client = |(number, server): (usize, &Cluster)| {
            let (answered, stop, net) = (Arc::clone(&answered), Arc::clone(&stop), server.net.shared());
            let kubeconfig = server.data_dir().join("admin.kubeconfig");
            std::thread::spawn(move || {
                let kubectl = Kubectl::new(&net, kubeconfig);
                for n in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let name = format!("write-{number}-{n}");
                    if kubectl.run(&["create", "configmap", &name, "--from-literal=n=1"]).succeeded() {
                        answered.lock().expect("not poisoned").insert(name);
                    }
                }
            })
        };
        let threads = servers.iter().enumerate().map(client).collect();
        Self { answered, stop, threads }
    }

    /// Waits until that many more writes were answered.
    fn until_answered(&self, more: usize) {
        let count = || self.answered.lock().expect("not poisoned").len();
        let began = count();
        eventually("writes are answered", || if count() >= began + more { Ok(()) } else { Err(format!("{} after {began}", count())) });
    }

    fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("the client ends"));
        self.answered.lock().expect("not poisoned").clone()
    }
}
