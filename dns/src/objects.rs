//! Services and EndpointSlices reduced to what names are made from.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

/// Names the Service of an EndpointSlice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A port's name and transport in DNS' spelling (lower case), and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) number: u16,
}

/// The target of a Service's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Its own addresses.
    Addresses(Vec<IpAddr>),
    /// The Service's endpoints (`clusterIP: None`).
    Headless,
    /// Another name (`type: ExternalName`).
    Name(String),
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) target: Target,
    pub(crate) ports: Vec<Port>,
    /// `spec.publishNotReadyAddresses`.
    pub(crate) publish_not_ready: bool,
}

/// An endpoint under its name in DNS: its hostname, or its address with dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    pub(crate) ready: bool,
}

/// One EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The Service it belongs to, in its own namespace.
    pub(crate) service: String,
    pub(crate) ports: Vec<Port>,
    pub(crate) endpoints: Vec<Endpoint>,
}

fn port(name: Option<&String>, protocol: Option<&String>, number: Option<i32>) -> Option<Port> {
    Some(Port {
        name: name.cloned().unwrap_or_default(),
        protocol: protocol.map_or_else(|| "tcp".to_owned(), |p| p.to_ascii_lowercase()),
        number: u16::try_from(number?).ok()?,
    })
}

impl Service {
    /// `None` for a Service that has no address yet.
    pub(crate) fn parse(service: &core::Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let ips = || {
            let many = spec.cluster_ips.as_ref().filter(|ips| !ips.is_empty());
            many.map_or_else(|| spec.cluster_ip.iter().cloned().collect(), Clone::clone)
        };
        let target = if spec.type_.as_deref() == Some("ExternalName") {
            Target::Name(spec.external_name.clone()?)
        } else if spec.cluster_ip.as_deref() == Some("None") {
            Target::Headless
        } else {
            let ips: Vec<IpAddr> = ips().iter().filter_map(|ip| ip.parse().ok()).collect();
            if ips.is_empty() {
                return None;
            }
            Target::Addresses(ips)
        };
        let ports = spec.ports.iter().flatten().filter_map(|p| port(p.name.as_ref(), p.protocol.as_ref(), Some(p.port)));
        Some(Self { target, ports: ports.collect(), publish_not_ready: spec.publish_not_ready_addresses.unwrap_or(false) })
    }
}

impl Slice {
    /// `None` for slices without a Service, and of names instead of addresses.
    pub(crate) fn parse(slice: &discovery::EndpointSlice) -> Option<Self> {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?.clone();
        let endpoints = slice.endpoints.iter().flatten().flat_map(|from| {
            // Absent is ready, as upstream.
            let ready = from.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
            from.addresses.iter().filter_map(move |text| {
                let ip: IpAddr = text.parse().ok()?;
                let hostname = from.hostname.clone().filter(|name| !name.is_empty());
                Some(Endpoint { name: hostname.unwrap_or_else(|| dashed(ip)), ip, ready })
            })
        });
        let endpoints: Vec<Endpoint> = endpoints.collect();
        if endpoints.is_empty() {
            return None;
        }
        let ports = slice.ports.iter().flatten().filter_map(|p| port(p.name.as_ref(), p.protocol.as_ref(), p.port));
        Some(Self { service, ports: ports.collect(), endpoints })
    }
}

/// An address as a label: `10-244-0-5`, `fd00--5`.
pub(crate) fn dashed(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}

/// The address that a label stands for, if it is one.
pub(crate) fn undashed(label: &str) -> Option<IpAddr> {
    label.replace('-', ".").parse().or_else(|_| label.replace('-', ":").parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_labels_and_back() {
        for (text, label) in [("10.244.0.5", "10-244-0-5"), ("fd00::5", "fd00--5"), ("::1", "--1")] {
            let ip: IpAddr = text.parse().expect("an address");
            assert_eq!(dashed(ip), label);
            assert_eq!(undashed(label), Some(ip));
        }
        for label in ["web", "10-244-0", "10-244-0-256", ""] {
            assert_eq!(undashed(label), None, "{label}");
        }
    }
}
