//! A client's request handed to a backend as it is but for what is of one hop alone, and the answer back.
//! An upgraded connection is joined end to end.

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

/// What a request goes over.
pub enum Way<'w> {
    /// A connection of its own, which may be upgraded.
    Own(SendRequest<Body>),
    /// One of those that are kept.
    Kept(&'w Server),
}

impl Way<'_> {
    async fn send(self, driver: &Driver, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        match self {
            Self::Own(mut sender) => sender.send_request(request).await.map_err(|error| Failure::of_own(&error)),
            Self::Kept(server) => server.send(driver, request).await,
        }
    }
}

/// What is passed on beside method and body.
pub struct Passed<'p> {
    /// What the backend calls itself.
    pub host: &'p str,
    /// Path and query.
    pub target: &'p str,
    /// The client's.
    pub headers: &'p HeaderMap,
    /// The server's own.
    pub more: HeaderMap,
}

/// The answer for the client.
pub struct Answered {
    /// Its head, and its body unless the connection was upgraded.
    pub response: Response<Body>,
    /// The two connections to join, where client and backend go on in another protocol.
    pub upgraded: Option<Upgraded>,
}

/// Both ends of an upgraded connection.
pub struct Upgraded {
    /// The client's.
    pub client: OnUpgrade,
    /// The backend's.
    pub backend: OnUpgrade,
}

/// Passes a request on, and says why there is no answer.
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
    // What is of the backend's connection is not of the client's.
    (head.version, head.extensions) = (http::Version::HTTP_11, http::Extensions::new());
    Ok(Answered { response: Response::from_parts(head, Body::new(body)), upgraded: None })
}
