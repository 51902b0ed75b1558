//! Subresources. Those that show the whole object (`status`, `approval`, `finalize`, …) go through the same verbs as the object itself.
//! Each of the others has a file.

pub(crate) mod binding;
mod eviction;
mod scale;
mod token;

use axum::body::Body;
use http::Response;
use http::request::Parts;

use crate::call::Call;
use crate::connect::{self, Connector};
use crate::verbs::{self, WritePath};
use api_wire::status::{ApiError, ApiResult};

fn check(call: &Call, verb: &str) -> ApiResult<()> {
    let served = call.served.kind.subresource(&call.subresource).ok_or_else(ApiError::no_such_resource)?;
    let is_bare = call.rest.is_empty() || call.subresource == "proxy";
    match served.verbs.iter().any(|allowed| allowed == verb) {
        _ if !is_bare => Err(ApiError::no_such_resource()),
        true => Ok(()),
        false => Err(ApiError::method_not_allowed()),
    }
}

/// Answers a request for a subresource that is data.
pub(crate) async fn answer(path: &WritePath, call: &mut Call, verb: &str, bytes: &[u8]) -> ApiResult<Response<Body>> {
    check(call, verb)?;
    match (call.subresource.as_str(), verb) {
        ("scale", _) => scale::answer(path, call, verb, bytes).await,
        ("binding", _) => binding::bind(path, call, bytes).await,
        ("eviction", _) => eviction::evict(path, call, bytes).await,
        ("token", _) => token::request(&path.admission, call, bytes).await,
        (_, "get") => verbs::get::get(call).await,
        (_, "update") => verbs::update::update(path, call, bytes).await,
        (_, "patch") => verbs::patch::patch(path, call, bytes).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Answers a request for a subresource that is a connection.
pub(crate) async fn connect(connector: &Connector, call: Call, parts: Parts, body: Body) -> ApiResult<Response<Body>> {
    let verb = match parts.method.as_str() {
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        // Discovery has no verb for OPTIONS, and authorization was asked about the verb "".
        "OPTIONS" if call.subresource == "proxy" => "get",
        _ => "",
    };
    check(&call, verb)?;
    connect::answer(connector, call, parts, body).await
}
