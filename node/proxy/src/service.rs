//! Services and EndpointSlices reduced to the input of rules, checked where they enter: addresses that are not IPv4, and
//! endpoints without a port, are left out here and nowhere else.

use std::net::{IpAddr, Ipv4Addr};

use api_client::demand::ACTIVATED_BY;
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use node_netfilter::Protocol;

use crate::Config;
use crate::external::{self, Refusal};

/// Another proxy serves Services with this label, as upstream.
const FOREIGN_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Upstream's default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const AFFINITY_SECONDS_DEFAULT: u32 = 10_800;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    /// May be empty.
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}

/// A Service that has addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) seniority: Seniority,
    pub(crate) cluster_ips: Vec<Ipv4Addr>,
    /// `spec.externalIPs`.
    pub(crate) external_ips: Vec<Ipv4Addr>,
    /// Ingress addresses of a load balancer that hands packets on as they are.
    pub(crate) load_balancer_ips: Vec<Ipv4Addr>,
    /// The clients that may use the load balancer's addresses; empty is all clients.
    pub(crate) source_ranges: Vec<Ipv4Net>,
    pub(crate) ports: Vec<ServicePort>,
    /// How long a client stays with its endpoint, in seconds.
    pub(crate) affinity_seconds: Option<u32>,
    /// `internalTrafficPolicy: Local`.
    pub(crate) internal_local: bool,
    /// `externalTrafficPolicy: Local`.
    pub(crate) external_local: bool,
    /// Requested addresses that are not served.
    pub(crate) refused: Vec<Refusal>,
    /// Whether connections are counted, and wait while there is no endpoint.
    pub(crate) is_activated: bool,
}

/// Orders Services that claim one address: the oldest keeps it. The server sets both parts, so that no user can get ahead of
/// others by choosing a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seniority {
    pub(crate) created: Option<Time>,
    pub(crate) uid: String,
}

/// An address behind a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) ip: Ipv4Addr,
    /// On this node.
    pub(crate) local: bool,
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
}

/// One EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The Service it belongs to, in its own namespace.
    pub(crate) service: String,
    /// Name, transport and number of each port.
    pub(crate) ports: Vec<(String, Protocol, u16)>,
    pub(crate) endpoints: Vec<Endpoint>,
}

fn addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<Ipv4Addr> {
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

fn port(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port > 0)
}

impl Service {
    /// `None` for a Service without an address to program (headless, ExternalName), of another proxy, or with the label to
    /// exclude it.
    pub(crate) fn parse(service: &core::Service, config: &Config) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let foreign = service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(FOREIGN_PROXY));
        if foreign || spec.type_.as_deref() == Some("ExternalName") {
            return None;
        }
        let cluster_ips = match &spec.cluster_ips {
            Some(ips) if !ips.is_empty() => addresses(ips),
            _ => addresses(&spec.cluster_ip),
        };
        if cluster_ips.is_empty() || cluster_ips.iter().any(|ip| config.exclude.contains(ip)) {
            return None;
        }
        let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        let vips = ingress.into_iter().flatten().filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
        let mut refused = Vec::new();
        let external_ips = served(addresses(spec.external_ips.iter().flatten()), config, &mut refused);
        let load_balancer_ips = served(addresses(vips.filter_map(|ingress| ingress.ip.as_ref())), config, &mut refused);
        let affinity = || {
            let config = spec.session_affinity_config.as_ref()?.client_ip.as_ref()?;
            config.timeout_seconds.and_then(|seconds| u32::try_from(seconds).ok())
        };
        let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
        let metadata = &service.metadata;
        Some(Self {
            seniority: Seniority { created: metadata.creation_timestamp.clone(), uid: metadata.uid.clone().unwrap_or_default() },
            cluster_ips,
            external_ips,
            load_balancer_ips,
            source_ranges: spec.load_balancer_source_ranges.iter().flatten().filter_map(|range| range.trim().parse().ok()).collect(),
            ports: spec.ports.iter().flatten().filter_map(service_port).collect(),
            affinity_seconds: (spec.session_affinity.as_deref() == Some("ClientIP"))
                .then(|| affinity().unwrap_or(AFFINITY_SECONDS_DEFAULT)),
            internal_local: is_local(&spec.internal_traffic_policy),
            external_local: is_local(&spec.external_traffic_policy),
            refused,
            is_activated: metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(ACTIVATED_BY)),
        })
    }

    /// Whether the result depends on the machine's own addresses and listeners.
    pub(crate) fn meets_machine(&self) -> bool {
        !self.external_ips.is_empty() || !self.load_balancer_ips.is_empty() || self.ports.iter().any(|port| port.node_port.is_some())
    }
}

/// The addresses that may be served; the others are noted.
fn served(mut ips: Vec<Ipv4Addr>, config: &Config, refused: &mut Vec<Refusal>) -> Vec<Ipv4Addr> {
    ips.retain(|ip| match external::check(*ip, config) {
        Ok(()) => true,
        Err(why) => {
            refused.push(Refusal { ip: Some(*ip), why });
            false
        }
    });
    ips
}

fn service_port(from: &core::ServicePort) -> Option<ServicePort> {
    Some(ServicePort {
        name: from.name.clone().unwrap_or_default(),
        protocol: Protocol::parse(from.protocol.as_deref())?,
        port: port(from.port)?,
        node_port: from.node_port.and_then(port),
    })
}

impl Slice {
    /// `None` for slices without a Service and of other address families.
    pub(crate) fn parse(slice: &discovery::EndpointSlice, config: &Config) -> Option<Self> {
        if slice.address_type != "IPv4" {
            return None;
        }
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?.clone();
        let ports = slice.ports.iter().flatten().filter_map(|from| {
            Some((from.name.clone().unwrap_or_default(), Protocol::parse(from.protocol.as_deref())?, port(from.port?)?))
        });
        let endpoints = slice.endpoints.iter().flatten().filter_map(|from| endpoint(from, config));
        Some(Self { service, ports: ports.collect(), endpoints: endpoints.collect() })
    }
}

/// Absent conditions are read as upstream: ready and serving, not terminating. An address that means a different machine on
/// each machine is not an endpoint: the server rejects such addresses, and so does the node.
fn endpoint(from: &discovery::Endpoint, config: &Config) -> Option<Endpoint> {
    // All addresses of an endpoint are the same one; only the first is used.
    let ip: Ipv4Addr = from.addresses.first()?.parse().ok().filter(|ip| external::special(*ip).is_none())?;
    let conditions = from.conditions.clone().unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    Some(Endpoint {
        ip,
        local: from.node_name.as_ref() == Some(&config.node_name) || IpAddr::V4(ip) == config.node_ip,
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
    })
}
