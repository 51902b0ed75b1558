//! `proxy`: forwards any HTTP request to a Pod, to one of the Pods behind a Service, or to a node's own server, and
//! returns the answer. Both stay unchanged, except for headers of a single hop. Upgraded connections are joined.
//!
//! Links in HTML pages are not rewritten; the `Location` of a redirect is.

mod location;

use api_admission::Operation;
use api_clock::rand::seq::IndexedRandom as _;
use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use hyper::client::conn::http1::SendRequest;

use self::location::{Location, Reach};
use api_upstream::backend::{self, ConnectError, Tls};
use api_upstream::headers::is_upgrade as wants_upgrade;
use api_upstream::pass::{Answered, Passed, Way, pass};

use super::Connector;
use super::node;
use super::options;
use super::tunnel;
use crate::attributes::Step;
use crate::call::Call;
use api_wire::answer::text;
use api_wire::status::{ApiError, ApiResult};

/// Answers a request for a `proxy` subresource.
pub(super) async fn answer(connector: &Connector, mut call: Call, parts: Parts, body: Body) -> ApiResult<Response<Body>> {
    let candidates = location::find(&call)?;
    let name = call.name.clone();
    let step = Step { operation: Operation::Connect, name: &name, old: None, dry_run: false };
    let prefix = parts.uri.path().strip_suffix(call.rest.as_str()).unwrap_or_default().to_owned();
    options::through_admission(&connector.writes.admission, &mut call, step).await?;
    let is_upgrade = wants_upgrade(&call.headers);
    if call.rest.is_empty() && !is_upgrade && matches!(parts.method, Method::GET | Method::HEAD) {
        return redirect_to_root(&parts.uri);
    }
    let location = candidates.choose(&mut api_clock::rng()).ok_or_else(|| ApiError::internal("nowhere to go"))?;
    forward(connector, &call, location, &prefix, parts, body).await
}

/// Relative links in a page work only below a path that ends with a slash.
fn redirect_to_root(uri: &Uri) -> ApiResult<Response<Body>> {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = HeaderValue::from_str(&format!("{}/{query}", uri.path())).map_err(ApiError::internal)?;
    let mut response = text(StatusCode::MOVED_PERMANENTLY, Body::empty());
    response.headers_mut().insert(header::LOCATION, target);
    Ok(response)
}

async fn forward(
    connector: &Connector,
    call: &Call,
    location: &Location,
    prefix: &str,
    mut parts: Parts,
    body: Body,
) -> ApiResult<Response<Body>> {
    let unreachable = |error: String| ApiError::unavailable(format!("error trying to reach service: {error}"));
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = if call.rest.is_empty() { "/" } else { &call.rest };
    let authority = location.address().authority();
    let sender = connect(connector, location).await.map_err(|error| match error {
        ConnectError::NotAllowed => ApiError::bad_request(error.to_string()),
        error => unreachable(error.to_string()),
    })?;
    let passed = Passed { host: &authority, target: &format!("{path}{query}"), headers: &call.headers, more: HeaderMap::new() };
    let answered = pass(&connector.core.driver, Way::Own(sender), &mut parts, passed, body).await;
    let Answered { mut response, upgraded } = answered.map_err(|failure| unreachable(failure.why))?;
    if let Some(ends) = upgraded {
        tunnel::join_beside(&connector.core, ends, &parts);
    }
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        rewrite_location(response.headers_mut(), prefix, &authority);
    }
    Ok(response)
}

async fn connect(connector: &Connector, location: &Location) -> Result<SendRequest<Body>, ConnectError> {
    let (reach, address) = match location {
        Location::Kubelet(kubelet) => return node::dial(connector, kubelet).await,
        Location::Port(reach, address) => (reach, address),
    };
    let tls = Tls { connector: &connector.proxy_tls, name: &address.host, subject: None };
    let tls = (*reach == Reach::Tls).then_some(tls);
    backend::connect(&connector.core.driver, address, &connector.proxyable(), tls).await
}

/// A redirect to a path of the backend becomes a redirect to the same path below the proxy's path.
fn rewrite_location(headers: &mut HeaderMap, prefix: &str, authority: &str) {
    let Some(location) = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()) else { return };
    let Ok(uri) = location.parse::<Uri>() else { return };
    let is_elsewhere = uri.authority().is_some_and(|host| host.as_str() != authority);
    if is_elsewhere || !uri.path().starts_with('/') || uri.path().starts_with(&format!("{prefix}/")) || location.starts_with("//") {
        return;
    }
    let below = uri.path_and_query().map_or("/", |path| path.as_str());
    if let Ok(value) = HeaderValue::from_str(&format!("{prefix}{below}")) {
        headers.insert(header::LOCATION, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_below_the_proxy() {
        let prefix = "/api/v1/namespaces/a/pods/p/proxy";
        for (said, wanted) in [
            ("/login?next=x", "/api/v1/namespaces/a/pods/p/proxy/login?next=x"),
            ("http://10.0.0.9:80/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
            ("http://example.test/x", "http://example.test/x"),
            ("//example.test/x", "//example.test/x"),
            ("login", "login"),
            ("/api/v1/namespaces/a/pods/p/proxy/x", "/api/v1/namespaces/a/pods/p/proxy/x"),
        ] {
            let mut headers = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static(said))]);
            rewrite_location(&mut headers, prefix, "10.0.0.9:80");
            assert_eq!(headers[header::LOCATION], wanted, "{said}");
        }
    }
}
