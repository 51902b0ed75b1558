//! The addresses to which the server may connect for clients. Nodes write their own addresses and those of their Pods
//! into the status of objects. Such an address must not lead the server to its own machine or to itself: there, the
//! server's credentials would give the client access that it does not have (CVE-2020-8558, CVE-2022-3294).
//!
//! The checked addresses are the ones that the server then connects to. So a name cannot resolve to one address for the
//! check and to another one for the connection.

use std::net::{IpAddr, SocketAddr};

use api_model::kind::GroupResource;
use api_model::view::View;
use ipnet::Ipv4Net;
use serde_json::Value;

use crate::resolve;

/// The limits of one connection.
#[derive(Debug)]
pub struct Proxyable {
    /// The addresses of Services, which no node and no Pod has.
    service_range: Ipv4Net,
    /// The addresses of this server and of the other API servers.
    servers: Vec<SocketAddr>,
    /// Whether a loopback address may be a node.
    loopback: bool,
}

impl Proxyable {
    /// The limits for addresses of Pods and nodes, on any port. `own` is the address of this server.
    pub fn new(view: &dyn View, own: SocketAddr, service_range: Ipv4Net) -> Self {
        let mut servers = servers(view);
        servers.push(own);
        Self { service_range, servers, loopback: false }
    }

    /// The same limits, with `loopback`: whether a loopback address may be a node.
    pub fn with_loopback(self, loopback: bool) -> Self {
        Self { loopback, ..self }
    }

    /// Whether the server may connect to the address.
    pub fn allows(&self, to: SocketAddr) -> bool {
        let is_service = matches!(to.ip(), IpAddr::V4(ip) if self.service_range.contains(&ip));
        let is_unicast = is_global_unicast(to.ip()) || self.loopback && to.ip().is_loopback();
        is_unicast && !is_service && !self.servers.contains(&to)
    }
}

/// Whether an address is a unicast address that is not local to a machine or link: upstream's `IsProxyableIP`.
pub fn is_global_unicast(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !is_local && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
}

/// The addresses of all API servers: the endpoints of the Service `kubernetes`.
fn servers(view: &dyn View) -> Vec<SocketAddr> {
    let service = view.get(&GroupResource::new("", "services"), Some("default"), "kubernetes");
    let port = service.as_ref().and_then(|service| service.pointer("/spec/ports/0/name")?.as_str().map(str::to_owned)).unwrap_or_default();
    let slices = view.endpoint_slices_of("kubernetes", "default");
    let endpoints = slices.iter().flat_map(|slice: &std::sync::Arc<Value>| resolve::ready(slice, &port));
    endpoints.filter_map(|(address, port)| Some(SocketAddr::new(address.parse().ok()?, port))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxyable(loopback: bool) -> Proxyable {
        let servers = ["192.0.2.1:6443", "[2001:db8::1]:6443"].map(|server| server.parse().expect("an address")).to_vec();
        Proxyable { service_range: "10.96.0.0/12".parse().expect("a range"), servers, loopback }
    }

    #[test]
    fn nothing_leads_to_this_machine_to_a_service_or_to_a_server() {
        let refused = [
            "127.0.0.1:10250",
            "127.9.9.9:10250",
            "0.0.0.0:10250",
            "169.254.169.254:80",
            "224.0.0.1:10250",
            "255.255.255.255:10250",
            "10.96.0.1:443",
            "10.111.255.254:10250",
            "192.0.2.1:6443",
            "[::]:10250",
            "[::1]:10250",
            "[fe80::1]:10250",
            "[ff02::1]:10250",
            "[::ffff:127.0.0.1]:10250",
            "[::ffff:10.0.0.1]:10250",
            "[2001:db8::1]:6443",
        ];
        for address in refused {
            assert!(!proxyable(false).allows(address.parse().expect("an address")), "{address}");
        }
        for address in ["192.0.2.1:10250", "10.244.0.5:6443", "[2001:db8::1]:10250", "[fd00::5]:10250"] {
            assert!(proxyable(false).allows(address.parse().expect("an address")), "{address}");
        }
    }

    #[test]
    fn loopback_is_a_node_only_where_that_is_meant() {
        assert!(proxyable(true).allows(SocketAddr::from(([127, 0, 0, 1], 10_250))));
        assert!(!proxyable(true).allows(SocketAddr::from(([169, 254, 0, 1], 10_250))));
    }
}
