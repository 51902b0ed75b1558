//! Which certificates the server trusts, and which groups it never gives away.

use super::*;

#[tokio::test]
async fn only_the_authority_that_is_named_is_believed() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    let directory = tempfile::tempdir().expect("a directory");
    let stranger = Pki::open(directory.path(), &PkiConfig::for_cluster("other.local")).expect("keys");
    backing.register(&cluster, stranger.ca_pem()).await;
    let condition = until(&cluster, "v1.others.example.com", |condition| condition["reason"] == "FailedDiscoveryCheck").await;
    assert!(condition["message"].as_str().expect("text").contains("invalid peer certificate"), "{condition}");
    assert!(backing.received.lock().is_empty());
    let anybody = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    cluster.patch(&format!("{SERVICES}/v1.others.example.com"), "merge", anybody).await.ok();
    until(&cluster, "v1.others.example.com", |condition| condition["reason"] == "Passed").await;
}

#[tokio::test]
async fn what_is_built_in_is_not_given_away() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    let mut registration = backing.registration(PKI.ca_pem());
    registration["spec"]["group"] = "apps".into();
    registration["spec"].as_object_mut().expect("a map").remove("caBundle");
    cluster.patch(&format!("{SERVICES}/v1.apps"), "merge", json!({"spec": registration["spec"]})).await.ok();
    assert_eq!(cluster.get("/apis/apps/v1/deployments").await.ok()["kind"], "DeploymentList");
    let refused = cluster
        .post(SERVICES, json!({"metadata": {"name": "x"}, "spec": {"group": "a.b", "version": "V", "groupPriorityMinimum": 0}}))
        .await;
    let (code, message) = refused.refusal();
    assert_eq!(code, 422);
    for wanted in [
        "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"V.a.b\"",
        "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
        "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
        "spec.version: Invalid value: \"V\"",
    ] {
        assert!(message.contains(wanted), "{message}");
    }
}

#[tokio::test]
async fn the_authorities_are_published_for_servers_behind_this_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = cluster_on(Arc::clone(&store)).await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let published = first.get(path).await.ok();
    let wanted = json!({
        "client-ca-file": PKI.ca_pem(), "requestheader-client-ca-file": PKI.front_proxy_ca_pem(),
        "requestheader-allowed-names": "[\"front-proxy-client\"]", "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]", "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    });
    assert_eq!(published["data"], wanted);
    // The ConfigMap of a cluster from before the front proxy existed, and one that already has another server's
    // authority.
    let before = json!({"data": {"requestheader-client-ca-file": "another\n", "requestheader-allowed-names": null}});
    first.patch(path, "merge", before).await.ok();
    first.server.shutdown().await;
    let second = cluster_on(store).await;
    let published = second.get(path).await.ok();
    assert_eq!(published["data"]["requestheader-client-ca-file"], format!("another\n{}", PKI.front_proxy_ca_pem()));
    assert_eq!(published["data"]["requestheader-allowed-names"], wanted["requestheader-allowed-names"]);
}
