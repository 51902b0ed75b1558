//! A client's request handed to a backend as it is but for what is of one hop alone, and the answer back.
//! An upgraded connection is joined end to end.

use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;

use super::failure::Failure;
use super::pool::Server;
use super::{headers, tunnel};
use crate::app::App;

/// What a request goes over.
pub(crate) enum Way<'w> {
    /// A connection of its own, which may be upgraded.
    Own(SendRequest<Body>),
    /// One of those that are kept.
    Kept(&'w Server),
}

impl Way<'_> {
    async fn send(self, app: &Arc<App>, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        match self {
            Self::Own(mut sender) => sender.send_request(request).await.map_err(|error| Failure::of_own(&error)),
            Self::Kept(server) => server.send(app, request).await,
        }
    }
}

/// What is passed on beside method and body.
pub(crate) struct Passed<'p> {
    /// What the backend calls itself.
    pub(crate) host: &'p str,
    /// Path and query.
    pub(crate) target: &'p str,
    /// The client's.
    pub(crate) headers: &'p HeaderMap,
    /// The server's own.
    pub(crate) more: HeaderMap,
}

/// Passes a request on, and says why there is no answer.
pub(crate) async fn pass(
    app: &Arc<App>,
    way: Way<'_>,
    mut parts: Parts,
    passed: Passed<'_>,
    body: Body,
) -> Result<Response<Body>, Failure> {
    let is_upgrade = tunnel::is_upgrade(passed.headers);
    let client = parts.extensions.remove::<hyper::upgrade::OnUpgrade>().filter(|_| is_upgrade);
    let request = Request::builder().method(parts.method.clone()).uri(passed.target).body(body);
    let mut request = request.map_err(|error| Failure::of_request(&error))?;
    *request.headers_mut() = headers::to_backend(passed.headers, client.is_some());
    headers::tell_origin(request.headers_mut(), passed.headers, parts.uri.path());
    request.headers_mut().extend(passed.more);
    let host = HeaderValue::from_str(passed.host).map_err(|error| Failure::of_request(&error))?;
    request.headers_mut().insert(header::HOST, host);
    let mut answer = way.send(app, request).await?;
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (answer.status(), client) {
        let backend = hyper::upgrade::on(&mut answer);
        tunnel::join_beside(app, client, backend, &parts);
        let (head, _) = answer.into_parts();
        return Ok(Response::from_parts(head, Body::empty()));
    }
    let (mut head, body) = answer.into_parts();
    head.headers = headers::to_client(&head.headers);
    // What is of the backend's connection is not of the client's.
    (head.version, head.extensions) = (http::Version::HTTP_11, http::Extensions::new());
    Ok(Response::from_parts(head, Body::new(body)))
}
