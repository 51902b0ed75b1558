//! Disks that run short: which Pods the node evicts, in which order, how long it gives them, and when it has evicted enough.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net};

use super::{DISK_MEGABYTES, POD};

/// How the messages about the evicted begin, by what their node runs short of.
const LOW_ON_STORAGE: &str = "The node was low on resource: ephemeral-storage. ";
const LOW_ON_INODES: &str = "The node was low on resource: inodes. ";

/// Pods with files on the disk. The important one has more than it requests, and the modest one less. The small one has little, but no
/// priority.
fn writers() -> Vec<Value> {
    let written = |megabytes: u32| format!("dd if=/dev/zero of=/f bs=1M count={megabytes}; touch /written");
    let mut patient = pod("patient", &format!("trap 'sleep 4; exit 5' TERM; {}; while true; do sleep 0.1; done", written(16)));
    patient["spec"]["priorityClassName"] = json!("important");
    patient["spec"]["terminationGracePeriodSeconds"] = json!(600);
    let mut modest = pod("modest", &format!("{}; exec sleep 1000000", written(8)));
    modest["spec"]["containers"][0]["resources"] = json!({"requests": {"ephemeral-storage": "24Mi"}});
    vec![patient, modest, pod("small", &format!("{}; exec sleep 1000000", written(2)))]
}

#[test]
fn a_disk_that_fills_slowly_gives_pods_time_to_end() {
    let flags = ["up", "--eviction-hard=nodefs.available<1Mi", "--eviction-soft=nodefs.available<35%"];
    let grace = ["--eviction-soft-grace-period=nodefs.available=3s", "--eviction-max-pod-grace-period=-1"];
    let transition = ["--eviction-pressure-transition-period=2s"];
    let mut cluster = Cluster::prepared_on_disk(Net::alone(), &[&flags[..], &grace, &transition].concat(), 2 * DISK_MEGABYTES);
    cluster.start();
    cluster.load(&["tools.tar"]);
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.ok("create priorityclass important --value=1000");
    apply(&kubectl, writers());
    for pod in ["patient", "modest", "small"] {
        until_written(&kubectl, pod);
    }
    cluster.disk().fill_to_percent(70);
    kubectl.ok("wait --for=condition=DiskPressure node --all --timeout=30s");
    // What the important Pod has would be enough, but the small one goes first.
    for pod in ["small", "patient"] {
        over_its_request(&kubectl.until_evicted(pod, LOW_ON_STORAGE));
    }
    let ended = kubectl.field("pod/patient", "/status/containerStatuses/0/state/terminated/exitCode");
    assert_eq!(ended, 5, "it ended by itself");
    // What it had is enough: nobody else leaves.
    kubectl.ok("wait --for=condition=DiskPressure=False node --all --timeout=60s");
    kubectl.until_ready("modest");
}

/// Pods with files: many small ones, a large one in a volume, and none yet.
fn owners() -> Vec<Value> {
    vec![
        with_volume(pod("hoarder", &format!("cd /v; touch $(seq 1 {HOARDED}) && touch /written; exec sleep 1000000"))),
        with_volume(pod("keeper", "dd if=/dev/zero of=/v/f bs=1M count=56 && touch /written; exec sleep 1000000")),
        pod("filler", "exec sleep 1000000"),
    ]
}

/// Writes files until its node has none left.
fn litterer() -> Value {
    with_volume(pod("litterer", "n=0; while true; do n=$((n+1)); touch /v/$n || sleep 1; done"))
}

/// A Pod that runs a script, and ends a second after it is asked to.
fn pod(name: &str, script: &str) -> Value {
    let main = json!({"name": "main", "image": "samples/tools:latest", "imagePullPolicy": "Never", "command": ["sh", "-c", script]});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [main]},
    })
}

/// With an `emptyDir` volume at `/v`.
fn with_volume(mut pod: Value) -> Value {
    pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    pod
}

fn apply(kubectl: &Kubectl<'_>, pods: Vec<Value>) {
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods}).to_string()).ok();
}

/// Files and directories that the disk may have, how many of them stay free, and how many more are freed once fewer are.
const INODES: u32 = 4_000;
const INODES_FREE: u32 = 800;
const INODES_RECLAIMED: u32 = 2_500;
/// Files of the hoarder. Without the litterer the threshold is not met, but what is free is less than the minimum reclaim. Without both it
/// is more, if the node itself has fewer files than these.
const HOARDED: u32 = 800;

#[test]
fn a_disk_without_inodes_costs_the_pod_that_took_them() {
    let thresholds = format!("--eviction-hard=nodefs.inodesFree<{INODES_FREE},imagefs.available<50%");
    let reclaim = format!("--eviction-minimum-reclaim=nodefs.inodesFree={INODES_RECLAIMED}");
    let flags = ["up", &thresholds, &reclaim, "--eviction-pressure-transition-period=5s"];
    let mut cluster = Cluster::prepared_on_disk(Net::alone(), &flags, 4 * DISK_MEGABYTES);
    cluster.disk().limit_inodes(INODES);
    cluster.mount_image_disk(DISK_MEGABYTES);
    cluster.start();
    cluster.load(&["web.wasm", "tools.tar"]);
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.apply(POD).ok();
    apply(&kubectl, owners());
    for pod in ["hoarder", "keeper"] {
        until_written(&kubectl, pod);
    }
    for pod in ["web", "filler"] {
        kubectl.until_ready(pod);
    }
    apply(&kubectl, vec![litterer()]);
    let available = |message: &str| -> u32 {
        let rest = message.split_once(&format!("Threshold quantity: {INODES_FREE}, available: ")).expect("an amount").1;
        rest.trim_end().trim_end_matches('.').replace('k', "000").parse().expect("a number")
    };
    let message = kubectl.until_evicted("litterer", LOW_ON_INODES);
    assert!(available(&message) < INODES_FREE, "{message}");
    // The threshold is not met any more, but the minimum reclaim is not free.
    let message = kubectl.until_evicted("hoarder", LOW_ON_INODES);
    assert!(available(&message) >= INODES_FREE, "{message}");
    a_full_disk_of_images_costs_the_pod_that_filled_it(&kubectl);

    kubectl.ok("wait --for=condition=DiskPressure=False node --all --timeout=60s");
    for pod in ["web", "keeper"] {
        kubectl.until_ready(pod);
    }
    kubectl.ok("create configmap after --from-literal=a=b");
}

/// Files of a container lie on the disk of the images, and those of an `emptyDir` volume do not: the keeper, which has more in all, stays.
fn a_full_disk_of_images_costs_the_pod_that_filled_it(kubectl: &Kubectl<'_>) {
    // The node may kill the command before it has ended.
    kubectl.run(&["exec", "filler", "--", "dd", "if=/dev/zero", "of=/f", "bs=1M", "count=40"]);
    let message = kubectl.until_evicted("filler", LOW_ON_STORAGE);
    assert!(message.contains("Threshold quantity: 32Mi, available: "), "{message}");
    over_its_request(&message);
}

#[track_caller]
fn over_its_request(message: &str) {
    assert!(message.ends_with("request is 0, has larger consumption of ephemeral-storage. "), "{message}");
}

/// Waits until a Pod of [`writers`] or [`owners`] has all its files.
fn until_written(kubectl: &Kubectl<'_>, pod: &str) {
    kubectl.until_ok(&format!("exec {pod} -- test -e /written"));
}
