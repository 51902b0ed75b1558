use runtimes_contract::{ContainerSpec, Processes};
use runtimes_fake::Behaviour;

use super::*;
use crate::layout::{PAUSE, label};

fn is_pause(spec: &ContainerSpec) -> bool {
    spec.labels[label::CONTAINER] == PAUSE
}

fn shared(containers: Value) -> Value {
    json!({"shareProcessNamespace": true, "containers": containers, "terminationGracePeriodSeconds": 1})
}

/// A cluster whose init containers end at once, its agent, and the specs of all containers that were started, but for pause containers.
async fn running() -> (Cluster, Running, Arc<Mutex<Vec<ContainerSpec>>>) {
    let specs = Arc::new(Mutex::new(Vec::new()));
    let started = specs.clone();
    let script = Script::default().containers(move |spec| {
        started.lock().push(spec.clone());
        match spec.labels[label::CONTAINER].as_str() {
            "init" => Behaviour::Exit { after: Duration::ZERO, code: 0 },
            _ => Behaviour::Run,
        }
    });
    let (cluster, agent) = Cluster::running_by(script).await;
    (cluster, agent, specs)
}

/// How often a container was made.
fn made(specs: &Mutex<Vec<ContainerSpec>>, name: &str) -> usize {
    specs.lock().iter().filter(|spec| spec.labels[label::CONTAINER] == name).count()
}

fn two() -> Value {
    json!([{"name": "a", "image": "web:1"}, {"name": "b", "image": "web:1"}])
}

async fn restarted(cluster: &Cluster, pod: &str) -> Value {
    let both = |status: &Value| (0..2).all(|at| status["containerStatuses"][at]["restartCount"] == 1);
    cluster.status(pod, "restarts of both", |status| both(status) && condition(status, "Ready") == "True").await
}

#[tokio::test]
async fn containers_share_the_processes_of_a_pause_container_that_goes_with_the_pod() {
    let (cluster, _agent, specs) = running().await;
    cluster.create("web", shared(two())).await;
    cluster.ready("web").await;
    let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "tools:1", "targetContainerName": "a"}]}}));
    cluster.pods().patch_ephemeral_containers("web", &PatchParams::default(), &patch).await.expect("patched");
    cluster.status("web", "a debugger", |status| status["ephemeralContainerStatuses"][0]["state"]["running"].is_object()).await;
    let uid = cluster.pods().get("web").await.expect("the pod").metadata.uid.expect("a uid");
    let of_pause = Processes::OfContainer(crate::layout::pause_id(&uid));
    assert_eq!(specs.lock().iter().map(|spec| spec.processes.clone()).collect::<Vec<_>>(), vec![of_pause; 3]);
    cluster.create("alone", one("web:1")).await;
    cluster.ready("alone").await;
    assert_eq!(specs.lock().last().expect("a spec").processes, Processes::Own);
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    until("only the other Pod's container is left", async || cluster.linux.containers().len() == 1).await;
}

#[tokio::test]
async fn a_pod_gets_another_sandbox_when_its_pause_container_is_killed() {
    let (cluster, _agent, specs) = running().await;
    let mut spec = shared(two());
    spec["initContainers"] = json!([{"name": "init", "image": "web:1"}]);
    cluster.create("web", spec).await;
    let before = cluster.ready("web").await;
    cluster.linux.kill(is_pause);
    let after = restarted(&cluster, "web").await;
    assert_eq!(after["podIP"], before["podIP"]);
    assert_eq!(after["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
    assert_eq!((made(&specs, "init"), made(&specs, "a")), (2, 2));
    cluster.event("web", "SandboxChanged: Pod sandbox changed, it will be killed and re-created.").await;
    // One container that ends by itself is another matter.
    cluster.linux.kill(|spec| spec.labels[label::CONTAINER] == "b");
    cluster.status("web", "a restart of one", |status| status["containerStatuses"][1]["restartCount"] == 2).await;
    assert_eq!((made(&specs, "init"), made(&specs, "a")), (2, 2));
}

#[tokio::test]
async fn a_pod_that_is_not_restarted_fails_with_its_sandbox() {
    let (cluster, _agent, specs) = running().await;
    let mut spec = shared(two());
    spec["restartPolicy"] = json!("Never");
    cluster.create("job", spec).await;
    cluster.ready("job").await;
    cluster.linux.kill(is_pause);
    let failed = |status: &Value| status["phase"] == "Failed" && condition(status, "PodReadyToStartContainers") == "False";
    cluster.status("job", "Failed", failed).await;
    assert_eq!(made(&specs, "a"), 1);
    assert!(!cluster.events("job").await.iter().any(|event| event.starts_with("SandboxChanged")));
    until("all is freed", async || cluster.linux.containers().is_empty()).await;
}

#[tokio::test]
async fn a_restarted_agent_takes_up_the_pause_container_or_makes_another() {
    let (cluster, agent, specs) = running().await;
    let mut spec = shared(two());
    spec["initContainers"] = json!([{"name": "init", "image": "web:1"}]);
    cluster.create("web", spec).await;
    let before = cluster.ready("web").await;
    let agent = cluster.replace_agent(agent).await;
    let after = cluster.ready("web").await;
    assert_eq!(after["containerStatuses"], before["containerStatuses"]);
    assert_eq!((made(&specs, "init"), made(&specs, "a")), (1, 1));
    // It is waited for.
    cluster.linux.kill(is_pause);
    restarted(&cluster, "web").await;
    agent.kill().await;
    cluster.linux.kill(is_pause);
    let _agent = cluster.start();
    let twice = |status: &Value| status["containerStatuses"][0]["restartCount"] == 2 && condition(status, "Ready") == "True";
    cluster.status("web", "another sandbox", twice).await;
    assert_eq!(made(&specs, "init"), 3);
}

#[tokio::test]
async fn the_pause_container_of_a_pod_that_is_no_more_is_removed_at_once() {
    let (cluster, agent, _) = running().await;
    let mut spec = shared(two());
    spec["terminationGracePeriodSeconds"] = json!(3_600);
    cluster.create("old", spec).await;
    cluster.ready("old").await;
    agent.stop().await;
    cluster.delete("old", 0).await;
    cluster.gone("old").await;
    let _agent = cluster.start();
    until("the leftovers are gone", async || cluster.linux.containers().is_empty()).await;
}

#[tokio::test]
async fn a_webassembly_container_shares_no_processes_and_says_so() {
    let (cluster, _agent, _) = running().await;
    cluster.create("mixed", shared(json!([{"name": "a", "image": "wasm/hello:1"}, {"name": "b", "image": "web:1"}]))).await;
    let waits = |status: &Value| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        let said = waiting["message"].as_str().is_some_and(|text| text.contains("shareProcessNamespace is set"));
        waiting["reason"] == "CreateContainerError" && said && status["containerStatuses"][1]["state"]["running"].is_object()
    };
    cluster.status("mixed", "a refusal beside a running container", waits).await;
}

#[tokio::test]
async fn a_pause_container_that_cannot_be_made_is_tried_again() {
    let (cluster, _agent, _) = running().await;
    let fault = || runtimes_fake::Fault::Error(runtimes_contract::RuntimeError::Missing("no shim".to_owned()));
    cluster.linux.inject(Operation::Start, [fault()]);
    cluster.create("web", shared(two())).await;
    cluster.event("web", "FailedCreatePodSandBox: Failed to create pod sandbox: starting its pause container: no shim").await;
    cluster.ready("web").await;
}
