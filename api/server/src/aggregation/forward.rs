//! Forwards a request to an aggregated server: unchanged, with the user's name in headers. Watches, uploads and
//! upgraded connections are streamed; an upgraded connection has its own connection to the server.

use api_model::percent;
use api_model::request::UserInfo;
use axum::body::Body;
use futures::StreamExt as _;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::client::conn::http1::SendRequest;

use super::{Aggregation, Remote};
use api_upstream::backend::ConnectError;
use api_upstream::failure::Failure;
use api_upstream::headers::is_upgrade as wants_upgrade;
use api_upstream::pass::{Answered, Passed, Way, pass};

use crate::connect::tunnel;
use crate::core::Core;
use api_wire::answer::text;
use api_wire::status::{ApiError, ApiResult};

/// The error for a redirect from the aggregated server; upstream's text.
const REDIRECTED: &str = "the backend attempted to redirect this request, which is not permitted";
/// The whole error body for a server that is not available.
const UNAVAILABLE: &str = "service unavailable\n";

/// Forwards a request. When this server stops, it ends watches; other requests may finish.
pub(crate) async fn forward(
    aggregation: &Aggregation,
    remote: &Remote,
    user: &UserInfo,
    mut parts: Parts,
    body: Body,
    is_watch: bool,
) -> ApiResult<Response<Body>> {
    if !remote.is_available {
        return Ok(text(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE));
    }
    let (core, identity) = (&*aggregation.core, identity(user)?);
    let is_upgrade = wants_upgrade(&parts.headers);
    let passing = async {
        let (host, target) = (remote.host(), parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned());
        let link = aggregation.link(remote)?;
        let way = match is_upgrade {
            true => Way::Own(link.server.connect(&core.driver).await?),
            false => Way::Pooled(&link.server),
        };
        let passed = Passed { host: &host, target: &target, headers: &parts.headers.clone(), more: identity };
        let Answered { response, upgraded } = pass(&core.driver, way, &mut parts, passed, body).await?;
        if let Some(ends) = upgraded {
            tunnel::join_beside(core, ends, &parts);
        }
        Ok(without_redirect(response))
    };
    let limit = core.config.request_timeout;
    let answered = match is_upgrade {
        true => Ok(passing.await),
        false => tokio::time::timeout(limit, passing).await,
    };
    match answered {
        Ok(Ok(answer)) if is_watch && !is_upgrade => Ok(until_stopping(core, answer)),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Failure { why, is_of_request, .. })) => {
            tracing::info!(apiservice = remote.name, why, "an aggregated server did not answer");
            if !is_of_request {
                aggregation.did_not_answer(remote);
            }
            Ok(text(StatusCode::SERVICE_UNAVAILABLE, format!("error trying to reach service: {why}\n")))
        }
        Err(_) => {
            aggregation.did_not_answer(remote);
            Err(ApiError::took_too_long())
        }
    }
}

/// A client that followed the redirect would send its token to any host that the aggregated server names
/// (CVE-2022-3172).
fn without_redirect(answer: Response<Body>) -> Response<Body> {
    let leads_elsewhere = answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION);
    if leads_elsewhere { text(StatusCode::BAD_GATEWAY, REDIRECTED) } else { answer }
}

/// An answer that ends when the server stops. A watch may end at any time.
fn until_stopping(core: &Core, answer: Response<Body>) -> Response<Body> {
    let stopping = core.shutdown.clone().cancelled_owned();
    answer.map(|body| Body::from_stream(body.into_data_stream().take_until(stopping)))
}

/// Connects to one of the endpoints of the server's Service, with the front proxy's certificate.
pub(super) async fn connect(aggregation: &Aggregation, remote: &Remote) -> Result<SendRequest<Body>, ConnectError> {
    aggregation.link(remote)?.server.connect(&aggregation.core.driver).await
}

/// The headers with the user of a request.
pub(super) fn identity(user: &UserInfo) -> ApiResult<HeaderMap> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| -> ApiResult<()> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(ApiError::internal)?;
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).map_err(ApiError::internal)?);
        Ok(())
    };
    add("x-remote-user", &user.username)?;
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group", group)?;
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", percent::encode(key, percent::HEADER_NAME));
        values.iter().try_for_each(|value| add(&name, value))?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_user_is_forwarded() {
        let mut user = UserInfo::new("jane", &["a", "b"]);
        user.uid = "7".to_owned();
        user.extra.insert("example.com/scope".to_owned(), vec!["x".to_owned(), "y".to_owned()]);
        let headers = identity(&user).expect("headers");
        let all: Vec<String> = headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().expect("text"))).collect();
        let wanted = [
            "x-remote-user=jane",
            "x-remote-uid=7",
            "x-remote-group=a",
            "x-remote-group=b",
            "x-remote-extra-example.com%2fscope=x",
            "x-remote-extra-example.com%2fscope=y",
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn what_is_no_header_is_not_sent() {
        assert!(identity(&UserInfo::new("jane\r\nX-Remote-Group: system:masters", &[])).is_err());
    }
}
