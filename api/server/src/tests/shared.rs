//! Several servers on one store, as with etcd: here a store in memory whose watches are late.

mod leaders;
mod lost;

use std::time::Duration;

use api_store::fixtures::StoreWrapper;
use api_store::{Events, Revision, StoreError, Write};
use async_trait::async_trait;
use futures::StreamExt;
use futures::future::join_all;

use super::*;

/// A store that reports itself as shared, with watches that are late by that time.
struct Shared(Arc<MemoryStore>, Duration);

#[async_trait]
impl StoreWrapper for Shared {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    fn wrapped_is_shared(&self) -> bool {
        true
    }

    async fn wrapped_watch(&self, after: Revision) -> Result<Events, StoreError> {
        let (events, late) = (self.0.watch(after).await?, self.1);
        Ok(events
            .then(move |batch| async move {
                tokio::time::sleep(late).await;
                batch
            })
            .boxed())
    }
}

async fn two() -> [Cluster; 2] {
    let store = Arc::new(MemoryStore::new());
    [cluster_at(1, &store).await, cluster_at(2, &store).await]
}

/// The higher the number, the later the server gets events: the second server answers before the first one's writes
/// reach it.
async fn cluster_at(number: u8, store: &Arc<MemoryStore>) -> Cluster {
    let late = Duration::from_millis(5) * u32::from(number).pow(4);
    let config = Config::new(Arc::clone(&PKI), SocketAddr::from(([10, 0, 0, number], 6443)));
    cluster_with(config, Arc::new(Shared(Arc::clone(store), late))).await
}

#[tokio::test]
async fn what_one_server_answered_the_other_knows() {
    let [one, other] = two().await;
    for n in 0..3 {
        let name = format!("c{n}");
        let path = format!("{CONFIG_MAPS}/{name}");
        let made = one.config_map(&name, json!({})).await;
        assert_eq!(other.get(&path).await.ok(), made);
        assert_eq!(other.patch(&path, "merge", json!({"data": {"key": "other"}})).await.ok()["data"]["key"], "other");
        assert_eq!(names(&one.get(CONFIG_MAPS).await.ok()), [name.as_str()]);
        assert_eq!(one.get(&path).await.ok()["data"]["key"], "other");
        one.delete(&path).await.ok();
        assert_eq!(other.post(CONFIG_MAPS, config_map(&name, json!({}))).await.status, StatusCode::CREATED);
        other.delete(&path).await.ok();
        assert_eq!(one.put(&path, &config_map(&name, json!({}))).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_stale_update_through_another_server_is_a_conflict() {
    let [one, other] = two().await;
    let seen = one.config_map("c", json!({})).await;
    let path = format!("{CONFIG_MAPS}/c");
    other.patch(&path, "merge", json!({"data": {"key": "new"}})).await.ok();
    assert_eq!(one.put(&path, &seen).await.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn no_address_is_given_out_twice() {
    let servers = two().await;
    let making = (0..24).map(|n| {
        let server = &servers[n % 2];
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{n}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_000 + n / 2}]},
        });
        server.post("/api/v1/namespaces/default/services", service)
    });
    let answers = join_all(making).await;
    let made: Vec<_> = answers.into_iter().filter(|answer| answer.status == StatusCode::CREATED).collect();
    // Each port was requested once from each server; one of the two requests got it.
    assert_eq!(made.len(), 12);
    let mut addresses: Vec<_> = made.iter().map(|answer| answer.body["spec"]["clusterIP"].to_string()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 12);
}

#[tokio::test]
async fn a_quota_holds_against_two_servers_at_once() {
    let servers = two().await;
    let quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "5"}}});
    servers[0].post("/api/v1/namespaces/default/resourcequotas", quota).await.ok();
    let making = (0..16).map(|n| servers[n % 2].post(CONFIG_MAPS, config_map(&format!("c{n}"), json!({}))));
    let answers = join_all(making).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == StatusCode::CREATED).count(), 5);
    assert_eq!(answers.iter().filter(|answer| answer.status == StatusCode::FORBIDDEN).count(), 11);
}

#[tokio::test]
async fn a_server_with_other_keys_cannot_join() {
    let store = Arc::new(MemoryStore::new());
    let _first = cluster_at(1, &store).await;
    let directory = tempfile::tempdir().expect("a directory");
    let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
    let before = store.head().await.expect("head");
    let refused =
        Server::start(Config::new(pki, SocketAddr::from(([10, 0, 0, 2], 6443))), Arc::new(Shared(Arc::clone(&store), Duration::ZERO)))
            .await;
    assert!(matches!(refused.map(drop), Err(crate::StartError::OtherCluster)));
    assert_eq!(store.head().await.expect("head"), before, "it has changed nothing");
}

#[tokio::test]
async fn the_kubernetes_service_leads_to_every_server_that_is_there() {
    let [one, other] = two().await;
    let addresses = async || {
        let slice = other.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await.ok();
        let endpoints = other.get("/api/v1/namespaces/default/endpoints/kubernetes").await.ok();
        let in_slice: Vec<_> = slice["endpoints"].as_array().expect("a list").iter().map(|e| e["addresses"][0].clone()).collect();
        let in_endpoints: Vec<_> =
            endpoints["subsets"][0]["addresses"].as_array().expect("a list").iter().map(|a| a["ip"].clone()).collect();
        assert_eq!(in_slice, in_endpoints);
        in_slice
    };
    assert_eq!(addresses().await, ["10.0.0.1", "10.0.0.2"]);
    one.server.shutdown().await;
    assert_eq!(addresses().await, ["10.0.0.2"]);
}
