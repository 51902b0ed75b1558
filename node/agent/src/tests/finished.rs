//! Pods that have ended and stay in the API have no worker, and get one again when they change.

use runtimes_fake::Behaviour;

use super::*;

const PODS: usize = 10;

fn ending_at_once() -> Script {
    Script::default().containers(|_| Behaviour::Exit { after: Duration::from_millis(10), code: 0 })
}

fn job() -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:1"}]})
}

/// Waits until no Pod has a worker: each worker is at least two tasks.
async fn resting(agent: &Running, idle: usize) {
    until("no Pod has a worker", async || agent.tasks() < idle + 2).await;
}

async fn succeeded(cluster: &Cluster, name: &str) {
    cluster.status(name, "Succeeded", |status| status["phase"] == "Succeeded").await;
}

#[tokio::test]
async fn an_ended_pod_has_a_worker_only_while_it_changes() {
    let (cluster, agent) = Cluster::running_by(ending_at_once()).await;
    let idle = agent.tasks();
    let names: Vec<String> = (0..PODS).map(|number| format!("job-{number}")).collect();
    for name in &names {
        cluster.create(name, job()).await;
    }
    for name in &names {
        succeeded(&cluster, name).await;
    }
    resting(&agent, idle).await;
    let starts_before = starts(&cluster.linux);

    // Another writer's status does not stay.
    let overwritten = json!({"status": {"phase": "Running", "containerStatuses": []}});
    cluster.pods().patch_status("job-0", &PatchParams::default(), &Patch::Merge(&overwritten)).await.expect("patched");
    let is_restored = |status: &Value| status["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed";
    cluster.status("job-0", "its own status", is_restored).await;
    succeeded(&cluster, "job-0").await;
    // After a change that does not concern the node the worker ends again.
    cluster.patch("job-1", json!({"metadata": {"labels": {"a": "b"}}})).await;
    resting(&agent, idle).await;

    let logs = cluster.data.path().join("pods");
    assert_eq!(std::fs::read_dir(&logs).expect("logs").count(), PODS, "logs stay as long as their Pods");
    for (name, grace) in names.iter().zip([30, 0].into_iter().cycle()) {
        cluster.delete(name, grace).await;
    }
    for name in &names {
        cluster.gone(name).await;
    }
    until("nothing is left", async || std::fs::read_dir(&logs).expect("logs").count() == 0).await;
    resting(&agent, idle).await;
    assert_eq!(starts(&cluster.linux), starts_before, "nothing runs again");
}

#[tokio::test]
async fn a_new_agent_keeps_no_worker_for_pods_that_ended_before() {
    let (cluster, agent) = Cluster::running_by(ending_at_once()).await;
    let idle = agent.tasks();
    let reject = json!({"restartPolicy": "Never", "nodeSelector": {"no": "such"}, "containers": [{"name": "c", "image": "job:1"}]});
    cluster.create("rejected", reject).await;
    cluster.status("rejected", "Failed", |status| status["phase"] == "Failed" && status["reason"] == "NodeAffinity").await;
    cluster.create("job", job()).await;
    succeeded(&cluster, "job").await;
    resting(&agent, idle).await;
    agent.kill().await;

    let agent = cluster.start();
    cluster.create("later", job()).await;
    succeeded(&cluster, "later").await;
    resting(&agent, idle).await;
    assert_eq!(starts(&cluster.linux), 2);
    for name in ["rejected", "job", "later"] {
        cluster.delete(name, 30).await;
        cluster.gone(name).await;
    }
}
