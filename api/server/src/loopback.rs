//! The server as its own client (upstream's loopback client): what the server needs in the store goes through the same door as
//! any client's objects, as a member of `system:masters`.

use std::pin::Pin;
use std::sync::Arc;

use api_model::kind::find_by_kind;
use api_model::meta;
use api_model::request::UserInfo;
use api_model::view::View as _;
use axum::body::Body;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode, header};
use serde_json::Value;
use thiserror::Error;

use crate::authenticate::Identity;
use crate::core::Core;

/// Requests at once: the store commits them together.
const AT_ONCE: usize = 64;
/// Upstream's name of the writer, in `managedFields`.
const AGENT: &str = "kube-apiserver";

type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = dyn Fn(Request<Body>) -> Answering + Send + Sync;

/// An object that every cluster has could not be made.
#[derive(Debug, Error)]
#[error("making {kind} {name:?} at the start: {message}")]
pub struct BootstrapError {
    kind: String,
    name: String,
    message: String,
}

/// The way from the server to itself.
#[derive(Clone)]
pub(crate) struct Loopback {
    pub(crate) core: Arc<Core>,
    handler: Arc<Handler>,
}

/// The user that the server is to itself.
pub(crate) fn user() -> UserInfo {
    UserInfo::new("system:apiserver", &["system:masters"])
}

impl Loopback {
    /// `handler` answers requests.
    pub(crate) fn new(core: &Arc<Core>, handler: impl Fn(Request<Body>) -> Answering + Send + Sync + 'static) -> Self {
        Self { core: Arc::clone(core), handler: Arc::new(handler) }
    }

    /// Sends a request with an object, or without a body.
    pub(crate) async fn send(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Response<Body>, http::Error> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.header(header::USER_AGENT, AGENT);
        let mut request = request.body(object.map_or_else(Body::empty, |object| Body::from(object.to_string())))?;
        request.extensions_mut().insert(Identity(Arc::new(user())));
        Ok((self.handler)(request).await)
    }

    /// Creates objects. Objects that exist stay as they are, but for those of `objects` that bear a resource version: these
    /// are replaced. All are tried; the error is the first one.
    pub(crate) async fn ensure(&self, objects: Vec<Value>) -> Result<(), BootstrapError> {
        let missing = objects.into_iter().filter(|object| !meta::resource_version(object).is_empty() || !self.exists(object));
        let made = futures::stream::iter(missing).map(|object| self.write(object, Method::POST)).buffer_unordered(AT_ONCE);
        made.fold(Ok(()), async |first, made| first.and(made)).await
    }

    /// Creates objects or brings them up to date.
    pub(crate) async fn replace(&self, objects: Vec<Value>) -> Result<(), BootstrapError> {
        for object in objects {
            self.write(object.clone(), Method::POST).await?;
            self.write(object, Method::PUT).await?;
        }
        Ok(())
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, object: Value) -> Result<(), BootstrapError> {
        self.write(object, Method::DELETE).await
    }

    fn exists(&self, object: &Value) -> bool {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let Some(kind) = find_by_kind(text("apiVersion"), text("kind")) else { return false };
        let namespace = kind.namespaced.then(|| meta::namespace(object));
        self.core.cache.get(&kind.group_resource(), namespace, meta::name(object)).is_some()
    }

    async fn write(&self, object: Value, method: Method) -> Result<(), BootstrapError> {
        let field = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (field("kind"), meta::name(&object).to_owned());
        let failed = |message: String| BootstrapError { kind: kind.clone(), name: name.clone(), message };
        // A role that lost something exists: it is replaced.
        let method = if meta::resource_version(&object).is_empty() || method == Method::DELETE { method } else { Method::PUT };
        let path = collection(&field("apiVersion"), &kind, meta::namespace(&object));
        let mut path = path.ok_or_else(|| failed("no such kind".to_owned()))?;
        if method != Method::POST {
            path.push('/');
            path.push_str(&name);
        }
        let body = (method != Method::DELETE).then_some(&object);
        let response = self.send(method, &path, body).await.map_err(|error| failed(error.to_string()))?;
        if response.status().is_success() || response.status() == StatusCode::CONFLICT {
            return Ok(());
        }
        let body = axum::body::to_bytes(response.into_body(), api_wire::body::BODY_BYTES_MAX).await.unwrap_or_default();
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        Err(failed(status.get("message").and_then(Value::as_str).unwrap_or("no answer").to_owned()))
    }
}

fn collection(api_version: &str, kind: &str, namespace: &str) -> Option<String> {
    let kind = find_by_kind(api_version, kind)?;
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    Some(match kind.namespaced {
        true => format!("/{root}/{api_version}/namespaces/{namespace}/{}", kind.plural),
        false => format!("/{root}/{api_version}/{}", kind.plural),
    })
}
