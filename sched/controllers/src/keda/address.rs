//! The servers to which a trigger may send this process.
//!
//! A user writes the URL, and this process reaches servers that the user's Pods cannot: its own loopback, the metadata service of
//! its cloud, and the ports of the control plane. So a request goes to a checked address and never to a name: a name that resolves
//! to another address the next time changes nothing. A name in the cluster's domain is a Service, whose ready endpoints are in the
//! caches.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use api_client::informer::{BY_SERVICE, Informer, ObjectKey};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reqwest::Url;
use thiserror::Error;

use crate::meta;

/// Addresses that one request may try.
const ADDRESSES_MAX: usize = 4;
/// The metadata service of one cloud, outside the link-local range.
const EC2_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Why a URL leads nowhere.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// The URL has another scheme.
    #[error("unsupported protocol scheme {0:?}")]
    Scheme(String),
    /// The URL has no host.
    #[error("no Host in request URL")]
    NoHost,
    /// The Service does not exist.
    #[error("service {0} not found")]
    NoService(ObjectKey),
    /// The Service has no such port.
    #[error("service {0} has no port {1}")]
    NoPort(ObjectKey, u16),
    /// The Service has no ready endpoints.
    #[error("service {0} has no ready endpoints")]
    NoEndpoints(ObjectKey),
    /// The name does not resolve.
    #[error("lookup {0}: no such host")]
    NoAddress(String),
    /// The address is not for users to name.
    #[error("address {0} is not allowed for triggers")]
    Forbidden(IpAddr),
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Route {
    /// The addresses to try, with ports.
    pub addresses: Vec<SocketAddr>,
}

/// Finds the addresses of URLs, and checks them.
pub struct Addresses {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    /// Names below `svc.DOMAIN` are Services.
    domain: String,
    /// Addresses of API servers, which no trigger reaches.
    own: BTreeSet<IpAddr>,
    /// Addresses that triggers may reach in spite of the rules.
    allowed: Vec<IpNet>,
}

/// A host of a URL.
enum Host {
    Ip(IpAddr),
    Service(ObjectKey),
    Name(String),
}

impl Addresses {
    /// Finds Services in these caches.
    pub fn new(
        services: Informer<Service>,
        slices: Informer<EndpointSlice>,
        domain: &str,
        own: BTreeSet<IpAddr>,
        allowed: Vec<IpNet>,
    ) -> Self {
        Self { services, slices, domain: domain.to_owned(), own, allowed }
    }

    /// The checked addresses of a URL.
    pub async fn route(&self, url: &Url) -> Result<Route, AddressError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(AddressError::Scheme(url.scheme().to_owned()));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let addresses = match self.host(url)? {
            Host::Ip(ip) => vec![SocketAddr::new(ip, port)],
            Host::Name(name) => resolve(&name, port).await?,
            Host::Service(key) => {
                let service = self.services.get(&key).ok_or_else(|| AddressError::NoService(key.clone()))?;
                match service.spec.as_ref().and_then(|spec| spec.external_name.clone()).filter(|_| is_external(&service)) {
                    Some(name) => resolve(&name, port).await?,
                    None => self.endpoints(&key, &service, port)?,
                }
            }
        };
        let first = addresses.first().map(SocketAddr::ip);
        let mut addresses: Vec<SocketAddr> = addresses.into_iter().filter(|address| self.allows(address.ip())).collect();
        // One request has one port.
        if let Some(port) = addresses.first().map(SocketAddr::port) {
            addresses.retain(|address| address.port() == port);
        }
        addresses.truncate(ADDRESSES_MAX);
        match first {
            Some(ip) if addresses.is_empty() => Err(AddressError::Forbidden(ip)),
            _ => Ok(Route { addresses }),
        }
    }

    fn host(&self, url: &Url) -> Result<Host, AddressError> {
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(AddressError::NoHost)?;
        if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(Host::Ip(ip));
        }
        let name = host.trim_end_matches('.');
        let in_cluster = name.strip_suffix(&format!(".{}", self.domain)).unwrap_or(name);
        Ok(match in_cluster.split('.').collect::<Vec<_>>().as_slice() {
            [service, namespace, "svc"] => Host::Service(ObjectKey::new(*namespace, *service)),
            [service, namespace] if self.services.get(&ObjectKey::new(*namespace, *service)).is_some() => {
                Host::Service(ObjectKey::new(*namespace, *service))
            }
            _ => Host::Name(name.to_owned()),
        })
    }

    /// The ready endpoints of a Service's port. The port of a headless Service is the endpoints' own.
    fn endpoints(&self, key: &ObjectKey, service: &Service, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
        let spec = service.spec.as_ref();
        let is_headless = spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some("None");
        let named = spec.and_then(|spec| spec.ports.iter().flatten().find(|one| one.port == i32::from(port)));
        if named.is_none() && !is_headless {
            return Err(AddressError::NoPort(key.clone(), port));
        }
        let name = named.and_then(|port| port.name.as_deref()).unwrap_or_default();
        let mut addresses = Vec::new();
        for slice in self.slices.indexed(BY_SERVICE, &key.name) {
            if meta::namespace(&slice.metadata) != key.namespace {
                continue;
            }
            let of_slice = slice.ports.iter().flatten().find(|one| one.name.as_deref().unwrap_or_default() == name);
            let target = of_slice.and_then(|one| u16::try_from(one.port?).ok());
            let Some(target) = target.or(is_headless.then_some(port)) else { continue };
            let ready = slice
                .endpoints
                .iter()
                .flatten()
                .filter(|one| one.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false));
            addresses.extend(ready.flat_map(|one| &one.addresses).filter_map(|ip| Some(SocketAddr::new(ip.parse().ok()?, target))));
        }
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() { Err(AddressError::NoEndpoints(key.clone())) } else { Ok(addresses) }
    }

    fn allows(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.allowed.iter().any(|range| range.contains(&ip)) || !(is_never(ip) || self.own.contains(&ip))
    }
}

fn is_external(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
}

async fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
    let no_address = || AddressError::NoAddress(name.to_owned());
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name, port)).await.map_err(|_| no_address())?.collect();
    if addresses.is_empty() { Err(no_address()) } else { Ok(addresses) }
}

/// Loopback is this machine, link-local addresses hold the metadata services of clouds, and the others are no servers.
fn is_never(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip == EC2_METADATA,
    };
    is_link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn addresses(allowed: &[&str]) -> Addresses {
        let (services, slices) = (Informer::detached(), Informer::detached());
        let service = |name: &str, spec: Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "monitoring"}, "spec": spec})).expect("a Service")
        };
        services.put(service("prometheus", json!({"clusterIP": "10.96.0.7", "ports": [{"name": "web", "port": 9090}]})));
        services.put(service("headless", json!({"clusterIP": "None"})));
        services.put(service("empty", json!({"clusterIP": "10.96.0.8", "ports": [{"port": 80}]})));
        services.put(service("away", json!({"type": "ExternalName", "externalName": "localhost"})));
        let slice = |name: &str, ports: Value, endpoints: Value| -> EndpointSlice {
            let labels = json!({"kubernetes.io/service-name": name});
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "monitoring", "labels": labels}, "addressType": "IPv4",
                "ports": ports, "endpoints": endpoints}))
            .expect("a slice")
        };
        let endpoints = json!([{"addresses": ["10.244.0.9"]}, {"addresses": ["10.244.0.8"], "conditions": {"ready": false}}]);
        slices.put(slice("prometheus", json!([{"name": "web", "port": 19_090}]), endpoints));
        slices.put(slice("headless", json!([]), json!([{"addresses": ["10.244.0.7", "169.254.169.254"]}])));
        let own = BTreeSet::from([IpAddr::from([192, 168, 1, 2])]);
        let allowed = allowed.iter().map(|range| range.parse().expect("a range")).collect();
        Addresses::new(services, slices, "cluster.local", own, allowed)
    }

    async fn route(addresses: &Addresses, url: &str) -> String {
        match addresses.route(&url.parse().expect("a URL")).await {
            Ok(route) => route.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn services_lead_to_their_ready_endpoints() {
        let addresses = addresses(&[]);
        for (url, wanted) in [
            ("http://prometheus.monitoring.svc:9090/a", "10.244.0.9:19090"),
            ("http://prometheus.monitoring.svc.cluster.local:9090/", "10.244.0.9:19090"),
            ("http://prometheus.monitoring.svc.cluster.local.:9090/", "10.244.0.9:19090"),
            ("https://prometheus.monitoring:9090/", "10.244.0.9:19090"),
            ("http://prometheus.monitoring.svc/", "service monitoring/prometheus has no port 80"),
            ("http://headless.monitoring.svc:8080/", "10.244.0.7:8080"),
            ("http://empty.monitoring.svc/", "service monitoring/empty has no ready endpoints"),
            ("http://nobody.monitoring.svc/", "service monitoring/nobody not found"),
            ("http://10.96.0.7:9090/", "10.96.0.7:9090"),
        ] {
            assert_eq!(route(&addresses, url).await, wanted, "{url}");
        }
    }

    #[tokio::test]
    async fn nobody_reaches_what_is_this_process_own() {
        let addresses = addresses(&[]);
        for (url, refused) in [
            ("http://127.0.0.1:2379/", "127.0.0.1"),
            ("http://127.8.8.8/", "127.8.8.8"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://[::1]:6443/", "::1"),
            ("http://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
            ("http://[::ffff:169.254.169.254]/", "::ffff:169.254.169.254"),
            ("http://169.254.169.254/latest/meta-data/", "169.254.169.254"),
            ("http://[fd00:ec2::254]/", "fd00:ec2::254"),
            ("http://[fe80::1]/", "fe80::1"),
            ("http://0.0.0.0:10250/", "0.0.0.0"),
            ("http://[::]/", "::"),
            ("https://192.168.1.2:6443/", "192.168.1.2"),
            ("http://224.0.0.1/", "224.0.0.1"),
        ] {
            assert_eq!(route(&addresses, url).await, format!("address {refused} is not allowed for triggers"), "{url}");
        }
        let local = route(&addresses, "http://localhost/").await;
        assert!(local.contains("is not allowed for triggers"), "{local}");
        let local = route(&addresses, "http://away.monitoring.svc/").await;
        assert!(local.contains("is not allowed for triggers"), "{local}");
        assert_eq!(route(&addresses, "file:///etc/passwd").await, "unsupported protocol scheme \"file\"");
    }

    #[tokio::test]
    async fn the_administrator_may_allow_more() {
        let addresses = addresses(&["127.0.0.0/8", "192.168.1.2/32"]);
        assert_eq!(route(&addresses, "http://127.0.0.1:9090/").await, "127.0.0.1:9090");
        assert_eq!(route(&addresses, "https://192.168.1.2:6443/").await, "192.168.1.2:6443");
        assert_eq!(route(&addresses, "http://169.254.169.254/").await, "address 169.254.169.254 is not allowed for triggers");
    }
}
