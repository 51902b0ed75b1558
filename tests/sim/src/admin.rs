//! The client of the run itself: it speaks to the server without the network, in JSON.

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

/// A client with all rights.
#[derive(Clone)]
pub struct Admin(Client);

impl Admin {
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    pub async fn create(&self, resource: &str, namespace: &str, object: &Value) -> kube::Result<Value> {
        self.send(Method::POST, &path(resource, namespace, ""), "application/json", object).await
    }

    pub async fn get(&self, resource: &str, namespace: &str, name: &str) -> kube::Result<Value> {
        self.send(Method::GET, &path(resource, namespace, name), "application/json", &Value::Null).await
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Value) -> kube::Result<Value> {
        self.send(Method::PATCH, &path(resource, namespace, name), "application/merge-patch+json", patch).await
    }

    /// Deletes an object; what depends on it is treated as `propagation` says.
    pub async fn delete(&self, resource: &str, namespace: &str, name: &str, propagation: &str) -> kube::Result<Value> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
        self.send(Method::DELETE, &path(resource, namespace, name), "application/json", &options).await
    }

    /// Evicts a Pod, as `kubectl drain` does.
    pub async fn evict(&self, namespace: &str, name: &str) -> kube::Result<Value> {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}});
        let path = format!("{}/eviction", path("pods", namespace, name));
        self.send(Method::POST, &path, "application/json", &eviction).await
    }

    async fn send(&self, method: Method, path: &str, media: &str, body: &Value) -> kube::Result<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, media).body(body);
        self.0.request(request.expect("a request")).await
    }
}

fn path(resource: &str, namespace: &str, name: &str) -> String {
    let version = match resource {
        "deployments" | "statefulsets" | "daemonsets" | "replicasets" => "/apis/apps/v1",
        "jobs" | "cronjobs" => "/apis/batch/v1",
        "podgroups" => "/apis/scheduling.k8s.io/v1beta1",
        "priorityclasses" => "/apis/scheduling.k8s.io/v1",
        "poddisruptionbudgets" => "/apis/policy/v1",
        _ => "/api/v1",
    };
    let namespace = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let name = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{version}{namespace}/{resource}{name}")
}
