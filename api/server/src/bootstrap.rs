//! What every cluster has from its first moment: namespaces, roles, priority classes, runtime
//! classes, the Services of the API server and of the DNS, and what a node needs to join.
//!
//! Everything goes through the same door as any client's objects, as a member of `system:masters`.
//! What is there already stays as it is, but for what upstream keeps up to date too: roles and
//! bindings regain what they lost (unless they are marked otherwise), the `kubernetes` endpoints follow the servers' addresses.

mod flow_control;
mod join;
mod network;
mod objects;
mod roles;

pub(crate) use join::PUBLISHED_AUTHORITY;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_model::kind::find_by_kind;
use api_model::meta;
use api_model::request::UserInfo;
use api_model::view::View;
use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use thiserror::Error;

use crate::aggregation;
use crate::app::App;
use crate::authenticate::Identity;
use crate::handle::handle;

/// Upstream's interval of looking after the `kubernetes` Service.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// Upstream's interval of looking after the system's namespaces, and after flow control.
const RESTORE_EVERY: Duration = Duration::from_secs(60);
/// Requests at once: the store commits them together.
const AT_ONCE: usize = 64;

/// An object that every cluster has could not be made.
#[derive(Debug, Error)]
#[error("making {kind} {name:?} at the start: {message}")]
pub struct BootstrapError {
    kind: String,
    name: String,
    message: String,
}

/// Makes what is missing, in an order in which later objects find what they refer to.
pub(crate) async fn run(app: &Arc<App>) -> Result<(), BootstrapError> {
    ensure(app, objects::namespaces()).await?;
    let mut rest = objects::classes();
    rest.extend(flow_control::objects());
    rest.extend(flow_control::revised(&*app.cache));
    let roles = roles::changes(app);
    for object in roles.delete {
        send(app, object, Method::DELETE).await?;
    }
    rest.extend(roles.write);
    rest.extend(network::services(&app.config));
    rest.extend(join::objects(&app.config));
    rest.extend(join::published_authority(app));
    rest.extend(aggregation::local::builtin());
    ensure(app, rest).await
}

/// Publishes these servers as what the `kubernetes` Service leads to, and that Service where somebody deleted it.
pub(crate) async fn publish(app: &Arc<App>, servers: &[SocketAddr]) -> Result<(), BootstrapError> {
    ensure(app, network::services(&app.config)).await?;
    replace(app, network::endpoints(servers)).await
}

/// Brings what a server alone has published back until it stops, where somebody deleted it.
pub(crate) async fn keep(app: Arc<App>) {
    while tokio::time::timeout(KEEP_EVERY, app.shutdown.cancelled()).await.is_err() {
        let published = [network::services(&app.config), network::endpoints(&[app.config.advertise_address])].concat();
        if let Err(error) = ensure(&app, published).await {
            tracing::warn!(%error, "the server's own service is not brought back; it will be tried again");
        }
    }
}

/// Brings back what somebody deleted and every cluster needs, until the server stops: the system's namespaces, the
/// suggestions of flow control (also where somebody changed them, see [`flow_control::revised`]), and the authority that
/// aggregated servers read. As upstream, roles and classes come back when a server starts.
pub(crate) async fn restore(app: Arc<App>) {
    while tokio::time::timeout(RESTORE_EVERY, app.shutdown.cancelled()).await.is_err() {
        let mut rest = flow_control::objects();
        rest.extend(flow_control::revised(&*app.cache));
        rest.extend(join::published_authority(&app));
        for objects in [objects::namespaces(), rest] {
            if let Err(error) = ensure(&app, objects).await {
                tracing::warn!(%error, "what every cluster has is not brought back; it will be tried again");
            }
        }
    }
}

/// Creates objects; those that exist stay, but for those that bear a resource version. All are tried; the error is the
/// first one.
pub(crate) async fn ensure(app: &Arc<App>, objects: Vec<Value>) -> Result<(), BootstrapError> {
    let missing = objects.into_iter().filter(|object| !meta::resource_version(object).is_empty() || !exists(app, object));
    let made = futures::stream::iter(missing).map(|object| send(app, object, Method::POST)).buffer_unordered(AT_ONCE);
    made.fold(Ok(()), async |first, made| first.and(made)).await
}

/// Creates objects or brings them up to date.
async fn replace(app: &Arc<App>, objects: Vec<Value>) -> Result<(), BootstrapError> {
    for object in objects {
        send(app, object.clone(), Method::POST).await?;
        send(app, object, Method::PUT).await?;
    }
    Ok(())
}

fn exists(app: &App, object: &Value) -> bool {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = find_by_kind(text("apiVersion"), text("kind")) else { return false };
    let namespace = kind.namespaced.then(|| meta::namespace(object));
    app.cache.get(&kind.group_resource(), namespace, meta::name(object)).is_some()
}

async fn send(app: &Arc<App>, object: Value, method: Method) -> Result<(), BootstrapError> {
    let field = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, name) = (field("kind"), meta::name(&object).to_owned());
    let failed = |message: String| BootstrapError { kind: kind.clone(), name: name.clone(), message };
    // A role that lost something is there: it is replaced.
    let method = if meta::resource_version(&object).is_empty() || method == Method::DELETE { method } else { Method::PUT };
    let mut path = collection(&field("apiVersion"), &kind, meta::namespace(&object)).ok_or_else(|| failed("no such kind".to_owned()))?;
    if method != Method::POST {
        path.push('/');
        path.push_str(&name);
    }
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    // Upstream's name of who made it, in `managedFields`.
    let request = request.header(header::USER_AGENT, "kube-apiserver");
    let body = if request.method_ref() == Some(&Method::DELETE) { Body::empty() } else { Body::from(object.to_string()) };
    let mut request = request.body(body).map_err(|error| failed(error.to_string()))?;
    let user = UserInfo::new("system:apiserver", &["system:masters"]);
    request.extensions_mut().insert(Identity(Arc::new(user)));
    let response = handle(Arc::clone(app), request).await;
    if response.status().is_success() || response.status() == StatusCode::CONFLICT {
        return Ok(());
    }
    let body = axum::body::to_bytes(response.into_body(), api_wire::body::BODY_BYTES_MAX).await.unwrap_or_default();
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(failed(status.get("message").and_then(Value::as_str).unwrap_or("no answer").to_owned()))
}

fn collection(api_version: &str, kind: &str, namespace: &str) -> Option<String> {
    let kind = find_by_kind(api_version, kind)?;
    let root = if kind.group.is_empty() { "api" } else { "apis" };
    Some(match kind.namespaced {
        true => format!("/{root}/{api_version}/namespaces/{namespace}/{}", kind.plural),
        false => format!("/{root}/{api_version}/{}", kind.plural),
    })
}
