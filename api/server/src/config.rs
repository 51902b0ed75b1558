//! The server's configuration.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use api_auth::{Pki, StaticTokens, TokensConfig};
use ipnet::Ipv4Net;
use jiff::Timestamp;

use crate::audit::AuditConfig;
use crate::oidc::OidcProvider;
use api_cache::AtRest;

/// What the controllers of this process know of the metrics of ScaledObjects.
pub trait ExternalMetrics: Send + Sync {
    /// The latest value of a metric of a ScaledObject, in thousandths, and when it was read. This reads memory alone.
    ///
    /// # Errors
    /// When there is no value.
    fn latest(&self, namespace: &str, scaled_object: &str, metric: &str) -> Result<(i64, Timestamp), NoMetric>;
}

/// Why there is no value of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMetric {
    /// The controllers of another server have it.
    Elsewhere,
    /// There is no such metric.
    Unknown,
    /// Its source failed.
    Failed,
}

/// The configuration of a server. Field names follow upstream's flags.
pub struct Config {
    /// The cluster's keys and certificates.
    pub pki: Arc<Pki>,
    /// The address at which nodes and Pods reach this server: the endpoint of the `kubernetes` Service.
    pub advertise_address: SocketAddr,
    /// Addresses of Services. The first is the `kubernetes` Service's, the tenth the cluster DNS'.
    pub service_cluster_ip_range: Ipv4Net,
    /// Ports of Services on every node.
    pub service_node_port_range: RangeInclusive<u16>,
    /// The cluster's DNS domain, `cluster.local` unless changed.
    pub cluster_domain: String,
    /// The content of `--token-auth-file`.
    pub token_auth_file: StaticTokens,
    /// Whether requests without credentials are accepted as `system:anonymous`.
    pub anonymous_auth: bool,
    /// Admission plugins that are off.
    pub disable_admission_plugins: Vec<String>,
    /// Whether nodes may create mirror Pods of their static Pods.
    pub mirror_pods: bool,
    /// The issuer of ServiceAccount tokens; none: the API server's name in the cluster.
    pub service_account_issuer: Option<String>,
    /// The address at which the keys of these tokens are published; none: under the issuer.
    pub service_account_jwks_uri: Option<String>,
    /// The audiences for which the API server itself accepts tokens; empty: the issuer.
    pub api_audiences: Vec<String>,
    /// An OpenID Connect provider whose users are accepted.
    pub oidc: Option<OidcProvider>,
    /// Encryption of objects in the store: the content of `--encryption-provider-config`.
    pub encryption: AtRest,
    /// The audit policy and log; none: no requests are recorded.
    pub audit: Option<AuditConfig>,
    /// The longest time of a request, but for watches, logs and connections.
    pub request_timeout: Duration,
    /// Requests that change nothing and are answered at the same time. Together with the next field: the number of seats of
    /// priority and fairness.
    pub max_requests_inflight: u32,
    /// Requests that change something and are answered at the same time.
    pub max_mutating_requests_inflight: u32,
    /// Connections at the same time, shared among the addresses that they come from.
    pub connections_max: usize,
    /// How long an Event is kept after its last write; zero: for ever.
    pub event_ttl: Duration,
    /// How often the use of nodes and Pods is read from the nodes (the metrics server's flag); zero: never.
    pub metric_resolution: Duration,
    /// Parts that run in this process and end it when they fail: `controller-manager`, `scheduler`.
    pub components: Vec<String>,
    /// Whether the server creates the definitions of `keda.sh`: for controllers that act on ScaledObjects and ScaledJobs.
    pub scaled_objects: bool,
    /// Where the values of `external.metrics.k8s.io` are; none: the group is not served.
    pub external_metrics: Option<Arc<dyn ExternalMetrics>>,
    /// Whether a new cluster gets the StorageClass `local-path`: whether something provisions its volumes.
    pub local_volumes: bool,
    /// Whether the server of a node may be on loopback, as in the tests of this crate.
    pub(crate) nodes_on_loopback: bool,
}

impl Config {
    /// Issuer and audiences of ServiceAccount tokens.
    pub(crate) fn tokens(&self) -> TokensConfig {
        let mut tokens = TokensConfig::for_cluster(&self.cluster_domain);
        if let Some(issuer) = &self.service_account_issuer {
            tokens.jwks_uri = format!("{}/openid/v1/jwks", issuer.trim_end_matches('/'));
            tokens.api_audiences = vec![issuer.clone()];
            tokens.issuer.clone_from(issuer);
        }
        if let Some(uri) = &self.service_account_jwks_uri {
            tokens.jwks_uri.clone_from(uri);
        }
        if !self.api_audiences.is_empty() {
            tokens.api_audiences.clone_from(&self.api_audiences);
        }
        tokens
    }

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
            mirror_pods: false,
            service_account_issuer: None,
            service_account_jwks_uri: None,
            api_audiences: Vec::new(),
            oidc: None,
            encryption: AtRest::default(),
            audit: None,
            request_timeout: Duration::from_secs(60),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            connections_max: 20_000,
            event_ttl: Duration::from_secs(3_600),
            metric_resolution: Duration::ZERO,
            components: Vec::new(),
            scaled_objects: false,
            external_metrics: None,
            local_volumes: false,
            nodes_on_loopback: false,
        }
    }
}

const DEFAULT_SERVICE_RANGE: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 96, 0, 0), 12);
