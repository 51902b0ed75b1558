//! The servers to which a registry may send the node. A registry names other servers in redirects and in the realm of its
//! tokens, and a node can reach servers that the registry's owner cannot: its own loopback, and the metadata service of its
//! cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use thiserror::Error;

/// Redirects in a row.
const REDIRECTS_MAX: usize = 5;

/// How far a registry is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// It is on this machine's loopback itself.
    is_local: bool,
    /// It is spoken to without TLS.
    is_plain: bool,
}

impl Scope {
    pub(super) fn new(registry: &str, is_plain: bool) -> Self {
        Self { is_local: is_loopback(registry), is_plain }
    }

    fn allows(self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => !is_never(ip) && (self.is_local || !ip.is_loopback()),
            IpAddr::V6(ip) => {
                let is_link_local = ip.segments().first().is_some_and(|first| first & 0xffc0 == 0xfe80);
                !is_link_local && !ip.is_unspecified() && !ip.is_multicast() && ip != EC2_METADATA && (self.is_local || !ip.is_loopback())
            }
        }
    }
}

/// The metadata service of one cloud, outside the link-local range.
const EC2_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Link-local addresses hold the metadata services of clouds.
fn is_never(ip: Ipv4Addr) -> bool {
    ip.is_link_local() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()
}

/// Whether a registry is on this machine: spoken to without TLS, as Docker does.
pub(super) fn is_loopback(registry: &str) -> bool {
    let host = host(registry);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A registry without its port.
fn host(registry: &str) -> &str {
    registry.rsplit_once(':').map_or(registry, |(host, _)| host).trim_matches(['[', ']'])
}

/// Addresses to which the node does not connect for a registry.
#[derive(Debug, Error)]
pub(super) enum RouteError {
    #[error("the registry sends the node to a server without TLS: {0}")]
    Plain(String),
    #[error("the registry sends the node to {0}, which is the node's own")]
    OwnAddress(IpAddr),
}

/// Whether the node may connect there for a registry; names are checked when they are resolved.
pub(super) fn check(url: &Url, scope: Scope) -> Result<(), RouteError> {
    let is_safe = url.scheme() == "https" || scope.is_plain && url.scheme() == "http";
    if !is_safe {
        return Err(RouteError::Plain(url.host_str().unwrap_or_default().to_owned()));
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(ip) if !scope.allows(ip) => Err(RouteError::OwnAddress(ip)),
        _ => Ok(()),
    }
}

/// Follows redirects that [`check`] allows. reqwest itself sends credentials to the first host only.
pub(super) fn redirects(scope: Scope) -> Policy {
    Policy::custom(move |attempt| {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(format!("more than {REDIRECTS_MAX} redirects"));
        }
        match check(attempt.url(), scope) {
            Ok(()) => attempt.follow(),
            Err(why) => attempt.error(why),
        }
    })
}

/// Resolves names, and leaves out addresses that are not for a registry to name.
pub(super) fn resolver(registry: &str, scope: Scope) -> Arc<dyn Resolve> {
    Arc::new(Resolver { host: host(registry).to_owned(), scope })
}

struct Resolver {
    /// The registry's own address, which the author of the image's name has chosen.
    host: String,
    scope: Scope,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let scope = Scope { is_local: self.scope.is_local || name.as_str() == self.host, ..self.scope };
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> = found.iter().copied().filter(|address| scope.allows(address.ip())).collect();
            match (allowed.is_empty(), found.first()) {
                (true, Some(address)) => Err(RouteError::OwnAddress(address.ip()).into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_on_this_machine_need_no_tls() {
        for (registry, wanted) in [
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("localhost", true),
            ("10.0.0.1:5000", false),
            ("r.example", false),
        ] {
            assert_eq!(is_loopback(registry), wanted, "{registry}");
        }
    }

    #[test]
    fn a_registry_does_not_send_the_node_to_itself() {
        for (registry, is_plain, url, allowed) in [
            ("r.example", false, "https://cdn.example/x", true),
            ("r.example", false, "https://10.0.0.7/x", true),
            ("r.example", false, "http://cdn.example/x", false),
            ("r.example", false, "https://127.0.0.1:10250/pods", false),
            ("r.example", false, "https://[::1]:6443/", false),
            ("r.example", false, "https://[::ffff:127.0.0.1]/", false),
            ("r.example", false, "https://2130706433/", false),
            ("10.0.0.1:5000", true, "http://169.254.169.254/latest/meta-data/", false),
            ("10.0.0.1:5000", true, "http://[fe80::1]/", false),
            ("10.0.0.1:5000", true, "http://[fd00:ec2::254]/", false),
            ("10.0.0.1:5000", true, "http://0.0.0.0:10250/", false),
            ("10.0.0.1:5000", true, "http://10.0.0.1:9000/x", true),
            ("10.0.0.1:5000", true, "file:///etc/passwd", false),
            ("127.0.0.1:5000", true, "http://127.0.0.1:5001/x", true),
            ("127.0.0.1:5000", true, "http://169.254.169.254/", false),
        ] {
            let url: Url = url.parse().expect("a URL");
            assert_eq!(check(&url, Scope::new(registry, is_plain)).is_ok(), allowed, "{registry} to {url}");
        }
    }

    #[tokio::test]
    async fn names_that_lead_to_the_node_are_not_resolved() {
        let resolve = |registry: &str| resolver(registry, Scope::new(registry, true)).resolve("localhost".parse().expect("a name"));
        let error = resolve("10.0.0.1:5000").await.err().expect("refused").to_string();
        assert!(error.contains("which is the node's own"), "{error}");
        assert!(resolve("localhost:5000").await.is_ok());
    }
}
