//! Forwards a client's request to a backend without hop-by-hop headers, and returns the response. The two connections
//! of an upgrade are returned too, so that the caller can join them.

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::OnUpgrade;

use crate::backend::Driver;
use crate::failure::Failure;
use crate::headers;
use crate::pool::Server;

/// The connection for a request.
pub enum Way<'w> {
    /// A new connection for this request, which may be upgraded.
    Own(SendRequest<Body>),
    /// A pooled connection.
    Pooled(&'w Server),
}

impl Way<'_> {
    async fn send(self, driver: &Driver, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        match self {
            Self::Own(mut sender) => sender.send_request(request).await.map_err(|error| Failure::of_own(&error)),
            Self::Pooled(server) => server.send(driver, request).await,
        }
    }
}

/// The parts of the request besides method and body.
pub struct Passed<'p> {
    /// The value of the `Host` header.
    pub host: &'p str,
    /// Path and query.
    pub target: &'p str,
    /// The client's headers.
    pub headers: &'p HeaderMap,
    /// The server's own headers.
    pub more: HeaderMap,
}

/// The response for the client.
pub struct Answered {
    /// Its head, and its body if the connection was not upgraded.
    pub response: Response<Body>,
    /// The two connections to join after an upgrade.
    pub upgraded: Option<Upgraded>,
}

/// Both connections of an upgrade.
pub struct Upgraded {
    /// The connection to the client.
    pub client: OnUpgrade,
    /// The connection to the backend.
    pub backend: OnUpgrade,
}

/// Forwards a request. Returns the response, or why there is none.
pub async fn pass(driver: &Driver, way: Way<'_>, parts: &mut Parts, passed: Passed<'_>, body: Body) -> Result<Answered, Failure> {
    let is_upgrade = headers::is_upgrade(passed.headers);
    let client = parts.extensions.remove::<OnUpgrade>().filter(|_| is_upgrade);
    let request = Request::builder().method(parts.method.clone()).uri(passed.target).body(body);
    let mut request = request.map_err(|error| Failure::of_request(&error))?;
    *request.headers_mut() = headers::to_backend(passed.headers, client.is_some());
    headers::tell_origin(request.headers_mut(), passed.headers, parts.uri.path());
    request.headers_mut().extend(passed.more);
    let host = HeaderValue::from_str(passed.host).map_err(|error| Failure::of_request(&error))?;
    request.headers_mut().insert(header::HOST, host);
    let mut answer = way.send(driver, request).await?;
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (answer.status(), client) {
        let backend = hyper::upgrade::on(&mut answer);
        let (head, _) = answer.into_parts();
        let response = Response::from_parts(head, Body::empty());
        return Ok(Answered { response, upgraded: Some(Upgraded { client, backend }) });
    }
    let (mut head, body) = answer.into_parts();
    head.headers = headers::to_client(&head.headers);
    // Version and extensions belong to the backend's connection, not to the client's.
    (head.version, head.extensions) = (http::Version::HTTP_11, http::Extensions::new());
    Ok(Answered { response: Response::from_parts(head, Body::new(body)), upgraded: None })
}
