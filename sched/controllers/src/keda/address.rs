//! The servers to which a trigger may send this process.
//!
//! A user writes the URL, and this process reaches servers that the user's Pods cannot: those of its own machine, the metadata
//! service of its cloud, and the ports of the control plane. So a request goes to a checked address and never to a name: a name that resolves
//! to another address the next time changes nothing. A name in the cluster's domain is a Service, whose ready endpoints are in the
//! caches.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};

use api_client::informer::{BY_SERVICE, Informer, ObjectKey};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use nix::errno::Errno;
use nix::ifaddrs::InterfaceAddress;
use reqwest::Url;
use thiserror::Error;

use super::blocking::Blocking;
use crate::{meta, service, slices};

/// Addresses that one request may try.
const ADDRESSES_MAX: usize = 4;
/// Lookups of names at the same time. A name without a server takes a thread for as long as the machine's resolver tries.
const LOOKUPS_MAX: usize = 16;
/// The metadata services of clouds, outside the link-local range: of Alibaba Cloud and of Azure.
const METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
/// The same of AWS, of Google Cloud and of Oracle Cloud.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

static LOOKUPS: LazyLock<Blocking> = LazyLock::new(|| Blocking::new("the lookup of a name", LOOKUPS_MAX));

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
    /// What addresses this machine has is unknown.
    #[error("the addresses of the machine cannot be read")]
    Machine(#[source] Errno),
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
    /// Reads the addresses of this machine. Interfaces come and go with Pods.
    interfaces: fn() -> nix::Result<BTreeSet<IpAddr>>,
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
        Self { services, slices, domain: domain.to_owned(), own, interfaces, allowed }
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
        let own = self.own_addresses()?;
        let mut addresses: Vec<SocketAddr> = addresses.into_iter().filter(|address| self.allows(address.ip(), &own)).collect();
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
        let is_headless = service::is_headless(service);
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

    /// The addresses of this machine and of all API servers.
    fn own_addresses(&self) -> Result<BTreeSet<IpAddr>, AddressError> {
        let mut own = (self.interfaces)().map_err(AddressError::Machine)?;
        own.extend(&self.own);
        let servers = self.slices.indexed(BY_SERVICE, "kubernetes");
        own.extend(servers.iter().filter(|slice| slices::is_of_servers(slice)).flat_map(|slice| slices::addresses(slice)));
        Ok(own)
    }

    /// Whether a trigger may connect to an address, and to what the kernel makes of it: the address of a Service leads to its
    /// endpoints.
    fn allows(&self, ip: IpAddr, own: &BTreeSet<IpAddr>) -> bool {
        let is_allowed = |ip: &IpAddr| {
            let ip = ip.to_canonical();
            self.allowed.iter().any(|range| range.contains(&ip)) || !(is_never(ip) || own.contains(&ip))
        };
        is_allowed(&ip) && self.behind(ip.to_canonical()).iter().all(is_allowed)
    }

    /// The endpoints of the Services with this address.
    fn behind(&self, ip: IpAddr) -> Vec<IpAddr> {
        let text = ip.to_string();
        let services: Vec<Arc<Service>> = self.services.list().into_iter().filter(|service| has_address(service, &text)).collect();
        let slices = services.iter().flat_map(|service| {
            let slices = self.slices.indexed(BY_SERVICE, meta::name(&service.metadata));
            slices.into_iter().filter(|slice| meta::namespace(&slice.metadata) == meta::namespace(&service.metadata))
        });
        slices.flat_map(|slice| slices::addresses(&slice)).collect()
    }
}

/// Whether the proxies of nodes forward an address to a Service.
fn has_address(service: &Service, ip: &str) -> bool {
    let spec = service.spec.as_ref();
    let own = spec.into_iter().flat_map(|spec| {
        let lists = [&spec.cluster_ips, &spec.external_ips];
        spec.cluster_ip.iter().chain(lists.into_iter().flatten().flatten())
    });
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten().filter_map(|one| one.ip.as_ref());
    own.chain(ingress).any(|own| own == ip)
}

/// The addresses of this machine's interfaces.
fn interfaces() -> nix::Result<BTreeSet<IpAddr>> {
    let address = |interface: InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    Ok(nix::ifaddrs::getifaddrs()?.filter_map(address).collect())
}

fn is_external(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
}

async fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
    let no_address = || AddressError::NoAddress(name.to_owned());
    let host = name.to_owned();
    let lookup = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let addresses = LOOKUPS.run(lookup).await.and_then(Result::ok).unwrap_or_default();
    if addresses.is_empty() { Err(no_address()) } else { Ok(addresses) }
}

/// Loopback is this machine, link-local addresses and some others are metadata services of clouds, and the rest are no servers.
fn is_never(ip: IpAddr) -> bool {
    let is_metadata = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || METADATA.contains(&ip),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || METADATA_V6.contains(&ip),
    };
    is_metadata || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast()
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
        let mut servers = slice("kubernetes", json!([]), json!([{"addresses": ["192.168.1.3"]}]));
        servers.metadata.namespace = Some("default".to_owned());
        slices.put(servers);
        for (name, ip) in [("own", "192.168.1.2"), ("away", "10.244.0.9")] {
            let by = |field: &str, value: Value| service(&format!("{name}-{field}"), json!({"ports": [{"port": 80}], field: value}));
            let all = [
                by("clusterIPs", json!([format!("10.96.1.{}", name.len())])),
                by("externalIPs", json!([format!("203.0.113.{}", name.len())])),
            ];
            for one in all {
                slices.put(slice(meta::name(&one.metadata), json!([]), json!([{"addresses": [ip], "conditions": {"ready": false}}])));
                services.put(one);
            }
        }
        let own = BTreeSet::from([IpAddr::from([192, 168, 1, 2])]);
        let allowed = allowed.iter().map(|range| range.parse().expect("a range")).collect();
        let addresses = Addresses::new(services, slices, "cluster.local", own, allowed);
        Addresses { interfaces: || Ok(BTreeSet::from([IpAddr::from([10, 244, 0, 1])])), ..addresses }
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
            ("http://10.96.1.4/", "10.96.1.4:80"),
            ("http://203.0.113.4/", "203.0.113.4:80"),
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
            ("https://192.168.1.3:6443/", "192.168.1.3"),
            ("http://10.244.0.1:10250/", "10.244.0.1"),
            ("http://10.96.1.3/", "10.96.1.3"),
            ("http://203.0.113.3/", "203.0.113.3"),
            ("http://100.100.100.200/latest/meta-data/", "100.100.100.200"),
            ("http://168.63.129.16/machine?comp=goalstate", "168.63.129.16"),
            ("http://[fd20:ce::254]/computeMetadata/v1/", "fd20:ce::254"),
            ("http://[fd00:c1::a9fe:a9fe]/opc/v2/", "fd00:c1::a9fe:a9fe"),
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

    #[test]
    fn the_machine_has_addresses() {
        assert!(interfaces().expect("interfaces").contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[tokio::test]
    async fn the_administrator_may_allow_more() {
        let addresses = addresses(&["127.0.0.0/8", "192.168.1.2/32"]);
        assert_eq!(route(&addresses, "http://127.0.0.1:9090/").await, "127.0.0.1:9090");
        assert_eq!(route(&addresses, "https://192.168.1.2:6443/").await, "192.168.1.2:6443");
        assert_eq!(route(&addresses, "http://169.254.169.254/").await, "address 169.254.169.254 is not allowed for triggers");
    }
}
