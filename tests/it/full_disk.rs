//! The story of a full disk: a writer gets a clear error, a reader notices nothing, no acknowledged write is lost, and
//! everything continues by itself when there is space again.

mod node;

use std::collections::BTreeSet;
use std::fs::File;

use tests::{Cluster, Kubectl, Net, Ran, eventually};

/// Space for the database, a few images and some load.
const DISK_MEGABYTES: u32 = 64;
/// A write of this size makes the database's write-ahead log grow. The log reuses the space that it has.
const WRITE_BYTES: usize = 256 << 10;
/// Far more writes than fit into that space.
const WRITES_MAX: usize = 200;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  runtimeClassName: wasmtime
  terminationGracePeriodSeconds: 1
  containers:
    - {name: web, image: "samples/web:latest", imagePullPolicy: Never}
"#;

#[test]
fn a_full_disk_is_reported_loses_nothing_and_is_recovered_from() {
    let mut cluster = Cluster::prepared_on_disk(Net::alone(), &["up"], DISK_MEGABYTES);
    let before = cluster.trace();
    cluster.start();
    cluster.skiff(&["image", "import", "samples/web:latest", &tests::cluster::sample("web.wasm")]).ok();
    // The default ServiceAccount is created some moments after the namespace.
    eventually("the Pod is taken", || {
        let ran = cluster.kubectl().apply(POD);
        if ran.succeeded() { Ok(()) } else { Err(ran.to_string()) }
    });
    cluster.kubectl().until_ready("web");
    let (pid, shims) = (cluster.pid(), cluster.shims());
    assert_eq!(shims.len(), 1);
    let mut load = Load::default();
    load.write(&cluster.kubectl()).ok();

    for round in 0..2 {
        cluster.disk().fill();
        let refused = load.until_rejected(&cluster.kubectl(), round);
        assert!(refused.contains("no space left on the disk"), "{refused}");
        assert!(refused.contains("(InternalError)"), "{refused}");
        load.is_all_there(&cluster.kubectl());
        assert_eq!(cluster.kubectl().ok("get --raw /livez"), "ok");
        assert_eq!(cluster.kubectl().ok("get pod web -o name").trim(), "pod/web");
        assert!(cluster.is_running() && cluster.pid() == pid, "{}", cluster.log());
        assert_eq!(cluster.shims(), shims, "what runs, runs on");

        cluster.disk().make_room();
        eventually("writes are taken again", || {
            let ran = load.write(&cluster.kubectl());
            if ran.succeeded() { Ok(()) } else { Err(ran.to_string()) }
        });
        load.is_all_there(&cluster.kubectl());
    }

    // An acknowledged write is on disk: it outlives the process.
    cluster.disk().fill();
    load.until_rejected(&cluster.kubectl(), 2);
    cluster.kill();
    cluster.disk().make_room();
    cluster.start();
    load.is_all_there(&cluster.kubectl());
    cluster.kubectl().until_ready("web");
    assert_eq!(cluster.shims(), shims);
    cluster.kubectl().ok("delete pod web --wait --timeout=60s");
    assert!(cluster.is_running(), "{}", cluster.log());

    assert_eq!(cluster.stop(), 0, "{}", cluster.log());
    cluster.down();
    assert_eq!(cluster.trace(), before);
}

/// Pods with files on the disk. The important one has more than it requests, and the modest one less.
const WRITERS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: patient}
spec:
  priorityClassName: important
  terminationGracePeriodSeconds: 600
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "trap 'sleep 4; exit 5' TERM; dd if=/dev/zero of=/f bs=1M count=16; touch /written; while true; do sleep 0.1; done"]
---
apiVersion: v1
kind: Pod
metadata: {name: modest}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      command: [sh, -c, "dd if=/dev/zero of=/f bs=1M count=8; touch /written; exec sleep 1000000"]
      resources: {requests: {ephemeral-storage: 24Mi}}
"#;

#[test]
fn a_disk_that_fills_slowly_gives_pods_time_to_end() {
    let flags = ["up", "--eviction-hard=nodefs.available<1Mi", "--eviction-soft=nodefs.available<35%"];
    let grace = ["--eviction-soft-grace-period=nodefs.available=3s", "--eviction-max-pod-grace-period=-1"];
    let transition = ["--eviction-pressure-transition-period=2s"];
    let mut cluster = Cluster::prepared_on_disk(Net::alone(), &[&flags[..], &grace, &transition].concat(), 2 * DISK_MEGABYTES);
    cluster.start();
    cluster.skiff(&["image", "import", "samples/tools:latest", &tests::cluster::sample("tools.tar")]).ok();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.ok("create priorityclass important --value=1000");
    kubectl.apply(WRITERS).ok();
    for pod in ["patient", "modest"] {
        eventually(&format!("{pod} has written"), || {
            let ran = kubectl.run(&["exec", pod, "--", "test", "-e", "/written"]);
            if ran.succeeded() { Ok(()) } else { Err(ran.to_string()) }
        });
    }
    cluster.disk().fill_to_percent(70);
    kubectl.ok("wait --for=condition=DiskPressure node --all --timeout=30s");
    kubectl.until("pod/patient", "/status/phase", "Failed");
    let status = kubectl.field("pod/patient", "/status");
    assert_eq!(status["reason"], "Evicted");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: ephemeral-storage. "), "{status:#}");
    assert!(message.ends_with("request is 0, has larger consumption of ephemeral-storage. "), "{status:#}");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 5, "it ended by itself");
    // What it had is enough: nobody else leaves.
    kubectl.ok("wait --for=condition=DiskPressure=False node --all --timeout=60s");
    kubectl.until_ready("modest");
}

/// Writes files until its node has none left.
const LITTERER: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: litterer}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: v, emptyDir: {}}]
  containers:
    - name: main
      image: samples/tools:latest
      imagePullPolicy: Never
      volumeMounts: [{name: v, mountPath: /v}]
      command: [sh, -c, "n=0; while true; do n=$((n+1)); touch /v/$n || sleep 1; done"]
"#;

#[test]
fn a_disk_without_inodes_costs_the_pod_that_took_them() {
    let flags = ["up", "--eviction-hard=nodefs.inodesFree<20%", "--eviction-pressure-transition-period=5s"];
    let mut cluster = Cluster::prepared_on_disk(Net::alone(), &flags, 4 * DISK_MEGABYTES);
    cluster.disk().limit_inodes(4_000);
    cluster.start();
    for sample in ["web.wasm", "tools.tar"] {
        let name = sample.split('.').next().expect("a name");
        cluster.skiff(&["image", "import", &format!("samples/{name}:latest"), &tests::cluster::sample(sample)]).ok();
    }
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.apply(POD).ok();
    kubectl.until_ready("web");
    kubectl.apply(LITTERER).ok();
    kubectl.until("pod/litterer", "/status/phase", "Failed");
    let status = kubectl.field("pod/litterer", "/status");
    assert_eq!(status["reason"], "Evicted");
    assert!(status["message"].as_str().unwrap_or_default().starts_with("The node was low on resource: inodes. "), "{status:#}");
    kubectl.ok("wait --for=condition=DiskPressure=False node --all --timeout=60s");
    kubectl.until_ready("web");
    kubectl.ok("create configmap after --from-literal=a=b");
}

#[test]
fn what_cannot_be_logged_ends_nothing() {
    let cluster = Cluster::prepared(Net::alone(), &["up"]);
    let full = File::options().write(true).open("/dev/full").expect("a device of Linux");
    let mut down = cluster.net.command(&tests::cluster::programs().join("skiff").display().to_string());
    down.args(["down", "--log=trace", "--data-dir"]).arg(cluster.data_dir()).stderr(full);
    assert!(down.status().expect("it starts").success());
}

/// ConfigMaps created one after the other, and the result of each.
#[derive(Default)]
struct Load {
    answered: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl Load {
    fn write(&mut self, kubectl: &Kubectl<'_>) -> Ran {
        let name = format!("write-{}", self.answered.len() + self.refused.len());
        let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{text: {}}}\n", "x".repeat(WRITE_BYTES));
        let ran = kubectl.with_input("create -f -", &map);
        let of_its_kind = if ran.succeeded() { &mut self.answered } else { &mut self.refused };
        of_its_kind.insert(name);
        ran
    }

    /// Writes until the disk is full; returns the error.
    #[track_caller]
    fn until_rejected(&mut self, kubectl: &Kubectl<'_>, round: usize) -> String {
        let refused = (0..WRITES_MAX).find_map(|_| Some(self.write(kubectl)).filter(|ran| !ran.succeeded()));
        refused.unwrap_or_else(|| panic!("round {round}: the disk never filled")).stderr
    }

    /// Acknowledged writes can be read, and rejected ones do not exist.
    #[track_caller]
    fn is_all_there(&self, kubectl: &Kubectl<'_>) {
        let listed = kubectl.ok("get configmaps -o name");
        let found: BTreeSet<String> =
            listed.lines().filter_map(|line| line.strip_prefix("configmap/write-")).map(|n| format!("write-{n}")).collect();
        assert_eq!(found, self.answered);
    }
}
