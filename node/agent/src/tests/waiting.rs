//! Pods that wait for what the node does not have, an image or a ConfigMap: their workers rest between two attempts.

use std::time::Instant;

use kube::api::ListParams;
use runtimes_fake::ExecReply;

use super::kubelet_metrics::scrape;
use super::*;

const PODS: usize = 200;
/// The shortest time between two attempts of a Pod.
const BACK_OFF: Duration = Duration::from_secs(10);
/// How often a worker wakes for one attempt at the most: it tries, `ErrImagePull` becomes `ImagePullBackOff`, and the API delivers the Pod
/// with both statuses.
const WAKES_PER_ATTEMPT: usize = 4;
/// The seconds for which they are watched, and one more Pod's probes.
const PROBES: usize = 6;
const REASONS: [&str; 3] = ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"];

fn spec(number: usize) -> Value {
    if number.is_multiple_of(2) {
        return one("missing:1");
    }
    let container = json!({"name": "c", "image": "web:1", "envFrom": [{"configMapRef": {"name": "nowhere"}}]});
    json!({"containers": [container]})
}

/// Whether a Pod waits between two attempts.
fn waits(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    waiting.any(|reason| REASONS.contains(&reason))
}

/// How often workers have woken since the agent began.
async fn wakes(cluster: &Cluster) -> usize {
    let text = scrape(cluster).await;
    let counts = text.lines().filter_map(|line| line.strip_prefix("kubelet_pod_worker_duration_seconds_count{")?.split_once("} "));
    counts.map(|(_, count)| count.parse::<usize>().expect("a number")).sum()
}

#[tokio::test]
async fn pods_that_wait_cost_nothing_between_their_attempts() {
    let probes = Arc::new(AtomicUsize::new(0));
    let counter = probes.clone();
    let mut cluster = Cluster::new(Script::default().execs(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(ExecReply::default())
    }))
    .await;
    cluster.config.pods_max = 2 * u32::try_from(PODS).expect("few");
    let agent = cluster.start();
    cluster.node_ready().await;
    for number in 0..PODS {
        cluster.create(&format!("p-{number}"), spec(number)).await;
    }
    until("all wait", async || {
        let list = cluster.pods().list(&ListParams::default()).await.expect("the Pods");
        list.items.iter().filter(|pod| waits(pod)).count() == PODS
    })
    .await;

    let attempts = || cluster.images.pulls.load(Ordering::SeqCst);
    let (began, attempts_before, wakes_before) = (Instant::now(), attempts(), wakes(&cluster).await);
    let mut probed = one("web:1");
    probed["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["ready"]}, "periodSeconds": 1});
    cluster.create("probed", probed).await;
    until("some seconds have passed", async || probes.load(Ordering::SeqCst) >= PROBES).await;
    let (wakes, attempts) = (wakes(&cluster).await - wakes_before, attempts() - attempts_before);

    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few");
    let rounds = seconds / usize::try_from(BACK_OFF.as_secs()).expect("few") + 1;
    // One for each Pod whose image is missing, and the one more Pod's.
    let attempts_max = PODS / 2 * rounds + 1;
    assert!(attempts <= attempts_max, "{attempts} attempts in {seconds} s");
    // The last attempts before may not be over, and the one more Pod begins and is probed.
    let wakes_max = WAKES_PER_ATTEMPT * (attempts + PROBES) + 2 * PODS;
    assert!(wakes <= wakes_max, "{wakes} for {attempts} attempts in {seconds} s");
    assert!(wakes_max < seconds * PODS, "workers that wake each second would not be noticed");
    agent.stop().await;
}
