//! The server as its clients see it, in one process and without a socket, on the memory store.

mod access;
mod admission;
mod aggregate;
mod apply;
mod at_rest;
mod audit;
mod battery;
mod cluster_objects;
mod crud;
mod custom;
mod deletion;
mod early_answers;
mod expiry;
mod external_metrics;
mod fairness;
mod hostile;
mod lists;
mod nodes;
mod oidc;
mod patches;
mod policies;
mod protobuf;
mod resource_metrics;
mod restart;
mod services;
mod shapes;
mod shared;
mod sockets;
mod subresources;
mod texts;
mod typed;
mod unacted;
mod watches;
mod webhooks;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use api_auth::{Pki, PkiConfig};
use api_model::request::UserInfo;
use api_store::{MemoryStore, Store};
use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{Config, InProcess, Server};

/// Keys take a while to make, so all tests share one cluster's.
static PKI: LazyLock<Arc<Pki>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"))
});

pub(crate) fn config() -> Config {
    let config = Config::new(Arc::clone(&PKI), SocketAddr::from(([10, 0, 0, 1], 6443)));
    // Their nodes are sockets there.
    Config { nodes_on_loopback: true, ..config }
}

/// The administrator's certificate.
pub(crate) fn admin_identity() -> api_auth::Identity {
    PKI.issue_client("kubernetes-admin", &["system:masters"], std::time::Duration::from_secs(3_600)).expect("a certificate")
}

/// A server and a client that may do everything.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) store: Arc<dyn Store>,
    admin: InProcess,
}

pub(crate) async fn cluster() -> Cluster {
    cluster_on(Arc::new(MemoryStore::new())).await
}

pub(crate) async fn cluster_on(store: Arc<dyn Store>) -> Cluster {
    cluster_with(config(), store).await
}

pub(crate) async fn cluster_with(config: Config, store: Arc<dyn Store>) -> Cluster {
    let server = Server::start(config, Arc::clone(&store)).await.expect("starts");
    let admin = server.client(UserInfo::new("admin", &["system:masters", "system:authenticated"]));
    Cluster { server, store, admin }
}

/// An answer whose body is JSON.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The body, of a request that must have gone well.
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// Status code and message.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status.as_u16(), self.body["message"].as_str().unwrap_or_default())
    }
}

pub(crate) async fn send(client: &InProcess, request: Request<Body>) -> Response<Body> {
    client.clone().oneshot(request).await.expect("infallible")
}

pub(crate) async fn json_of(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    Answer { status: parts.status, headers: parts.headers, body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()) }
}

impl Cluster {
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> InProcess {
        self.server.client(UserInfo::new(name, groups))
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> Response<Body> {
        send(&self.admin, request).await
    }

    pub(crate) async fn request(&self, method: Method, path: &str, media: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media).body(body.into()).expect("a request");
        json_of(self.raw(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, "application/json", Body::empty()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let request = Request::builder().uri(path).header(header::ACCEPT, accept).body(Body::empty()).expect("a request");
        json_of(self.raw(request).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.request(Method::POST, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.request(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        let media = match kind {
            "strategic" => "application/strategic-merge-patch+json".to_owned(),
            kind => format!("application/{kind}-patch+json"),
        };
        self.request(Method::PATCH, path, &media, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.request(Method::DELETE, path, "application/json", Body::empty()).await
    }

    /// A ConfigMap in `default`.
    pub(crate) async fn config_map(&self, name: &str, labels: Value) -> Value {
        self.post(CONFIG_MAPS, config_map(name, labels)).await.ok()
    }

    /// A Pod in `default`, bound to a node where one is given.
    pub(crate) async fn pod(&self, name: &str, node: &str) -> Value {
        self.service_account().await;
        let mut pod = pod(name);
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
        }
        self.post(PODS, pod).await.ok()
    }

    /// The ServiceAccount that Pods in `default` run as; a controller makes it in a whole cluster.
    pub(crate) async fn service_account(&self) {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let answer = self.post("/api/v1/namespaces/default/serviceaccounts", account).await;
        assert!(answer.status.is_success() || answer.status == StatusCode::CONFLICT, "{answer:?}");
    }
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) fn config_map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"key": "value"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "image"}]}})
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("a list").iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}
