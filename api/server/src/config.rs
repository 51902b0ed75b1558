//! What the binary decides about the server.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, StaticTokens};
use ipnet::Ipv4Net;

/// Everything that the server has to be told. Field names follow upstream's flags.
pub struct Config {
    /// The cluster's keys and certificates.
    pub pki: Arc<Pki>,
    /// Where nodes and Pods reach this server: the `kubernetes` Service's endpoint.
    pub advertise_address: SocketAddr,
    /// Addresses of Services. The first is the `kubernetes` Service's, the tenth the cluster DNS'.
    pub service_cluster_ip_range: Ipv4Net,
    /// Ports of Services on every node.
    pub service_node_port_range: RangeInclusive<u16>,
    /// The cluster's DNS domain, `cluster.local` unless changed.
    pub cluster_domain: String,
    /// The content of `--token-auth-file`.
    pub token_auth_file: StaticTokens,
    /// Whether requests without credentials are let through as `system:anonymous`.
    pub anonymous_auth: bool,
    /// Admission plugins that are off.
    pub disable_admission_plugins: Vec<String>,
    /// How long a request may take that is no watch, log or exec.
    pub request_timeout: Duration,
}

impl Config {
    /// Upstream's defaults.
    pub fn new(pki: Arc<Pki>, advertise_address: SocketAddr) -> Self {
        Self {
            pki,
            advertise_address,
            service_cluster_ip_range: DEFAULT_SERVICE_RANGE,
            service_node_port_range: 30_000..=32_767,
            cluster_domain: "cluster.local".to_owned(),
            token_auth_file: StaticTokens::default(),
            anonymous_auth: true,
            disable_admission_plugins: Vec::new(),
            request_timeout: Duration::from_secs(60),
        }
    }
}

const DEFAULT_SERVICE_RANGE: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 96, 0, 0), 12);
