//! The objects of every cluster are created again after a deletion, as upstream's controllers do.

use super::*;

/// Lets the paused time pass until a path answers 200.
async fn comes_back(cluster: &Cluster, path: &str) {
    let asking = async {
        while cluster.get(path).await.status != StatusCode::OK {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(90), asking).await.unwrap_or_else(|_| panic!("{path} never came back"));
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_is_made_anew_within_a_minute() {
    let cluster = cluster().await;
    let namespace = "/api/v1/namespaces/kube-node-lease";
    cluster.delete(namespace).await.ok();
    let mut terminating = cluster.get(namespace).await.ok();
    terminating["spec"]["finalizers"] = json!([]);
    let finalized = cluster.put(&format!("{namespace}/finalize"), &terminating).await;
    assert!(finalized.status.is_success(), "{finalized:?}");
    assert_eq!(cluster.get(namespace).await.status, StatusCode::NOT_FOUND);
    let paths = [
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/system-nodes",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/node-high",
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
    ];
    for path in paths {
        cluster.delete(path).await.ok();
    }
    for path in [namespace].into_iter().chain(paths) {
        comes_back(&cluster, path).await;
    }
}

/// Upstream's annotation decides whether the server restores the spec.
#[tokio::test(start_paused = true)]
async fn suggestions_of_flow_control_are_restored_unless_somebody_keeps_theirs() {
    let cluster = cluster().await;
    let levels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
    let shares =
        async |name: &str| cluster.get(&format!("{levels}/{name}")).await.ok()["spec"]["limited"]["nominalConcurrencyShares"].clone();
    let before = cluster.get(levels).await.ok();
    let changed = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    cluster.patch(&format!("{levels}/node-high"), "merge", changed.clone()).await.ok();
    cluster.patch(&format!("{levels}/workload-low"), "merge", changed).await.ok();
    let patch = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}});
    cluster.patch(&format!("{levels}/workload-low"), "merge", patch).await.ok();
    tokio::time::timeout(std::time::Duration::from_secs(90), async {
        while shares("node-high").await != 40 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    })
    .await
    .expect("restored within a minute");
    assert_eq!(shares("workload-low").await, 7);
    // An object that needs no change is not written again.
    let after = cluster.get(levels).await.ok();
    let version = |list: &Value| {
        let items = list["items"].as_array().expect("items").iter();
        items
            .filter(|item| item["metadata"]["name"] == "system")
            .map(|item| item["metadata"]["resourceVersion"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(version(&after), version(&before));
}

/// As upstream's plugin NamespaceLifecycle.
#[tokio::test]
async fn the_namespaces_that_the_cluster_lives_in_are_not_deleted() {
    let cluster = cluster().await;
    for name in ["default", "kube-system", "kube-public"] {
        let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        assert_eq!(cluster.delete(&format!("/api/v1/namespaces/{name}")).await.refusal(), (403, message.as_str()));
    }
}
