//! A thousand Pods on one node, whose runtimes, images and network fail now and then, and whose agent is killed: all Pods run in the end,
//! each container once, and nothing stays of them.

use k8s_openapi::api::core::v1::PodStatus;
use kube::api::ListParams;
use runtimes_contract::{ContainerState, RuntimeError};

use super::*;
use crate::layout::{PAUSE, label};

const PODS: usize = 1_000;
/// Every n-th call of an operation fails.
const EVERY: usize = 61;
/// The number of calls of an operation among which some fail.
const CALLS: usize = 3 * PODS;
/// A list of all Pods costs more than what it waits for.
const LIST_PAUSE: Duration = Duration::from_millis(500);
/// Failed starts wait for ten seconds, then for twenty.
const LIMIT: Duration = Duration::from_secs(120);

/// WASM and Linux, with init containers, sidecars, a shared process namespace and a user namespace.
fn spec(number: usize) -> Value {
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let mut spec = match number % 5 {
        0 | 1 => json!({"containers": [container("c", "wasm:1")]}),
        2 => {
            json!({"initContainers": [{"name": "sidecar", "image": "web:1", "restartPolicy": "Always"}], "containers": [container("c", "wasm:1")]})
        }
        3 => json!({"containers": [container("c", "web:1"), container("d", "web:2")], "shareProcessNamespace": true}),
        _ => json!({"containers": [container("c", "web:1")], "hostUsers": false}),
    };
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    spec
}

fn containers() -> usize {
    (0..PODS).map(|number| if matches!(number % 5, 2 | 3) { 2 } else { 1 }).sum()
}

/// From now on calls of some operations fail, at the same calls in each run. An agent that cannot list its containers does not start, so
/// lists do not fail.
fn inject(cluster: &Cluster, operations: &[Operation]) {
    for world in [&cluster.linux, &cluster.wasm] {
        world.clear_faults();
        for operation in operations {
            world.inject(*operation, (1..=CALLS).map(fault));
        }
    }
}

fn fault(call: usize) -> Fault {
    match call % EVERY {
        0 => Fault::Error(RuntimeError::Tool { tool: "the runtime", message: "injected".to_owned() }),
        1 => Fault::Delay(Duration::from_millis(20)),
        _ => Fault::Delay(Duration::ZERO),
    }
}

/// Waits until the statuses of all Pods are as wanted; `is_so` gets them by name.
async fn until_all(cluster: &Cluster, what: &str, is_so: impl Fn(&BTreeMap<String, PodStatus>) -> bool) {
    let ended = tokio::time::Instant::now() + LIMIT;
    loop {
        let list = cluster.pods().list(&ListParams::default()).await.expect("the Pods");
        let all = list.items.into_iter().map(|pod| (pod.metadata.name.unwrap_or_default(), pod.status.unwrap_or_default())).collect();
        if is_so(&all) {
            return;
        }
        let bad: Vec<_> = all.iter().filter(|(_, status)| !is_ready(status)).take(3).collect();
        assert!(tokio::time::Instant::now() < ended, "not in time: {what}; {} Pods, for example {bad:#?}", all.len());
        tokio::time::sleep(LIST_PAUSE).await;
    }
}

fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn all_ready(all: &BTreeMap<String, PodStatus>) -> bool {
    all.len() == PODS && all.values().all(is_ready)
}

/// The running containers, by Pod and name; none runs twice.
fn running(cluster: &Cluster) -> usize {
    let all = cluster.linux.list().into_iter().chain(cluster.wasm.list());
    let all = all.filter(|status| matches!(status.state, ContainerState::Running { .. }));
    let names: Vec<_> =
        all.filter_map(|one| Some((one.labels.get(label::POD_UID)?.clone(), one.labels.get(label::CONTAINER)?.clone()))).collect();
    let different: BTreeSet<_> = names.iter().collect();
    assert_eq!(different.len(), names.len(), "no container runs twice");
    names.iter().filter(|(_, container)| container != PAUSE).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pods_outlive_faults_and_kills_and_leave_nothing() {
    let mut cluster = Cluster::new(Script::default()).await;
    cluster.config.pods_max = 2_000;
    cluster.config.pod_cidr = Some("10.244.0.0/20".parse().expect("a range"));
    let agent = cluster.start();
    cluster.node_ready().await;
    let idle = agent.tasks();

    inject(&cluster, &[Operation::Prepare, Operation::Create, Operation::Start, Operation::Remove, Operation::Wait]);
    cluster.network.faults.set(EVERY);
    cluster.images.faults.set(EVERY);
    let half = PODS / 2;
    for number in 0..half {
        cluster.create(&format!("p-{number}"), spec(number)).await;
    }
    until_all(&cluster, "some Pods are ready", |all| all.values().filter(|status| is_ready(status)).count() > half / 4).await;
    agent.kill().await;
    let agent = cluster.start();
    for number in half..PODS {
        cluster.create(&format!("p-{number}"), spec(number)).await;
    }
    until_all(&cluster, "all Pods are ready", all_ready).await;
    assert_eq!(running(&cluster), containers(), "each container once");

    // The next agent takes up all of them, although the runtimes fail.
    let begun = || [&cluster.linux, &cluster.wasm].map(|world| starts(world));
    let before = begun();
    agent.kill().await;
    inject(&cluster, &[Operation::Wait]);
    cluster.network.added.lock().clear();
    let agent = cluster.start();
    until_all(&cluster, "the next agent has all Pods", |_| cluster.network.added.lock().len() == PODS).await;
    until_all(&cluster, "all Pods are ready with the next agent", all_ready).await;
    assert_eq!((begun(), running(&cluster)), (before, containers()), "nothing begins again");
    let list = cluster.pods().list(&ListParams::default()).await.expect("the Pods");
    let of_statuses: BTreeSet<_> = list.items.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
    let of_network: BTreeSet<_> = cluster.network.pods.lock().values().map(|number| address(*number).to_string()).collect();
    assert_eq!((of_statuses.len(), &of_statuses), (PODS, &of_network), "each Pod has an address of its own");

    inject(&cluster, &[Operation::Signal, Operation::Remove, Operation::Wait]);
    cluster.pods().delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    until_all(&cluster, "some Pods are gone", |all| all.len() < half).await;
    agent.kill().await;
    let agent = cluster.start();
    until_all(&cluster, "all Pods are gone", BTreeMap::is_empty).await;
    let left = || {
        let dirs = ["kubelet/pods", "pods"].map(|dir| std::fs::read_dir(cluster.data.path().join(dir)).map_or(0, Iterator::count));
        let worlds = [&cluster.linux, &cluster.wasm].map(|world| world.containers().len());
        (dirs, worlds, cluster.images.mounts.lock().len(), cluster.network.pods.lock().len())
    };
    let ended = tokio::time::Instant::now() + LIMIT;
    while left() != ([0, 0], [0, 0], 0, 0) {
        assert!(tokio::time::Instant::now() < ended, "directories, containers, mounts and addresses stay: {:?}", left());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until("no Pod has a worker", async || agent.tasks() <= idle + 2).await;
}
