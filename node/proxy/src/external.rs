//! Which addresses from outside of the cluster a node serves for a Service. Every user who may write a Service chooses its
//! `externalIPs`, so a node does not trust them: an address of the cluster itself, or one on which the node itself listens,
//! would lead other users' packets to that user's Pods (the class of CVE-2020-8554). Addresses of a load balancer's status and
//! node ports are checked in the same way.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use node_netfilter::Protocol;
use thiserror::Error;

use crate::Config;

/// Why a node does not serve an address or a port.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unsafe {
    /// An address that has a meaning on one machine or one link only.
    #[error("it is {0}")]
    Special(&'static str),
    /// Cluster DNS, the API server's Service and all others are in this range.
    #[error("it lies in the range of Service addresses {0}")]
    ServiceRange(Ipv4Net),
    /// A Pod has it, or will have it.
    #[error("it lies in the range of Pod addresses {0}")]
    PodRange(Ipv4Net),
    /// A program of the node has the port.
    #[error("a program of the node listens on port {1}/{proto} there", proto = .0.as_str())]
    NodeListens(Protocol, u16),
}

/// What a node does not serve for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// The external address; `None` is a node port.
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) why: Unsafe,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => write!(f, "External address {ip} is not served: {}", self.why),
            None => write!(f, "Node port is not served: {}", self.why),
        }
    }
}

/// Rejects addresses that no Service may have, whatever the port is.
pub(crate) fn check(ip: Ipv4Addr, config: &Config) -> Result<(), Unsafe> {
    if let Some(what) = special(ip) {
        return Err(Unsafe::Special(what));
    }
    if config.service_cidr.contains(&ip) || config.exclude.contains(&ip) {
        return Err(Unsafe::ServiceRange(config.service_cidr));
    }
    if config.cluster_cidr.contains(&ip) {
        return Err(Unsafe::PodRange(config.cluster_cidr));
    }
    Ok(())
}

/// The kind of an address that means a different machine or group on each machine; `None` for other addresses.
pub(crate) fn special(ip: Ipv4Addr) -> Option<&'static str> {
    let kinds = [
        (ip.octets().first() == Some(&0), "an unspecified address"),
        (ip.is_loopback(), "a loopback address"),
        (ip.is_link_local(), "a link-local address"),
        (ip.is_multicast(), "a multicast address"),
        (ip.is_broadcast(), "the broadcast address"),
    ];
    kinds.into_iter().find_map(|(is, what)| is.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::config;

    #[test]
    fn what_is_the_clusters_or_nobodys_is_rejected() {
        let verdict =
            |ip: &str| check(ip.parse().expect("an address"), &config()).map_or_else(|error| error.to_string(), |()| "served".to_owned());
        for (ip, wanted) in [
            ("203.0.113.7", "served"),
            // A node's own address: the machine's listeners decide which of its ports are free.
            ("192.0.2.1", "served"),
            ("10.96.0.10", "it lies in the range of Service addresses 10.96.0.0/12"),
            ("10.96.0.1", "it lies in the range of Service addresses 10.96.0.0/12"),
            ("10.111.255.255", "it lies in the range of Service addresses 10.96.0.0/12"),
            ("10.244.0.1", "it lies in the range of Pod addresses 10.244.0.0/16"),
            ("10.244.77.9", "it lies in the range of Pod addresses 10.244.0.0/16"),
            ("127.0.0.1", "it is a loopback address"),
            ("127.8.9.10", "it is a loopback address"),
            ("169.254.169.254", "it is a link-local address"),
            ("0.0.0.0", "it is an unspecified address"),
            ("0.1.2.3", "it is an unspecified address"),
            ("224.0.0.251", "it is a multicast address"),
            ("255.255.255.255", "it is the broadcast address"),
        ] {
            assert_eq!(verdict(ip), wanted, "{ip}");
        }
    }
}
