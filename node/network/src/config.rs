//! Settings of the node's network, and the values that it takes and returns: plain data, checked once where it enters.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use ipnet::Ipv4Net;
use node_netfilter::Protocol;
use runtimes_contract::Sandbox;
use serde::{Deserialize, Serialize};

use crate::NetworkError;

/// Longest prefix that leaves room for the longest interface name made from it (`<prefix>v` and six
/// hex digits) in the kernel's 15 characters.
const PREFIX_LEN_MAX: usize = 8;

/// How one node of one cluster is connected. IPv4 for now: everything that would differ for IPv6 takes its family from these
/// fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The prefix of the name of every interface and table; distinct for each cluster on a machine. One to eight of `a-z0-9`.
    pub prefix: String,
    /// The directory of pinned namespaces and allocated addresses; created when it does not exist.
    pub state_dir: PathBuf,
    /// The node's own address, as other nodes reach it.
    pub node_ip: IpAddr,
    /// Range of all Pods of the cluster (`--cluster-cidr`).
    pub cluster_cidr: Ipv4Net,
    /// Range of Service addresses (`--service-cluster-ip-range`).
    pub service_cidr: Ipv4Net,
    /// The cluster's DNS address, within `service_cidr`; every node has it as an own address.
    pub dns_ip: Ipv4Addr,
    /// TCP ports of the node's own programs, also before they listen: no host port may be one of them.
    pub reserved_ports: Vec<u16>,
}

impl Config {
    /// Rejects values that cannot work.
    pub(crate) fn validate(&self) -> Result<(), NetworkError> {
        let invalid = |message: String| Err(NetworkError::Invalid(message));
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if self.prefix.is_empty() || self.prefix.len() > PREFIX_LEN_MAX || !self.prefix.chars().all(fits) {
            return invalid(format!("prefix {:?} is not one to eight of a-z0-9", self.prefix));
        }
        let (pods, services) = (self.cluster_cidr, self.service_cidr);
        if pods.contains(&services) || services.contains(&pods) {
            return invalid(format!("--cluster-cidr {pods} and --service-cluster-ip-range {services} overlap"));
        }
        if !services.contains(&self.dns_ip) {
            return invalid(format!("cluster DNS address {} is not within --service-cluster-ip-range {services}", self.dns_ip));
        }
        match self.node_ip {
            IpAddr::V4(ip) if pods.contains(&ip) => invalid(format!("node address {ip} is within --cluster-cidr {pods}")),
            IpAddr::V4(ip) if services.contains(&ip) => {
                invalid(format!("node address {ip} is within --service-cluster-ip-range {services}"))
            }
            _ => Ok(()),
        }
    }

    /// A pattern of nftables for the bridges that the node's Pods hang on.
    pub(crate) fn bridges(&self) -> String {
        format!("{}-br*", self.prefix)
    }

    /// The interface that carries the cluster DNS address.
    pub fn dns_interface(&self) -> String {
        format!("{}-dns", self.prefix)
    }

    /// The nftables table of this crate (family `ip`).
    pub fn table(&self) -> String {
        format!("{}-net", self.prefix)
    }
}

/// A port of the node that leads to a Pod (`ports[].hostPort`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The node's address of the port; `None` is all of them (`0.0.0.0`).
    pub host_ip: Option<Ipv4Addr>,
    /// Transport.
    pub protocol: Protocol,
    /// Port on the node.
    pub host_port: u16,
    /// Port in the Pod.
    pub container_port: u16,
}

/// The network of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetwork {
    /// Its pinned namespaces; network, IPC and UTS are all set.
    pub sandbox: Sandbox,
    /// Its address.
    pub ip: IpAddr,
}

/// Another node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The range of its Pods.
    pub pod_cidr: Ipv4Net,
    /// Its address, on a link that this node shares.
    pub via: Ipv4Addr,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            prefix: "sk1".to_owned(),
            state_dir: PathBuf::from("/nowhere"),
            node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            cluster_cidr: "10.244.0.0/16".parse().expect("a range"),
            service_cidr: "10.96.0.0/12".parse().expect("a range"),
            dns_ip: Ipv4Addr::new(10, 96, 0, 10),
            reserved_ports: Vec::new(),
        }
    }

    #[test]
    fn refuses_what_cannot_work_and_names_the_flag() {
        let with = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            config.validate().err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(with(|_| ()), "");
        assert_eq!(with(|c| c.prefix = "Skiff".to_owned()), "prefix \"Skiff\" is not one to eight of a-z0-9");
        assert_eq!(with(|c| c.prefix = "skiffskif".to_owned()), "prefix \"skiffskif\" is not one to eight of a-z0-9");
        assert_eq!(
            with(|c| c.cluster_cidr = "10.100.0.0/16".parse().expect("a range")),
            "--cluster-cidr 10.100.0.0/16 and --service-cluster-ip-range 10.96.0.0/12 overlap"
        );
        assert_eq!(
            with(|c| c.dns_ip = Ipv4Addr::new(10, 95, 0, 10)),
            "cluster DNS address 10.95.0.10 is not within --service-cluster-ip-range 10.96.0.0/12"
        );
        assert_eq!(
            with(|c| c.node_ip = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 1))),
            "node address 10.244.0.1 is within --cluster-cidr 10.244.0.0/16"
        );
    }
}
