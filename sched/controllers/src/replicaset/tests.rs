//! The controller with a server that answers and a cache that lags: the controller does not repeat a write before the
//! cache shows it.

use std::sync::Arc;

use api_client::events::Recorder;
use api_tasks::Tasks;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;

use super::*;

/// Method and path of each request to Pods, in order.
type Heard = Arc<Mutex<Vec<(Method, String)>>>;

/// A server that creates requested objects; `refuse` selects requests that it rejects.
fn server(refuse: fn(&Method, usize) -> bool) -> (kube::Client, Heard) {
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    let service = tower::service_fn(move |request: Request<Body>| {
        let hears = Arc::clone(&hears);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let mut object: Value = serde_json::from_slice(&body).unwrap_or_else(|_| json!({}));
            let path = parts.uri.path().to_owned();
            let mut count = 0;
            if path.contains("/pods") {
                let mut all = hears.lock();
                count = all.len();
                all.push((parts.method.clone(), path));
            }
            if refuse(&parts.method, count) {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "exceeded quota", "reason": "Forbidden", "code": 403});
                return Ok::<_, kube::Error>(
                    Response::builder().status(403).body(Body::from(status.to_string().into_bytes())).expect("a response"),
                );
            }
            object["metadata"]["name"] = json!(format!("pod-{count}"));
            Ok(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    (kube::Client::new(service, "default"), heard)
}

fn controller<S: Replicated>(client: kube::Client) -> ReplicaSets<S> {
    let recorder = Recorder::new(client.clone(), "test", None, &Tasks::new(CancellationToken::new()));
    let expectations = Arc::<Expectations>::default();
    let control = PodControl::new(client.clone(), recorder, Arc::clone(&expectations));
    ReplicaSets { client, control, sets: Informer::detached(), pods: Informer::detached(), expectations }
}

fn set(replicas: i32) -> ReplicaSet {
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}}});
    serde_json::from_value(json!({"metadata": {"name": "rs", "namespace": "ns", "uid": "rs", "resourceVersion": "1"}, "spec": spec}))
        .expect("a ReplicaSet")
}

fn pod(name: &str) -> Pod {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "a"}, "ownerReferences": owner}, "spec": {"containers": []}}))
        .expect("a Pod")
}

fn count(heard: &Heard, method: &Method) -> usize {
    heard.lock().iter().filter(|(m, _)| m == method).count()
}

#[tokio::test]
async fn pods_are_not_made_again_before_they_are_seen() {
    let (client, heard) = server(|_, _| false);
    let controller = controller(client);
    controller.sets.put(set(3));
    let key = ObjectKey::new("ns", "rs");
    for _ in 0..3 {
        controller.reconcile(&key).await.expect("a pass");
    }
    assert_eq!(count(&heard, &Method::POST), 3);
    for name in ["a", "b", "c"] {
        let (old, new) = (None, Some(Arc::new(pod(name))));
        controller.pods.put(pod(name));
        observe(&Change { old, new }, &controller.sets, &controller.expectations);
    }
    controller.sets.put(set(4));
    controller.reconcile(&key).await.expect("a pass");
    assert_eq!(count(&heard, &Method::POST), 4, "once they are seen, counting goes on");
}

#[tokio::test]
async fn pods_are_not_deleted_again_before_they_are_seen_going() {
    let (client, heard) = server(|_, _| false);
    let controller = controller(client);
    controller.sets.put(set(1));
    for name in ["a", "b", "c"] {
        controller.pods.put(pod(name));
    }
    let key = ObjectKey::new("ns", "rs");
    for _ in 0..3 {
        controller.reconcile(&key).await.expect("a pass");
    }
    assert_eq!(count(&heard, &Method::DELETE), 2);
}

#[tokio::test]
async fn a_refusal_stops_the_rest_and_is_tried_again() {
    let (client, heard) = server(|method, _| *method == Method::POST);
    let controller = controller(client);
    controller.sets.put(set(50));
    let key = ObjectKey::new("ns", "rs");
    assert!(controller.reconcile(&key).await.is_err());
    assert_eq!(count(&heard, &Method::POST), 1, "slow start");
    assert!(controller.expectations.satisfied(&key), "what did not happen is not waited for");
    assert!(controller.reconcile(&key).await.is_err());
    assert_eq!(count(&heard, &Method::POST), 2);
}

#[tokio::test]
async fn a_replication_controller_is_served_alike() {
    let (client, heard) = server(|_, _| false);
    let controller = controller::<ReplicationController>(client);
    let spec =
        json!({"replicas": 2, "selector": {"app": "a"}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}}});
    let metadata = json!({"name": "rc", "namespace": "ns", "uid": "rc", "resourceVersion": "1"});
    controller.sets.put(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a ReplicationController"));
    let key = ObjectKey::new("ns", "rc");
    for _ in 0..2 {
        controller.reconcile(&key).await.expect("a pass");
    }
    assert_eq!(count(&heard, &Method::POST), 2);
    let owner = json!([{"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": "rc", "controller": true}]);
    for name in ["a", "b"] {
        let mut pod = pod(name);
        pod.metadata.owner_references = serde_json::from_value(owner.clone()).expect("owners");
        controller.pods.put(pod.clone());
        observe(&Change { old: None, new: Some(Arc::new(pod)) }, &controller.sets, &controller.expectations);
    }
    assert!(controller.expectations.satisfied(&key), "its Pods fulfil the expectations");
    controller.reconcile(&key).await.expect("a pass");
    assert_eq!(count(&heard, &Method::POST), 2);
}
