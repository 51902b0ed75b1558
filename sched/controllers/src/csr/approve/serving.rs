//! Which names and addresses a node gets into its serving certificate without an administrator. Pure.
//!
//! A node writes the addresses of its own Node, so these prove nothing. The address that the request came from is the proof: a
//! client that opens a TLS connection from an address is the machine that is reached there. Everything else waits for an
//! administrator, as all of these requests do upstream: what is not proven, and what a node must never be for others (an API
//! server, a Service, a Pod, another node).

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use thiserror::Error;

use crate::config::Reserved;
use crate::csr::request::Request;
use crate::meta;

/// Why a request is not approved without a person.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Objection {
    /// The Node has not registered yet.
    #[error("there is no Node {0}")]
    NoNode(String),
    /// The Node does not report this address yet.
    #[error("{0} is not among the addresses of the Node")]
    NotReported(IpAddr),
    /// A name that is not proven to be the node's.
    #[error("{0:?} is not the name of the Node")]
    OtherName(String),
    /// A name that clients in the cluster look up for another purpose.
    #[error("{0:?} is a name of the cluster's own")]
    ReservedName(String),
    /// Loopback, link-local, multicast, or no address at all.
    #[error("{0} is not the address of one machine")]
    NotUnicast(IpAddr),
    /// An API server's, a Service's or a Pod's.
    #[error("{0} is an address of the cluster's own")]
    ReservedAddress(IpAddr),
    /// Another Node reports this address.
    #[error("{0} is also an address of Node {1}")]
    Claimed(IpAddr, String),
    /// It is not proven that the node has this address.
    #[error("{wanted} is not proven: the request came from {}", .found.map_or_else(|| "nowhere".to_owned(), |found| found.to_string()))]
    Unproven {
        /// The address in the request.
        wanted: IpAddr,
        /// The address that the request came from.
        found: Option<IpAddr>,
    },
}

impl Objection {
    /// Whether the objection is normal for a short time: a new node has not reported all its addresses yet.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NoNode(_) | Self::NotReported(_))
    }
}

/// Checks a request from an address that its own node made. `nodes` are all Nodes.
pub fn check(request: &Request, from: Option<IpAddr>, nodes: &[Arc<Node>], reserved: &Reserved) -> Result<(), Objection> {
    let name = request.node_name().unwrap_or_default();
    let node = nodes.iter().find(|node| meta::name(&node.metadata) == name).ok_or_else(|| Objection::NoNode(name.to_owned()))?;
    for dns in &request.dns {
        check_name(dns, name, reserved)?;
    }
    for ip in &request.ips {
        check_address(*ip, (from, node), nodes, reserved)?;
    }
    Ok(())
}

fn check_name(name: &str, node: &str, reserved: &Reserved) -> Result<(), Objection> {
    if name != node {
        return Err(Objection::OtherName(name.to_owned()));
    }
    let lower = name.trim_end_matches('.').to_ascii_lowercase();
    let below =
        |parent: &str| !parent.is_empty() && (lower == parent || lower.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')));
    let is_kubernetes = lower == "kubernetes" || lower.starts_with("kubernetes.");
    let is_taken = is_kubernetes || reserved.names.iter().any(|name| name.eq_ignore_ascii_case(&lower));
    if is_taken || below("localhost") || below("svc") || below(&reserved.cluster_domain) || lower.contains('*') {
        return Err(Objection::ReservedName(name.to_owned()));
    }
    Ok(())
}

fn check_address(
    address: IpAddr,
    (from, node): (Option<IpAddr>, &Node),
    nodes: &[Arc<Node>],
    reserved: &Reserved,
) -> Result<(), Objection> {
    if !is_unicast(address) {
        return Err(Objection::NotUnicast(address));
    }
    let is_in_range = |range: &Ipv4Net| matches!(address, IpAddr::V4(ip) if range.contains(&ip));
    if reserved.addresses.contains(&address)
        || reserved.ranges.iter().any(is_in_range)
        || nodes.iter().any(|node| has_pods_at(node, address))
    {
        return Err(Objection::ReservedAddress(address));
    }
    if !has_address(node, address) {
        return Err(Objection::NotReported(address));
    }
    let other = nodes.iter().find(|other| meta::name(&other.metadata) != meta::name(&node.metadata) && has_address(other, address));
    if let Some(other) = other {
        return Err(Objection::Claimed(address, meta::name(&other.metadata).to_owned()));
    }
    if from == Some(address) { Ok(()) } else { Err(Objection::Unproven { wanted: address, found: from }) }
}

fn is_unicast(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !is_local && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
}

fn has_address(node: &Node, wanted: IpAddr) -> bool {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.into_iter().any(|address| address.address.parse() == Ok(wanted))
}

/// Whether an address is in the Pod range of a node.
fn has_pods_at(node: &Node, wanted: IpAddr) -> bool {
    let IpAddr::V4(wanted) = wanted else { return false };
    let ranges = node.spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    ranges.into_iter().filter_map(|range| range.parse::<Ipv4Net>().ok()).any(|range| range.contains(&wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, addresses: &[&str], pods: &str) -> Arc<Node> {
        let addresses: Vec<_> = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
        let object = json!({"metadata": {"name": name}, "spec": {"podCIDR": pods}, "status": {"addresses": addresses}});
        Arc::new(serde_json::from_value(object).expect("a Node"))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// The result for a node that requests a name or an address, which it also reports as its own, from its address.
    fn check_one_address(node_name: &str, wanted: &str) -> Result<(), Objection> {
        let all = [wanted, "192.0.2.7", "192.0.2.8"];
        let nodes = [node(node_name, &all, "10.244.3.0/24"), node("other", &["192.0.2.8"], "172.20.4.0/24")];
        let reserved = Reserved {
            cluster_domain: "cluster.local".to_owned(),
            names: ["api.example.com".to_owned()].into(),
            addresses: [ip("192.0.2.1")].into(),
            ranges: vec!["10.96.0.0/12".parse().expect("a range"), "10.244.0.0/16".parse().expect("a range")],
        };
        let mut request = Request {
            common_name: format!("system:node:{node_name}"),
            organizations: vec!["system:nodes".to_owned()],
            ..Request::default()
        };
        match wanted.parse() {
            Ok(address) => request.ips.push(address),
            Err(_) => request.dns.push(wanted.to_owned()),
        }
        check(&request, Some(ip("192.0.2.7")), &nodes, &reserved)
    }

    #[test]
    fn a_node_is_its_own_name_and_nothing_else() {
        for (node, name, wanted) in [
            ("n1", "n1", Ok(())),
            ("n1.example.com", "n1.example.com", Ok(())),
            ("n1", "other", Err(Objection::OtherName("other".to_owned()))),
            ("n1", "*.example.com", Err(Objection::OtherName("*.example.com".to_owned()))),
            ("n1", "kubernetes.default.svc", Err(Objection::OtherName("kubernetes.default.svc".to_owned()))),
        ] {
            assert_eq!(check_one_address(node, name), wanted, "{node} {name}");
        }
        // A node may have any name, but other clients must not look up something else by it.
        for name in [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "hook.shop.svc",
            "hook.shop.svc.cluster.local",
            "localhost",
            "a.localhost",
            "api.example.com",
        ] {
            assert_eq!(check_one_address(name, name), Err(Objection::ReservedName(name.to_owned())), "{name}");
        }
    }

    #[test]
    fn an_address_is_the_one_that_the_request_came_from() {
        let address = |text: &str| check_one_address("n1", text);
        assert_eq!(address("192.0.2.7"), Ok(()));
        assert_eq!(address("192.0.2.9"), Err(Objection::Unproven { wanted: ip("192.0.2.9"), found: Some(ip("192.0.2.7")) }));
        assert_eq!(address("192.0.2.8"), Err(Objection::Claimed(ip("192.0.2.8"), "other".to_owned())));
        for text in ["192.0.2.1", "10.96.0.1", "10.111.0.1", "10.244.0.9", "10.244.3.1", "172.20.4.9"] {
            assert_eq!(address(text), Err(Objection::ReservedAddress(ip(text))), "{text}");
        }
        for text in
            ["127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "ff02::1", "::ffff:192.0.2.7"]
        {
            assert_eq!(address(text), Err(Objection::NotUnicast(ip(text))), "{text}");
        }
    }

    #[test]
    fn unreported_addresses_are_not_the_nodes_own() {
        let mut request = Request { ips: vec![ip("192.0.2.7")], ..Request::default() };
        request.organizations = vec!["system:nodes".to_owned()];
        request.common_name = "system:node:n1".to_owned();
        let checked = |nodes: &[Arc<Node>], from: Option<IpAddr>| check(&request, from, nodes, &Reserved::default());
        assert_eq!(checked(&[], Some(ip("192.0.2.7"))), Err(Objection::NoNode("n1".to_owned())));
        assert_eq!(checked(&[node("n1", &[], "")], Some(ip("192.0.2.7"))), Err(Objection::NotReported(ip("192.0.2.7"))));
        let nodes = [node("n1", &["192.0.2.7"], "")];
        assert_eq!(checked(&nodes, None), Err(Objection::Unproven { wanted: ip("192.0.2.7"), found: None }));
        assert_eq!(checked(&nodes, Some(ip("192.0.2.7"))), Ok(()));
    }
}
