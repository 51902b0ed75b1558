use std::path::PathBuf;

use super::*;

/// A cluster whose node has an empty directory of manifests.
async fn cluster() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::new(Script::default()).await;
    let dir = cluster.data.path().join("manifests");
    std::fs::create_dir(&dir).expect("made");
    cluster.config.pod_manifest_path = Some(dir.clone());
    (cluster, dir)
}

/// Writes a manifest as a careful administrator does: at once.
fn write(dir: &std::path::Path, name: &str, image: &str) {
    let container = json!({"name": "c", "image": image});
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
    let new = dir.join(".new");
    std::fs::write(&new, pod.to_string()).expect("written");
    std::fs::rename(new, dir.join(format!("{name}.json"))).expect("renamed");
}

async fn mirror(cluster: &Cluster, name: &str) -> Option<Pod> {
    cluster.pods().get_opt(name).await.expect("an answer")
}

async fn uid(cluster: &Cluster, name: &str) -> Option<String> {
    mirror(cluster, name).await.and_then(|pod| pod.metadata.uid)
}

/// Waits until the API has a mirror Pod whose containers are ready.
async fn ready(cluster: &Cluster, name: &str) -> Pod {
    let is_ready = async || {
        let pod = mirror(cluster, name).await;
        let status = pod.map(|pod| serde_json::to_value(pod.status).expect("JSON")).unwrap_or_default();
        condition(&status, "Ready") == "True"
    };
    until("the mirror is ready", is_ready).await;
    mirror(cluster, name).await.expect("a mirror")
}

#[tokio::test]
async fn a_static_pod_runs_and_its_mirror_is_made_again() {
    let (cluster, dir) = cluster().await;
    write(&dir, "web", "web:1");
    let _agent = cluster.start();
    cluster.node_ready().await;
    let first = ready(&cluster, "web-n1").await;
    let annotations = first.metadata.annotations.clone().expect("annotations");
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
    let owner = first.metadata.owner_references.clone().expect("owners").pop().expect("an owner");
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.controller), ("Node", "n1", Some(true)));
    // A gentle deletion, and one at once.
    for grace in [30, 0] {
        let before = uid(&cluster, "web-n1").await;
        cluster.delete("web-n1", grace).await;
        until("another mirror", async || uid(&cluster, "web-n1").await.is_some_and(|uid| Some(uid) != before)).await;
        let again = ready(&cluster, "web-n1").await;
        let of = |pod: &Pod| pod.status.as_ref().and_then(|status| status.container_statuses.clone()).expect("statuses");
        assert_eq!(of(&again), of(&first));
    }
    assert_eq!(starts(&cluster.linux), 1, "the Pod ran on");
}

#[tokio::test]
async fn a_changed_file_is_another_pod_and_a_broken_one_changes_nothing() {
    let (cluster, dir) = cluster().await;
    write(&dir, "web", "web:1");
    write(&dir, "other", "web:1");
    let _agent = cluster.start();
    cluster.node_ready().await;
    ready(&cluster, "web-n1").await;
    let other = ready(&cluster, "other-n1").await;
    std::fs::write(dir.join("web.json"), "nonsense: [").expect("written");
    write(&dir, "third", "web:1");
    ready(&cluster, "third-n1").await;
    cluster.event("n1", "InvalidStaticPod").await;
    assert_eq!((uid(&cluster, "web-n1").await.is_some(), starts(&cluster.linux)), (true, 3));
    write(&dir, "web", "web:2");
    let is_second = async || {
        mirror(&cluster, "web-n1").await.is_some_and(|pod| pod.spec.expect("a spec").containers[0].image == Some("web:2".to_owned()))
    };
    until("the changed Pod's mirror", is_second).await;
    ready(&cluster, "web-n1").await;
    assert_eq!((starts(&cluster.linux), cluster.linux.containers().len()), (4, 3), "the first one has ended");
    std::fs::remove_file(dir.join("web.json")).expect("removed");
    std::fs::remove_file(dir.join("third.json")).expect("removed");
    cluster.gone("web-n1").await;
    cluster.gone("third-n1").await;
    until("their containers are gone", async || cluster.linux.containers().len() == 1).await;
    assert_eq!(uid(&cluster, "other-n1").await, other.metadata.uid);
}

#[tokio::test]
async fn static_pods_are_adopted_and_their_files_removed_meanwhile_count() {
    let (cluster, dir) = cluster().await;
    write(&dir, "web", "web:1");
    write(&dir, "old", "web:1");
    let agent = cluster.start();
    cluster.node_ready().await;
    let before = ready(&cluster, "web-n1").await;
    ready(&cluster, "old-n1").await;
    agent.kill().await;
    std::fs::remove_file(dir.join("old.json")).expect("removed");
    let _agent = cluster.start();
    cluster.gone("old-n1").await;
    cluster.create("later", one("web:1")).await;
    cluster.ready("later").await;
    let after = ready(&cluster, "web-n1").await;
    assert_eq!((after.metadata.uid, after.status), (before.metadata.uid, before.status));
    assert_eq!(starts(&cluster.linux), 3);
    until("the container of the old one is gone", async || cluster.linux.containers().len() == 2).await;
}

/// Any user may set annotations.
#[tokio::test]
async fn a_pod_of_the_api_is_no_static_pod_by_its_annotations() {
    let (cluster, dir) = cluster().await;
    write(&dir, "web", "web:1");
    let _agent = cluster.start();
    cluster.node_ready().await;
    ready(&cluster, "web-n1").await;
    let make = async |name: &str, annotations: Value| {
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "web:1"}]});
        let pod = serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec})).expect("a pod");
        cluster.pods().create(&PostParams::default(), &pod).await.expect("created");
    };
    make("source", json!({"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"})).await;
    cluster.ready("source").await;
    // As upstream, a mirror of nothing is no Pod to run, and goes.
    make("orphan", json!({"kubernetes.io/config.mirror": "x"})).await;
    cluster.gone("orphan").await;
    assert_eq!(starts(&cluster.linux), 2);
}

#[tokio::test]
async fn a_static_pod_runs_without_an_api_server() {
    let (mut cluster, dir) = cluster().await;
    write(&dir, "web", "web:1");
    let refuse = |_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
    };
    let reached = std::mem::replace(&mut cluster.client, kube::Client::new(tower::service_fn(refuse), "default"));
    let agent = cluster.start();
    until("it runs", async || starts(&cluster.linux) == 1).await;
    agent.kill().await;
    // When the server is there again, the same containers have a mirror.
    cluster.client = reached;
    let _agent = cluster.start();
    cluster.node_ready().await;
    ready(&cluster, "web-n1").await;
    assert_eq!(starts(&cluster.linux), 1);
}
