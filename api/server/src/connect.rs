//! Connections through the server: `log`, `exec`, `attach`, `portforward` to a Pod's node, and `proxy`.
//!
//! The server terminates nothing. For a log it passes the node's answer on as it comes; for the
//! others it hands the client's upgrade request to the node, the node's answer to the client, and
//! from then on bytes both ways, whatever protocol the two have agreed on: websocket or SPDY.

mod node;
mod options;
mod proxy;
mod target;
pub(crate) mod tunnel;

use api_admission::Operation;
use api_upstream::proxyable::Proxyable;
use axum::body::Body;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};

use self::target::Target;
use crate::app::{App, Call};
use crate::handle::text;
use crate::verbs::admit::Step;
use api_wire::status::{ApiError, ApiResult};

/// Answers a request for such a subresource.
pub(crate) async fn answer(mut call: Call, parts: Parts, body: Body) -> ApiResult<Response<Body>> {
    if call.subresource == "proxy" {
        return proxy::answer(call, parts, body).await;
    }
    // A websocket begins with GET. Who may only get Pods must not run anything in them by that
    // (upstream's AuthorizePodWebsocketUpgradeCreatePermission).
    if call.subresource != "log" && parts.method != Method::POST {
        call.check_may("create")?;
    }
    let pod = call.object()?.value();
    let name = call.name.clone();
    let step = Step { operation: Operation::Connect, name: &name, old: None, dry_run: false };
    if call.subresource != "log" {
        options::through_admission(&mut call, step).await?;
    }
    let Some(target) = Target::of(&call, &pod)? else {
        // A Pod without a node has not logged anything yet.
        return match call.subresource.as_str() {
            "log" => Ok(text(StatusCode::OK, Body::empty())),
            _ => Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.name))),
        };
    };
    match call.subresource.as_str() {
        "log" => log(&call, &target).await,
        _ => tunnel::open(&call, &target, parts).await,
    }
}

/// Where connections that clients ask for may lead.
fn proxyable(app: &App) -> Proxyable {
    Proxyable::new(&*app.cache, app.config.advertise_address, app.config.service_cluster_ip_range)
}

/// The node's answer, piece by piece as the node sends it.
async fn log(call: &Call, target: &Target) -> ApiResult<Response<Body>> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(&target.path)
        .header(header::HOST, target.kubelet.address.authority())
        .body(Body::empty());
    let request = request.map_err(ApiError::internal)?;
    let mut sender = node::connect(&call.app, target).await?;
    let answer = node::ask(&mut sender, target, request).await?;
    if answer.status().is_success() {
        return Ok(text(StatusCode::OK, Body::new(answer.into_body())));
    }
    Err(node::refused(target, answer).await)
}
