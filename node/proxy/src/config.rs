//! The proxy's settings.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use ipnet::Ipv4Net;

/// How one node of one cluster programs Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Starts the table's name (`<prefix>-proxy`); distinct for each cluster on a machine.
    pub prefix: String,
    /// The node's name, to recognize its own endpoints.
    pub node_name: String,
    /// The node's own address.
    pub node_ip: IpAddr,
    /// The range of all Pods; packets from outside of it to a cluster address are masqueraded.
    pub cluster_cidr: Ipv4Net,
    /// The range of Service addresses; addresses without a Service are rejected.
    pub service_cidr: Ipv4Net,
    /// TCP ports of the node's own programs, also before they listen: no Service takes them.
    pub reserved_ports: Vec<u16>,
    /// Service addresses that another program serves (the cluster DNS address).
    pub exclude: Vec<Ipv4Addr>,
    /// How long changes are gathered before they are written together.
    pub min_sync_period: Duration,
    /// Where connections go that wait for an endpoint. None: they are rejected. [`run`](crate::run) sets the address once the
    /// activator listens there.
    pub activator: Option<SocketAddrV4>,
}

impl Config {
    /// The default of [`Config::min_sync_period`]: short enough for a Service to work within 50 ms
    /// of its change, long enough for a rollout's endpoints to go in one transaction.
    pub const MIN_SYNC_PERIOD: Duration = Duration::from_millis(20);

    /// The nftables table (family `ip`).
    pub fn table(&self) -> String {
        table(&self.prefix)
    }
}

/// The table of the cluster with this prefix.
pub(crate) fn table(prefix: &str) -> String {
    format!("{prefix}-proxy")
}
