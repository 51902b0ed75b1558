//! Bindings by an extender.

use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::extender::{Extender, Reply};
use crate::support::Cluster;

/// Binds as the extender was asked to.
async fn bind(client: &Client, request: &Value) {
    let text = |field: &str| request[field].as_str().expect("a text").to_owned();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": text("PodName"), "uid": text("PodUID")},
        "target": {"kind": "Node", "name": text("Node")}});
    let pods: Api<Pod> = Api::namespaced(client.clone(), &text("PodNamespace"));
    let _status: Value = pods.create_subresource("binding", &text("PodName"), &PostParams::default(), &binding).await.expect("a binding");
}

/// An extender that binds, and answers so.
async fn binder(answer: fn() -> Reply) -> (Extender, Arc<OnceLock<Client>>) {
    let client: Arc<OnceLock<Client>> = Arc::default();
    let binding = Arc::clone(&client);
    let extender = Extender::serve(None, move |_, request| {
        let binding = Arc::clone(&binding);
        async move {
            if let Some(client) = binding.get() {
                bind(client, &request).await;
            }
            answer()
        }
        .boxed()
    })
    .await;
    (extender, client)
}

fn binds(extender: &Extender, ignorable: bool) -> Value {
    json!([{"urlPrefix": extender.url(), "bindVerb": "bind", "ignorable": ignorable, "httpTimeout": "20s"}])
}

#[tokio::test]
async fn an_extender_binds_instead_of_the_scheduler() {
    let (extender, client) = binder(|| Reply::Json(json!({"Error": ""}))).await;
    let cluster = Cluster::start(&["a"], binds(&extender, false)).await;
    assert!(client.set(cluster.client.clone()).is_ok());
    cluster.pod("p", json!({})).await;
    assert_eq!(cluster.node_of("p").await, "a");
    let [request] = extender.requests("bind").try_into().expect("one request");
    let uid = cluster.api::<Pod>().get("p").await.expect("a Pod").metadata.uid;
    assert_eq!(request, json!({"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "a"}));
    cluster.stop().await;
}

#[tokio::test]
async fn an_answer_that_says_otherwise_does_not_undo_a_binding() {
    let (extender, client) = binder(|| Reply::Status(500)).await;
    let cluster = Cluster::start(&["a"], binds(&extender, false)).await;
    assert!(client.set(cluster.client.clone()).is_ok());
    cluster.pod("p", json!({})).await;
    assert_eq!(cluster.node_of("p").await, "a");
    cluster.pod("second", json!({})).await;
    assert_eq!(cluster.node_of("second").await, "a");
    assert!(cluster.events("p", "FailedScheduling").await.is_empty(), "the first Pod is bound");
    assert_eq!(extender.requests("bind").len(), 2);
    cluster.stop().await;
}

#[tokio::test]
async fn a_binding_that_failed_is_the_reason_of_the_pod() {
    let extender = Extender::start(|_, _| Reply::Json(json!({"Error": "out of stock"}))).await;
    let cluster = Cluster::start(&["a"], binds(&extender, false)).await;
    cluster.pod("p", json!({})).await;
    cluster.until_unscheduled("p", "SchedulerError", "out of stock").await;
    extender.until_called(2).await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_extender_that_only_claims_to_bind_is_found_out() {
    let extender = Extender::start(|_, _| Reply::Json(json!({}))).await;
    let cluster = Cluster::start(&["a"], binds(&extender, false)).await;
    cluster.pod("p", json!({})).await;
    let wanted = format!("extender {:?} claims to have bound the pod, which has no node", extender.url());
    cluster.until_unscheduled("p", "SchedulerError", &wanted).await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_scheduler_binds_when_an_ignorable_extender_fails() {
    let extender = Extender::start(|_, _| Reply::Text("garbage")).await;
    let cluster = Cluster::start(&["a"], binds(&extender, true)).await;
    cluster.pod("p", json!({})).await;
    assert_eq!(cluster.node_of("p").await, "a");
    assert_eq!(extender.requests("bind").len(), 1);
    cluster.stop().await;
}
