//! The headers that pass through a proxy. Hop-by-hop headers and the client's credentials do not pass.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Hop-by-hop headers (RFC 9110, section 7.6.1, and older ones).
const OF_ONE_HOP: [&str; 8] =
    ["connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// The client's headers that the backend gets.
pub fn to_backend(from: &HeaderMap, is_upgrade: bool) -> HeaderMap {
    let mut passed = pass_on(from);
    // The credentials are for the API server: with the token, the backend could act in the client's name.
    for name in [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::HOST] {
        passed.remove(name);
    }
    let claims: Vec<HeaderName> = passed.keys().filter(|name| is_claim(name.as_str())).cloned().collect();
    claims.iter().for_each(|name| drop(passed.remove(name)));
    passed.remove(header::SEC_WEBSOCKET_PROTOCOL);
    pass_on_protocols(from, &mut passed);
    if is_upgrade {
        passed.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        passed.extend(from.get(header::UPGRADE).map(|to| (header::UPGRADE, to.clone())));
    }
    passed
}

/// The backend's headers that the client gets.
pub fn to_client(from: &HeaderMap) -> HeaderMap {
    pass_on(from)
}

/// Adds scheme, host and path of the client's request, for the backend.
pub fn tell_origin(headers: &mut HeaderMap, from: &HeaderMap, path: &str) {
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    if let Some(host) = from.get(header::HOST) {
        headers.insert("x-forwarded-host", host.clone());
    }
    if let Ok(path) = HeaderValue::from_str(path) {
        headers.insert("x-forwarded-uri", path);
    }
}

/// Whether a header claims an identity. A backend that trusts such headers must not get them from a client.
fn is_claim(name: &str) -> bool {
    name.starts_with("impersonate-") || name.starts_with("x-remote-")
}

fn pass_on(from: &HeaderMap) -> HeaderMap {
    let named = from.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> = named.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_pooled = |name: &HeaderName| !OF_ONE_HOP.contains(&name.as_str()) && !named.iter().any(|of_hop| of_hop == name.as_str());
    from.iter().filter(|(name, _)| is_pooled(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a client requests a protocol upgrade.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get(header::CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    headers.contains_key(header::UPGRADE) && connection.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

/// Copies the offered websocket protocols, without a bearer token among them.
pub fn pass_on_protocols(from: &HeaderMap, to: &mut HeaderMap) {
    for value in from.get_all(header::SEC_WEBSOCKET_PROTOCOL) {
        let protocols = value.to_str().unwrap_or_default().split(',').map(str::trim);
        let passed: Vec<&str> = protocols.filter(|protocol| !protocol.starts_with("base64url.bearer.")).collect();
        if let (false, Ok(passed)) = (passed.is_empty(), passed.join(", ").parse()) {
            to.append(header::SEC_WEBSOCKET_PROTOCOL, passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_of_one_hop_or_for_us_stays_here() {
        let from = headers(&[
            ("accept", "*/*"),
            ("authorization", "Bearer secret"),
            ("connection", "keep-alive, X-Hop"),
            ("cookie", "a=b"),
            ("host", "cluster"),
            ("impersonate-user", "root"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("x-hop", "1"),
            ("x-remote-user", "root"),
        ]);
        assert_eq!(names(&to_backend(&from, false)), ["accept", "cookie"]);
    }

    #[test]
    fn an_upgrade_passes_without_the_token() {
        let from = headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-protocol", "chat, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ]);
        let passed = to_backend(&from, true);
        assert_eq!(names(&passed), ["connection", "sec-websocket-key", "sec-websocket-protocol", "upgrade"]);
        assert_eq!(passed[header::SEC_WEBSOCKET_PROTOCOL], "chat");
    }

    #[test]
    fn the_backend_hears_where_the_client_thinks_it_is() {
        let mut forwarded = HeaderMap::new();
        tell_origin(&mut forwarded, &headers(&[("host", "cluster:6443")]), "/api/v1/nodes/n/proxy/x");
        assert_eq!(forwarded["x-forwarded-host"], "cluster:6443");
        assert_eq!(forwarded["x-forwarded-uri"], "/api/v1/nodes/n/proxy/x");
    }
}
