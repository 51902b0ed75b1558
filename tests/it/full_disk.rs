//! The story of a full disk: a writer gets a clear error, a reader notices nothing, no acknowledged write is lost, and
//! everything continues by itself when there is space again.

mod evictions;
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
    cluster.load(&["web.wasm"]);
    cluster.kubectl().until_usable("default");
    cluster.kubectl().apply(POD).ok();
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
