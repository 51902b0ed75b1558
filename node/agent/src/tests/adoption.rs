use super::kubelet_metrics::{scrape, scraped, value};
use super::*;

#[tokio::test]
async fn a_killed_agents_containers_go_on_without_a_restart() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    let before = cluster.ready("web").await;
    let agent = cluster.replace_agent(agent).await;
    let after = cluster.ready("web").await;
    assert_eq!(starts(&cluster.linux), 2, "one for each Pod");
    assert_eq!(after["containerStatuses"], before["containerStatuses"]);
    assert_eq!(after["podIP"], before["podIP"]);
    cluster.delete("web", 5).await;
    cluster.gone("web").await;
    agent.stop().await;
}

/// Nor does a new agent write the statuses that the API has.
#[tokio::test]
async fn the_status_of_an_adopted_pod_is_not_written_again() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    agent.kill().await;
    let _agent = cluster.start();
    scraped(&cluster, "the adopted Pod", |text| value(text, "kubelet_running_pods") == Some(1)).await;
    // Another writer's status does not stay: this is the first write.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.pods().patch_status("web", &PatchParams::default(), &Patch::Strategic(unready)).await.expect("patched");
    let written = |text: &str| value(text, "kubelet_pod_status_sync_duration_seconds_count");
    scraped(&cluster, "a write", |text| written(text) > Some(0)).await;
    cluster.ready("web").await;
    assert_eq!(written(&scrape(&cluster).await), Some(1));
}

#[tokio::test]
async fn what_ended_while_nobody_looked_is_restarted_and_counted() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    let uid = cluster.pods().get("web").await.expect("the pod").metadata.uid.expect("a uid");
    agent.stop().await;
    cluster.linux.kill_all();
    std::fs::write(cluster.data.path().join(format!("kubelet/pods/{uid}/containers/c/0")), "last words").expect("writing");
    let _agent = cluster.start();
    let status = cluster
        .status("web", "a restart", |status| status["containerStatuses"][0]["restartCount"] == 1 && condition(status, "Ready") == "True")
        .await;
    let terminated = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((terminated["exitCode"].as_i64(), terminated["message"].as_str()), (Some(137), Some("last words")));
}

#[tokio::test]
async fn pods_that_are_no_more_are_removed_after_the_first_list() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("old", one("web:1")).await;
    cluster.ready("old").await;
    agent.stop().await;
    cluster.delete("old", 0).await;
    cluster.gone("old").await;
    let _agent = cluster.start();
    until("the leftovers are gone", async || cluster.network.pods.lock().is_empty() && cluster.images.mounts.lock().is_empty()).await;
    until("the logs are gone", async || std::fs::read_dir(cluster.data.path().join("pods")).expect("logs").count() == 0).await;
}

#[tokio::test]
async fn everything_is_removed_and_twice_is_no_error() {
    let (cluster, agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    agent.stop().await;
    for _ in 0..2 {
        Agent::remove_all(&cluster.config, &cluster.parts()).await.expect("removed");
        assert!(cluster.network.pods.lock().is_empty() && cluster.images.mounts.lock().is_empty());
    }
}

#[tokio::test]
async fn an_ended_pod_stays_as_it_ended() {
    let (cluster, agent) = Cluster::running().await;
    let mut spec = one("web:1");
    spec["activeDeadlineSeconds"] = json!(1);
    spec["terminationGracePeriodSeconds"] = json!(1);
    cluster.create("late", spec).await;
    let over = |status: &Value| status["phase"] == "Failed" && condition(status, "PodReadyToStartContainers") == "False";
    let before = cluster.status("late", "Failed and freed", over).await;
    agent.stop().await;
    let _agent = cluster.start();
    cluster.create("probe", one("web:1")).await;
    cluster.ready("probe").await;
    let after = cluster.status("late", "Failed and freed", over).await;
    assert_eq!(after, before);
    assert_eq!(starts(&cluster.linux), 2);
    cluster.delete("late", 5).await;
    cluster.gone("late").await;
}

#[tokio::test]
async fn the_lease_of_a_node_that_was_registered_anew_is_the_new_ones() {
    use k8s_openapi::api::coordination::v1::Lease;
    let mut cluster = Cluster::new(Script::default()).await;
    let often = Duration::from_millis(50);
    (cluster.config.lease_renew, cluster.config.status_check, cluster.config.status_report) = (often, often, often);
    let _agent = cluster.start();
    cluster.node_ready().await;
    let (nodes, leases) = (cluster.nodes(), Api::<Lease>::namespaced(cluster.client.clone(), "kube-node-lease"));
    let uid = async || nodes.get_opt(NODE).await.expect("an answer").and_then(|node| node.metadata.uid);
    let owner = async || leases.get_opt(NODE).await.expect("an answer")?.metadata.owner_references?.pop().map(|owner| owner.uid);
    until("it has a lease", async || owner().await.is_some() && owner().await == uid().await).await;
    let first = uid().await;
    nodes.delete(NODE, &DeleteParams::default()).await.expect("deleted");
    until("it is registered anew", async || uid().await.is_some_and(|now| Some(&now) != first.as_ref())).await;
    // Until then we are the garbage collector.
    let is_right = async || match (owner().await, uid().await) {
        (Some(owner), Some(uid)) if owner == uid => true,
        (Some(_), _) => {
            leases.delete(NODE, &DeleteParams::default()).await.expect("deleted");
            false
        }
        (None, _) => false,
    };
    until("the new one's lease", is_right).await;
}

/// A client whose first requests about Leases reach no server.
fn unheard(client: kube::Client, mut requests: u32) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_lost = requests > 0 && request.uri().path().contains("/leases");
        requests -= u32::from(is_lost);
        let client = client.clone();
        async move {
            match is_lost {
                true => Err(kube::Error::Service(std::io::Error::from(std::io::ErrorKind::TimedOut).into())),
                false => client.send(request).await,
            }
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_heartbeat_that_failed_is_repeated_before_its_time() {
    use k8s_openapi::api::coordination::v1::Lease;
    let mut cluster = Cluster::new(Script::default()).await;
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-node-lease");
    // Longer than anybody waits here.
    cluster.config.lease_renew = Duration::from_secs(3_600);
    cluster.client = unheard(cluster.client.clone(), 3);
    let _agent = cluster.start();
    until("it has a lease", async || leases.get_opt(NODE).await.expect("an answer").is_some()).await;
}
