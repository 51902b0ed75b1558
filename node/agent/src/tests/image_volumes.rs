use runtimes_fake::Behaviour;

use super::*;

/// A Pod with a volume of this image.
fn with_volume(image: &str) -> Value {
    json!({
        "volumes": [{"name": "v", "image": {"reference": image, "pullPolicy": "Always"}}],
        "containers": [{"name": "c", "image": "web:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
    })
}

fn key(pod: &Pod) -> String {
    format!("volumes_{}", pod.metadata.uid.clone().unwrap_or_default())
}

#[tokio::test]
async fn an_image_volume_comes_before_its_container_and_goes_with_its_pod() {
    let mounts = Arc::new(Mutex::new(Vec::new()));
    let of_runtime = Arc::clone(&mounts);
    let script = Script::default().containers(move |spec| {
        of_runtime.lock().extend(spec.mounts.clone());
        Behaviour::Run
    });
    let (cluster, _agent) = Cluster::running_by(script).await;
    let pod = cluster.create("web", with_volume("data:1")).await;
    cluster.ready("web").await;
    assert_eq!(cluster.images.mounts.lock().get(&key(&pod)).map(String::as_str), Some("sha256:data:1"));
    cluster.event("web", "Pulling: Pulling image \"data:1\"").await;
    let path = cluster.data.path().join(format!("kubelet/pods/{}/volumes/kubernetes.io~image/v", pod.metadata.uid.unwrap_or_default()));
    let mount = mounts.lock().iter().find(|mount| mount.target == Path::new("/v")).cloned().expect("mounted");
    assert!(mount.source == path && mount.read_only && mount.no_exec, "{mount:?}");
    cluster.delete("web", 0).await;
    until("all is freed", async || cluster.images.mounts.lock().is_empty()).await;
}

#[tokio::test]
async fn a_missing_image_of_a_volume_is_why_the_container_waits() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", with_volume("missing:1")).await;
    let waits = |status: &Value| status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull";
    cluster.status("web", "no image", waits).await;
    cluster.event("web", "Failed: Failed to pull image").await;
}

#[tokio::test]
async fn what_is_left_of_a_volume_goes_with_a_pod_that_was_deleted_meanwhile() {
    let (cluster, agent) = Cluster::running().await;
    let pod = cluster.create("old", with_volume("data:1")).await;
    cluster.ready("old").await;
    let agent = cluster.replace_agent(agent).await;
    cluster.ready("old").await;
    assert!(cluster.images.mounts.lock().contains_key(&key(&pod)), "the Pod is still there");
    agent.stop().await;
    cluster.delete("old", 0).await;
    cluster.gone("old").await;
    let _agent = cluster.start();
    until("the leftovers are gone", async || !cluster.images.mounts.lock().contains_key(&key(&pod))).await;
}
