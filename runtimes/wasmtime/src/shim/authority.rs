//! The authority of a request: which host the client wants to speak to. Guests expect that a request has one. Pure.

use std::net::SocketAddr;

use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Request, Version};

/// Checks the authority of a request as RFC 9112, section 3.2, and RFC 9113, section 8.3.1, demand. A request that may come without one, of
/// HTTP/1.0 or with an empty `Host`, gets the address that it was sent to. An error is what the client reads with the status 400.
pub fn complete<B>(request: &mut Request<B>, local: Option<SocketAddr>) -> Result<(), &'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("the request has more than one Host header\n");
    }
    if !host.is_none_or(is_valid) {
        return Err("the Host header is not a host with an optional port\n");
    }
    if host.is_none() && request.version() == Version::HTTP_11 {
        return Err("a request of HTTP/1.1 needs a Host header\n");
    }
    if request.uri().authority().is_some() || host.is_some_and(|host| !host.is_empty()) {
        return Ok(());
    }
    if request.version() == Version::HTTP_2 {
        return Err("the request has no authority\n");
    }
    let uri = local.and_then(|local| with_authority(request.uri(), local));
    *request.uri_mut() = uri.ok_or("the request has no authority\n")?;
    Ok(())
}

fn is_valid(host: &HeaderValue) -> bool {
    let bytes = host.as_bytes();
    bytes.is_empty() || (!bytes.contains(&b'@') && Authority::try_from(bytes).is_ok())
}

fn with_authority(uri: &Uri, local: SocketAddr) -> Option<Uri> {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    // A socket for both families has the addresses of IPv4 in their IPv6 form.
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    Uri::builder().scheme(Scheme::HTTP).authority(local.to_string()).path_and_query(path).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(version: Version, uri: &str, hosts: &[&[u8]], local: Option<&str>) -> Result<String, &'static str> {
        let mut request = Request::builder().version(version).uri(uri).body(()).unwrap();
        for host in hosts {
            request.headers_mut().append(HOST, HeaderValue::from_bytes(host).unwrap());
        }
        complete(&mut request, local.map(|local| local.parse().unwrap())).map(|()| request.uri().to_string())
    }

    #[test]
    fn a_request_has_one_authority() {
        use Version as V;
        let local = Some("[::ffff:10.1.2.3]:80");
        type Case = (Version, &'static str, &'static [&'static [u8]], Result<&'static str, &'static str>);
        let cases: &[Case] = &[
            (V::HTTP_11, "/a", &[b"web"], Ok("/a")),
            (V::HTTP_11, "/a", &[b"web:8080"], Ok("/a")),
            (V::HTTP_11, "/a", &[b"[::1]:8080"], Ok("/a")),
            (V::HTTP_11, "/a?b", &[b""], Ok("http://10.1.2.3:80/a?b")),
            (V::HTTP_11, "/a", &[], Err("a request of HTTP/1.1 needs a Host header\n")),
            (V::HTTP_11, "http://web/a", &[], Err("a request of HTTP/1.1 needs a Host header\n")),
            (V::HTTP_11, "/a", &[b"web", b"web"], Err("the request has more than one Host header\n")),
            (V::HTTP_11, "/a", &[b"we b"], Err("the Host header is not a host with an optional port\n")),
            (V::HTTP_11, "/a", &[b"we\xc3\xa4b"], Err("the Host header is not a host with an optional port\n")),
            (V::HTTP_11, "/a", &[b"user@web"], Err("the Host header is not a host with an optional port\n")),
            (V::HTTP_10, "/a", &[], Ok("http://10.1.2.3:80/a")),
            (V::HTTP_10, "/a", &[b"web"], Ok("/a")),
            (V::HTTP_2, "http://web/a", &[], Ok("http://web/a")),
            (V::HTTP_2, "/a", &[b"web"], Ok("/a")),
            (V::HTTP_2, "/a", &[], Err("the request has no authority\n")),
        ];
        for (version, uri, hosts, wanted) in cases {
            assert_eq!(completed(*version, uri, hosts, local), wanted.map(str::to_owned), "{version:?} {uri} {hosts:?}");
        }
        assert_eq!(completed(V::HTTP_10, "/", &[], Some("[::1]:80")), Ok("http://[::1]:80/".to_owned()));
        assert!(completed(V::HTTP_10, "/", &[], None).is_err());
    }
}
