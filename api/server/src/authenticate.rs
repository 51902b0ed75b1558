//! Finds out who a request is from: the identity of an in-process client, the certificate of the connection, a bearer token, or
//! nobody. Impersonation comes after that, in `impersonate.rs`.

use std::sync::Arc;

use api_auth::{Authenticator, Credentials};
use api_cache::Cache;
use api_model::request::UserInfo;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header, request::Parts};

use api_wire::status::{ApiError, ApiResult};

/// The user behind a request, where the transport knows it: the user of an in-process client, or the one in the connection's
/// verified certificate. A request from outside cannot carry this, since it is no header.
#[derive(Clone, Debug)]
pub(crate) struct Identity(pub(crate) Arc<UserInfo>);

/// The connection's certificate names no user. Without a token, the request is rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownCertificate;

/// The subprotocol with which browsers send a bearer token for a websocket.
const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// The user that a request is from.
pub(crate) fn user(authenticator: &Authenticator, cache: &Cache, parts: &Parts) -> ApiResult<Arc<UserInfo>> {
    if let Some(Identity(user)) = parts.extensions.get::<Identity>() {
        return Ok(Arc::clone(user));
    }
    let bearer = bearer(&parts.headers);
    if bearer.is_none() && parts.extensions.get::<UnknownCertificate>().is_some() {
        return Err(ApiError::unauthorized());
    }
    let credentials = Credentials { client_certificate: None, bearer: bearer.as_deref() };
    Ok(Arc::new(authenticator.authenticate(&credentials, cache, api_clock::now())?))
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some((scheme, token)) = header.and_then(|header| header.split_once(' ')) {
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    let protocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let encoded = protocols.split(',').find_map(|protocol| protocol.trim().strip_prefix(WEBSOCKET_BEARER))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}
