//! Connections through the server: `log`, `exec`, `attach`, `portforward` to a Pod's node, and `proxy`.
//!
//! The server terminates no protocol. It streams a log as the node sends it. For the other subresources it passes the client's
//! upgrade request to the node and the node's answer to the client, and from then on bytes in both directions, whether the two
//! ends agreed on websocket or SPDY.

mod node;
mod options;
mod proxy;
mod target;
pub(crate) mod tunnel;

use std::sync::Arc;

use api_admission::Operation;
use api_upstream::backend::ConnectError;
use api_upstream::proxyable::Proxyable;
use api_upstream::tls::{self, TlsError};
use arc_swap::ArcSwap;
use axum::body::Body;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use hyper::client::conn::http1::SendRequest;
use tokio_rustls::TlsConnector;

pub(crate) use self::target::Kubelet;
use self::target::Target;
use crate::attributes::Step;
use crate::call::Call;
use crate::core::Core;
use crate::verbs::WritePath;
use api_wire::answer::text;
use api_wire::status::{ApiError, ApiResult};

/// Makes connections to nodes, Pods and Services.
pub(crate) struct Connector {
    core: Arc<Core>,
    writes: Arc<WritePath>,
    /// With the present client certificate.
    node_tls: ArcSwap<TlsConnector>,
    /// For backends of a proxy. Nobody here can check their certificates.
    proxy_tls: TlsConnector,
}

impl Connector {
    /// # Errors
    /// When the cluster's keys cannot be used for TLS.
    pub(crate) fn new(core: &Arc<Core>, writes: &Arc<WritePath>) -> Result<Self, TlsError> {
        let (node_tls, proxy_tls) = (ArcSwap::from_pointee(tls::node_connector(&core.config.pki)?), tls::proxy_connector()?);
        Ok(Self { core: Arc::clone(core), writes: Arc::clone(writes), node_tls, proxy_tls })
    }

    /// Uses another certificate for nodes from now on.
    pub(crate) fn renew(&self, node_tls: TlsConnector) {
        self.node_tls.store(Arc::new(node_tls));
    }

    /// Connects to a node's server as the user of that certificate.
    pub(crate) async fn to_node(&self, kubelet: &Kubelet, tls: &TlsConnector) -> Result<SendRequest<Body>, ConnectError> {
        node::dial_as(self, kubelet, tls).await
    }

    #[cfg(test)]
    pub(crate) fn node_tls(&self) -> Arc<TlsConnector> {
        self.node_tls.load_full()
    }

    /// The addresses to which clients may have connections made.
    fn proxyable(&self) -> Proxyable {
        let config = &self.core.config;
        Proxyable::new(&*self.core.cache, config.advertise_address, config.service_cluster_ip_range)
    }
}

/// Answers a request for such a subresource.
pub(crate) async fn answer(connector: &Connector, mut call: Call, parts: Parts, body: Body) -> ApiResult<Response<Body>> {
    if call.subresource == "proxy" {
        return proxy::answer(connector, call, parts, body).await;
    }
    // A websocket begins with GET. A user who may only get Pods must not run commands in them in this way
    // (upstream's AuthorizePodWebsocketUpgradeCreatePermission).
    if call.subresource != "log" && parts.method != Method::POST {
        call.check_may("create")?;
    }
    let pod = call.object()?.value();
    let name = call.name.clone();
    let step = Step { operation: Operation::Connect, name: &name, old: None, dry_run: false };
    if call.subresource != "log" {
        options::through_admission(&connector.writes.admission, &mut call, step).await?;
    }
    let Some(target) = Target::of(&call, &pod)? else {
        // A Pod without a node has no log yet.
        return match call.subresource.as_str() {
            "log" => Ok(text(StatusCode::OK, Body::empty())),
            _ => Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.name))),
        };
    };
    match call.subresource.as_str() {
        "log" => log(connector, &target).await,
        _ => tunnel::open(connector, &call, &target, parts).await,
    }
}

/// The node's answer, piece by piece as the node sends it.
async fn log(connector: &Connector, target: &Target) -> ApiResult<Response<Body>> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(&target.path)
        .header(header::HOST, target.kubelet.address.authority())
        .body(Body::empty());
    let request = request.map_err(ApiError::internal)?;
    let mut sender = node::connect(connector, target).await?;
    let answer = node::ask(&mut sender, target, request).await?;
    if answer.status().is_success() {
        return Ok(text(StatusCode::OK, Body::new(answer.into_body())));
    }
    Err(node::refused(target, answer).await)
}
