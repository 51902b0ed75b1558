//! A namespace's life.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{Cluster, from, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_gets_its_account_and_certificate_and_is_emptied_when_deleted() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.schedule();
    cluster.node("n1").await;
    let namespaces: Api<Namespace> = cluster.all();
    namespaces
        .create(&PostParams::default(), &from(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})))
        .await
        .expect("a Namespace");
    let client = cluster.client.clone();
    until("its account", Api::<ServiceAccount>::namespaced(client.clone(), "team"), |all| all.contains_key("default")).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let found = until("its certificate", maps.clone(), |all| all.contains_key("kube-root-ca.crt")).await;
    assert!(found["kube-root-ca.crt"].data.as_ref().is_some_and(|data| data["ca.crt"].contains("BEGIN CERTIFICATE")));
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.expect("deleted");
    until("its certificate again", maps.clone(), |all| all.contains_key("kube-root-ca.crt")).await;

    let blocker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    maps.create(&PostParams::default(), &from(blocker)).await.expect("a held ConfigMap");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}}});
    Api::<Deployment>::namespaced(client.clone(), "team").create(&PostParams::default(), &from(deployment)).await.expect("a Deployment");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "team");
    until("its Pods", pods.clone(), |all| {
        all.len() == 2 && all.values().all(|pod| pod.status.as_ref().is_some_and(|s| s.pod_ip.is_some()))
    })
    .await;

    namespaces.delete("team", &DeleteParams::default()).await.expect("deleted");
    until("a condition tells what holds it", namespaces.clone(), |all| {
        let conditions = all["team"].status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|c| {
            c.type_ == "NamespaceFinalizersRemaining"
                && c.message.as_deref().is_some_and(|m| m.contains("example.com/hold in 1 resource instances"))
        })
    })
    .await;
    assert!(pods.list(&Default::default()).await.expect("Pods").items.is_empty());
    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.expect("let go");
    until("gone", namespaces, |all| !all.contains_key("team")).await;
    cluster.stop().await;
}
