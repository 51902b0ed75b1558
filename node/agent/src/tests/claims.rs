use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::over_https::{ADMIN, port, put, send};
use super::*;

const NAME: &str = "pvc-0a1b2c3d";

/// A claim with a volume of the provisioner on this node, both bound.
async fn bind(cluster: &Cluster) -> std::path::PathBuf {
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "local-path", "volumeName": NAME}});
    let claim = claims.create(&PostParams::default(), &serde_json::from_value(claim).expect("a claim")).await.expect("created");
    let annotations = cluster.nodes().get(NODE).await.expect("the node").metadata.annotations.unwrap_or_default();
    let path = std::path::Path::new(annotations.get("skiff.internal/local-path").expect("a directory")).join(NAME);
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]});
    let volume = json!({
        "metadata": {"name": NAME, "annotations": {"pv.kubernetes.io/provisioned-by": "skiff.internal/local-path"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "local-path", "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {"namespace": "default", "name": "data", "uid": claim.metadata.uid},
        },
    });
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).expect("a volume")).await.expect("created");
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    claims.patch_status("data", &PatchParams::default(), &bound).await.expect("bound");
    path
}

#[tokio::test]
async fn a_pod_waits_for_its_claim_and_then_has_its_directory() {
    let (cluster, agent) = Cluster::running().await;
    let mut spec = one("web:1");
    spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    cluster.create("web", spec).await;
    let words = "FailedMount: Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process \
                 volumes=[data]: error processing PVC default/data: failed to fetch PVC from API server: persistentvolumeclaims \"data\" not found";
    cluster.event("web", words).await;
    let path = bind(&cluster).await;
    cluster.ready("web").await;
    std::fs::write(path.join("file"), "data").expect("it is there");

    // The next agent knows that the directory is used.
    agent.kill().await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    let removal = format!("/localVolumes/{NAME}");
    let remove = async |who, path: &str| {
        let port = port(&cluster).await;
        send(port, who, http::Method::DELETE, path).await.map(|(status, _)| status)
    };
    until("the new agent answers", async || remove(ADMIN, &removal).await == Ok(409)).await;
    let nobody: Option<(&str, &[&str])> = Some(("nobody", &["dev"]));
    assert_eq!(remove(nobody, &removal).await, Ok(403));
    assert_eq!(remove(ADMIN, "/localVolumes/..%2Fkubelet").await, Ok(404));
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    assert!(path.join("file").exists(), "the data outlives the Pod");
    until("the Pod's links are gone", async || remove(ADMIN, &removal).await == Ok(200)).await;
    assert!(!path.exists());
    assert_eq!(remove(ADMIN, &removal).await, Ok(200), "it may be repeated");
}

#[tokio::test]
async fn the_provisioner_has_the_directory_of_a_volume_grown() {
    let (cluster, _agent) = Cluster::running().await;
    let path = bind(&cluster).await;
    let volume = Api::<PersistentVolume>::all(cluster.client.clone()).get(NAME).await.expect("the volume");
    let volume = serde_json::to_value(volume).expect("JSON");
    let port = port(&cluster).await;
    let grow = async |who, name: &str, more: (&str, Value)| {
        let mut volume = volume.clone();
        *volume.pointer_mut(more.0).expect("a field") = more.1;
        put(port, who, &format!("/localVolumes/{name}"), &volume).await.map(|(status, _)| status)
    };
    let unchanged = || ("/metadata/name", json!(NAME));
    let nobody: Option<(&str, &[&str])> = Some(("nobody", &["dev"]));
    assert_eq!(grow(nobody, NAME, unchanged()).await, Ok(403));
    assert_eq!(grow(ADMIN, "pvc-0b", unchanged()).await, Ok(400), "another volume's name");
    assert_eq!(grow(ADMIN, NAME, ("/spec/local/path", json!("/etc"))).await, Ok(409), "another node's directory");
    assert_eq!(grow(ADMIN, NAME, ("/metadata/annotations", json!({}))).await, Ok(404), "a volume of an administrator");
    assert_eq!(grow(ADMIN, NAME, ("/spec/capacity/storage", json!("-1"))).await, Ok(400));
    assert!(!path.exists());
    // A volume that no Pod has used yet gets its directory.
    for _ in 0..2 {
        assert_eq!(grow(ADMIN, NAME, unchanged()).await, Ok(200));
        assert!(path.is_dir());
    }
}
