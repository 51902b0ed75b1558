//! The protocol of a client after its upgrade: a websocket, SPDY/3.1 plain, or SPDY/3.1 inside a websocket.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::refuse;

/// The name that SPDY has in an `Upgrade` header.
const SPDY: &str = "SPDY/3.1";
/// The header with which SPDY clients offer protocols for the streams, and with which the server answers.
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// The answer when there is no such protocol.
const ACCEPTED_PROTOCOL: &str = "x-accepted-stream-protocol-versions";

/// The upgrade that a request wants.
pub(super) enum Upgrade {
    WebSocket(Box<WebSocketUpgrade>),
    Spdy(SpdyUpgrade),
    /// It is an ordinary request.
    None,
}

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        if asks_for_spdy(&parts.headers)
            && let Some(on) = parts.extensions.remove::<OnUpgrade>()
        {
            return Ok(Self::Spdy(SpdyUpgrade { on, offered: tokens(&parts.headers, STREAM_PROTOCOL) }));
        }
        Ok(WebSocketUpgrade::from_request_parts(parts, state).await.map_or(Self::None, |upgrade| Self::WebSocket(Box::new(upgrade))))
    }
}

fn asks_for_spdy(headers: &HeaderMap) -> bool {
    let has =
        |name: &header::HeaderName, wanted: &str| tokens(headers, name.as_str()).iter().any(|token| token.eq_ignore_ascii_case(wanted));
    has(&header::CONNECTION, "upgrade") && has(&header::UPGRADE, SPDY)
}

/// The elements of the values of a header.
fn tokens(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()).collect()
}

/// A request to upgrade to SPDY.
pub(super) struct SpdyUpgrade {
    on: OnUpgrade,
    offered: Vec<String>,
}

impl SpdyUpgrade {
    /// Negotiates a protocol for the streams and upgrades with it; a client that offers none speaks the oldest. `accepted` has
    /// the best first.
    pub(super) fn accept<F, Fut>(self, accepted: &[&'static str], then: F) -> Response
    where
        F: FnOnce(TokioIo<Upgraded>, Option<&'static str>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let chosen = accepted.iter().copied().find(|protocol| self.offered.iter().any(|offered| offered == protocol));
        if chosen.is_none() && !self.offered.is_empty() {
            return disagree(&self.offered, accepted);
        }
        api_tasks::request("node-agent/spdy", async move {
            match self.on.await {
                Ok(upgraded) => then(TokioIo::new(upgraded), chosen).await,
                Err(error) => tracing::debug!(%error, "the client did not go on in SPDY"),
            }
        });
        let mut response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        response = response.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, SPDY);
        if let Some(chosen) = chosen {
            response = response.header(STREAM_PROTOCOL, chosen);
        }
        response.body(Body::empty()).unwrap_or_else(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }
}

fn disagree(offered: &[String], accepted: &[&'static str]) -> Response {
    let (offers, accepts) = (offered.join(" "), accepted.join(" "));
    let message = format!("unable to upgrade: unable to negotiate protocol: client supports [{offers}], server accepts [{accepts}]");
    let mut response = refuse(StatusCode::FORBIDDEN, message);
    for protocol in accepted {
        response.headers_mut().append(ACCEPTED_PROTOCOL, HeaderValue::from_static(protocol));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_for_spdy_is_understood() {
        let headers = |pairs: &[(header::HeaderName, &'static str)]| -> HeaderMap {
            pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
        };
        for (connection, upgrade, wanted) in [
            ("Upgrade", "SPDY/3.1", true),
            ("keep-alive, upgrade", "spdy/3.1", true),
            ("close", "SPDY/3.1", false),
            ("Upgrade", "websocket", false),
        ] {
            let headers = headers(&[(header::CONNECTION, connection), (header::UPGRADE, upgrade)]);
            assert_eq!(asks_for_spdy(&headers), wanted, "{connection} {upgrade}");
        }
        let mut several = HeaderMap::new();
        several.append(STREAM_PROTOCOL, HeaderValue::from_static("v4.channel.k8s.io, v3.channel.k8s.io"));
        several.append(STREAM_PROTOCOL, HeaderValue::from_static("channel.k8s.io"));
        assert_eq!(tokens(&several, STREAM_PROTOCOL), ["v4.channel.k8s.io", "v3.channel.k8s.io", "channel.k8s.io"]);
    }
}
