//! The disk: a Pod writes more than its limits, hides what it writes, and fills the whole disk. Only the Pod itself is
//! evicted. The node of this story has its own small disk, which also holds the database.

use serde_json::{Value, json};
use tests::{Cluster, Net, eventually};

use super::{NAMESPACES, NEIGHBOUR, World};

const DISK_MEGABYTES: u32 = 600;
const FLAGS: [&str; 3] = ["up", "--eviction-hard=nodefs.available<150Mi", "--eviction-pressure-transition-period=15s"];

/// Writes more than 4 MiB.
const TOO_MUCH: &str = "dd if=/dev/zero bs=1M count=8";

#[test]
fn a_hostile_tenant_fills_no_disk_but_its_own() {
    let files = tempfile::tempdir().expect("a directory");
    let tokens = files.path().join("tokens.csv");
    std::fs::write(&tokens, "mallorys-token,mallory,1\n").expect("writes");
    let token_flag = format!("--token-auth-file={}", tokens.display());
    let flags: Vec<&str> = FLAGS.into_iter().chain([token_flag.as_str()]).collect();
    let mut cluster = Cluster::prepared_on_disk(Net::alone(), &flags, DISK_MEGABYTES);
    cluster.start();
    cluster.load_samples();
    let world =
        World { cluster: &cluster, admin: cluster.kubectl(), mallory: cluster.kubectl_as("mallory", &json!({"token": "mallorys-token"})) };
    world.admin.apply(NAMESPACES).ok();
    for namespace in ["tenant", "ports", "neighbour"] {
        world.admin.until_usable(namespace);
    }
    world.admin.apply(NEIGHBOUR).ok();
    world.until_ready("neighbour", "good");

    limits_hold_wherever_it_writes(&world);
    a_full_disk_is_the_fault_of_who_fills_it(&world);
    assert_eq!(world.admin.ok("get pod good -n neighbour -o jsonpath={.status.containerStatuses[0].restartCount}"), "0");
    assert!(cluster.is_running() && !cluster.log().contains("panicked"), "{}", cluster.log());
}

/// A Pod of mallory that runs a script and then sleeps.
fn pod(name: &str, script: &str, limit: Option<&str>, volume: Option<&Value>) -> String {
    let command = format!("trap '' TERM; cd /; {script}; sleep 100000");
    let resources = limit.map(|limit| json!({"limits": {"ephemeral-storage": limit}})).unwrap_or_default();
    let container = json!({
        "name": "main", "image": "samples/tools:latest", "imagePullPolicy": "Never", "command": ["sh", "-c", command],
        "resources": resources, "volumeMounts": volume.map(|_| json!([{"name": "data", "mountPath": "/data"}])),
    });
    let volumes = volume.map(|source| json!([{"name": "data", "emptyDir": source}]));
    let spec = json!({"terminationGracePeriodSeconds": 100, "containers": [container], "volumes": volumes});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "tenant"}, "spec": spec}).to_string()
}

/// Waits until a Pod of mallory was evicted, with a message that begins like that; returns the message.
#[track_caller]
fn until_evicted(world: &World<'_>, name: &str, begin: &str) -> String {
    world.cluster.kubectl().in_namespace("tenant").until_evicted(name, begin)
}

fn limits_hold_wherever_it_writes(world: &World<'_>) {
    let (container, volume) = (
        "Container main exceeded its local ephemeral storage limit \"4Mi\". ",
        "Usage of EmptyDir volume \"data\" exceeds the limit \"4Mi\". ",
    );
    let whole = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ";
    let hidden = "Local ephemeral storage cannot be measured against the limit: directories are nested more than 128 deep. ";
    let (limited, free) = (json!({"sizeLimit": "4Mi"}), json!({}));
    let nested = "cd /data; for i in $(seq 200); do mkdir d; cd d; done";
    let nameless = |path: &str| format!("exec 3> {path}; rm {path}; {TOO_MUCH} >&3");
    let all = [
        ("volume", format!("{TOO_MUCH} of=/data/file"), None, Some(&limited), volume),
        // For a Pod with one container, the Pod's limit is the container's. Upstream checks the Pod first.
        ("layer", format!("{TOO_MUCH} of=/file"), Some("4Mi"), None, whole),
        ("log", "busybox yes 0123456789012345678901234567890123456789 | head -c 6000000".to_owned(), Some("4Mi"), None, whole),
        ("message", format!("{TOO_MUCH} of=/dev/termination-log"), Some("4Mi"), None, whole),
        ("volume-of-a-pod", format!("{TOO_MUCH} of=/data/file"), Some("4Mi"), Some(&free), whole),
        ("nameless-in-volume", nameless("/data/file"), None, Some(&limited), volume),
        ("nameless-in-layer", nameless("/file"), Some("4Mi"), None, whole),
        ("nested", nested.to_owned(), None, Some(&limited), hidden),
    ];
    // Files of others do not count, and holes in a file take no space.
    let innocent = "busybox ln -s / /data/root; busybox ln -s /bin /data/bin; dd if=/dev/zero of=/data/sparse bs=1 count=1 seek=1G";
    world.mallory.with_input("create -f -", &pod("innocent", innocent, Some("4Mi"), Some(&limited))).ok();
    for (name, script, limit, source, _) in &all {
        world.mallory.with_input("create -f -", &pod(name, script, *limit, *source)).ok();
    }
    for (name, _, _, _, words) in all {
        assert_eq!(until_evicted(world, name, words), words, "{name}");
        world.until_event("tenant", name, "Evicted");
    }
    let two = json!([{"name": "other", "image": "samples/tools:latest", "imagePullPolicy": "Never", "command": ["sleep", "100000"],
        "resources": {"limits": {"ephemeral-storage": "100Mi"}}}]);
    let mut apart: Value = serde_json::from_str(&pod("apart", &format!("{TOO_MUCH} of=/file"), Some("4Mi"), None)).expect("JSON");
    apart["spec"]["containers"].as_array_mut().expect("a list").extend(two.as_array().cloned().unwrap_or_default());
    world.mallory.with_input("create -f -", &apart.to_string()).ok();
    assert_eq!(until_evicted(world, "apart", container), container);
    assert_eq!(world.admin.ok("get pod innocent -n tenant -o jsonpath={.status.phase}"), "Running");
    world.mallory.ok("delete pods --all -n tenant --grace-period=1 --timeout=60s");
    world.neighbour_is_well();
}

/// A Pod without a limit fills the disk to its last byte, openly or hidden. Then it is evicted, and everything is as
/// before.
fn a_full_disk_is_the_fault_of_who_fills_it(world: &World<'_>) {
    let fill = "while true; do dd if=/dev/zero bs=1M";
    for (name, script) in [
        ("hoarder", format!("{fill} >> /data/file; sleep 1; done")),
        ("hider", format!("exec 3> /file; rm /file; {fill} >&3; sleep 1; done")),
    ] {
        world.mallory.with_input("create -f -", &pod(name, &script, None, Some(&json!({})))).ok();
        let (low, used) = (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 150Mi, available: ",
            "has larger consumption of ephemeral-storage. ",
        );
        let message = until_evicted(world, name, low);
        // A volume belongs to no container.
        assert_eq!(message.ends_with(used), name == "hider", "{message}");
        let condition = "jsonpath={.status.conditions[?(@.type=='DisruptionTarget')].reason}";
        assert_eq!(world.admin.ok(&format!("get pod {name} -n tenant -o {condition}")), "TerminationByKubelet");
        // The events exist although nothing could be written at that time.
        world.until_event("default", &node(world), "Attempting to reclaim ephemeral-storage");
        world.until_event("tenant", name, "The node was low on resource: ephemeral-storage.");
        under_pressure_nobody_else_is_taken_in(world, name);
        world.mallory.ok(&format!("delete pod {name} -n tenant --grace-period=1 --timeout=60s"));
        eventually("the pressure is over", || match taints(world) {
            taints if taints.contains("disk-pressure") => Err(taints),
            _ => Ok(()),
        });
    }
    world.mallory.with_input("create -f -", &pod("after", "true", None, None)).ok();
    world.until_ready("tenant", "after");
    world.neighbour_is_well();
}

/// The scheduler respects the node's taint. The node rejects Pods that bypass the scheduler.
fn under_pressure_nobody_else_is_taken_in(world: &World<'_>, after: &str) {
    eventually("the node is tainted", || match taints(world) {
        taints if taints.contains("node.kubernetes.io/disk-pressure") => Ok(()),
        taints => Err(taints),
    });
    let name = format!("late-{after}");
    let mut late: Value = serde_json::from_str(&pod(&name, "true", None, None)).expect("JSON");
    late["spec"]["nodeName"] = json!(node(world));
    world.mallory.with_input("create -f -", &late.to_string()).ok();
    let rejected = "Pod was rejected: The node had condition: [DiskPressure]. ";
    assert_eq!(until_evicted(world, &name, rejected), rejected);
}

fn node(world: &World<'_>) -> String {
    world.admin.ok("get nodes -o jsonpath={.items[0].metadata.name}")
}

fn taints(world: &World<'_>) -> String {
    world.admin.ok("get nodes -o jsonpath={.items[0].spec.taints}")
}
