//! The settings that the binary passes to the controllers: which controllers run, the cluster's addresses, the signing
//! authority and every duration, so that tests can shorten them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api_client::fence::Fence;
use api_client::lease::Election;
use ipnet::{IpNet, Ipv4Net};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use thiserror::Error;

use crate::external::ScaledObjectMetrics;

/// The identity with which a controller acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// As the user `system:kube-controller-manager`.
    Manager,
    /// As a ServiceAccount of `kube-system`, upstream's with `--use-service-account-credentials`.
    Named(&'static str),
}

/// Creates a client of an account; with a fence, for the leader's term.
pub type Accounts = Arc<dyn Fn(Account, Option<&Fence>) -> kube::Client + Send + Sync>;

/// Names and addresses that no node may have in its certificate: the cluster's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The cluster's DNS domain: all names below it are Services' and Pods'.
    pub cluster_domain: String,
    /// Names that API servers have certificates for.
    pub names: BTreeSet<String>,
    /// Addresses of API servers.
    pub addresses: BTreeSet<IpAddr>,
    /// Addresses of Services and Pods.
    pub ranges: Vec<Ipv4Net>,
}

/// Settings of all controllers. [`Config::default`] has upstream's values.
#[derive(Clone)]
pub struct Config {
    /// Upstream's `--controllers`: `*`, names, and names with a leading `-`, with or without the
    /// suffix `-controller`. See [`crate::controller_names`].
    pub controllers: Vec<String>,
    /// The range of Pod addresses of the whole cluster; each Node gets a part of it.
    pub cluster_cidr: Ipv4Net,
    /// Prefix length of a Node's part, upstream's 24.
    pub node_cidr_mask_size: u8,
    /// The range of Service addresses: no Node gets a part that overlaps it.
    pub service_cidr: Option<Ipv4Net>,
    /// Names and addresses for which no node gets a serving certificate. The two ranges above need not be repeated.
    pub reserved: Reserved,
    /// The PEM that every namespace gets as ConfigMap `kube-root-ca.crt`; without it there is no such ConfigMap.
    pub root_ca_pem: Option<String>,
    /// Signs certificate signing requests; without it requests are approved but not signed.
    pub signer: Option<Arc<dyn Signer>>,
    /// Longest validity of a signed certificate, upstream's year.
    pub certificate_duration: Duration,
    /// Clients of the accounts that controllers act as; without it all controllers act as the client with which they are run, and an
    /// elected leader has no fence.
    pub accounts: Option<Accounts>,
    /// The controllers run only while they hold this Lease. For several servers on one store.
    pub election: Option<Election>,
    /// Timing of node lifecycle and eviction.
    pub nodes: NodeTiming,
    /// How often the Pod garbage collector may look, upstream's 20 s. It sleeps when nothing changes.
    pub pod_gc_period: Duration,
    /// How long Pods on a Node that is gone are left alone, upstream's 40 s.
    pub pod_gc_quarantine: Duration,
    /// Terminated Pods above this number are deleted, oldest first; 0, never. Upstream's 12,500.
    pub terminated_pod_gc_threshold: usize,
    /// The time zone of CronJobs that name none: upstream's is that of the controller manager's machine.
    pub time_zone: TimeZone,
    /// Timing of HorizontalPodAutoscalers.
    pub autoscaling: Autoscaling,
    /// Addresses that triggers of ScaledObjects and ScaledJobs may reach although they are this machine's own, link-local, or API
    /// servers'.
    pub triggers_may_reach: Vec<IpNet>,
    /// Where the API server of this process finds the latest values of the metrics of ScaledObjects.
    pub scaled_object_metrics: ScaledObjectMetrics,
    /// The period in which the garbage collector discovers the served kinds, upstream's 30 s.
    pub discovery_period: Duration,
}

/// Timing of node lifecycle and taint eviction, upstream's flags.
#[derive(Clone, Debug)]
pub struct NodeTiming {
    /// A Node without a heartbeat for this time is lost: `--node-monitor-grace-period`.
    pub grace_period: Duration,
    /// The same for a Node that never reported: `--node-startup-grace-period`.
    pub startup_grace_period: Duration,
    /// Nodes a second that may begin to be evicted: `--node-eviction-rate`.
    pub eviction_rate: f64,
    /// The same in a large zone that is partly down: `--secondary-node-eviction-rate`.
    pub secondary_eviction_rate: f64,
    /// Zones of at most this number of Nodes are not evicted while partly down: `--large-cluster-size-threshold`.
    pub large_cluster_size_threshold: usize,
    /// The share of lost Nodes at which a zone is partly down: `--unhealthy-zone-threshold`.
    pub unhealthy_zone_threshold: f64,
}

/// Timing of HorizontalPodAutoscalers, upstream's flags that begin with `--horizontal-pod-autoscaler-`.
#[derive(Clone, Debug)]
pub struct Autoscaling {
    /// The period in which each of them is looked at: `sync-period`.
    pub sync_period: Duration,
    /// For how long the highest proposal counts before a target gets fewer replicas: `downscale-stabilization`.
    pub downscale_stabilization: SignedDuration,
    /// The ratio of a metric to its target may differ from 1 by this much: `tolerance`.
    pub tolerance: f64,
    /// The time after the start of a Pod in which it may use CPU without working: `cpu-initialization-period`.
    pub cpu_initialization_period: SignedDuration,
    /// Within this time after the start of a Pod, readiness may change: `initial-readiness-delay`.
    pub initial_readiness_delay: SignedDuration,
}

impl Default for Autoscaling {
    fn default() -> Self {
        Self {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: SignedDuration::from_mins(5),
            tolerance: 0.1,
            cpu_initialization_period: SignedDuration::from_mins(5),
            initial_readiness_delay: SignedDuration::from_secs(30),
        }
    }
}

impl Default for NodeTiming {
    fn default() -> Self {
        Self {
            grace_period: Duration::from_secs(40),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            controllers: vec!["*".to_owned()],
            cluster_cidr: Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 244, 0, 0), 16),
            node_cidr_mask_size: 24,
            service_cidr: None,
            reserved: Reserved::default(),
            root_ca_pem: None,
            signer: None,
            certificate_duration: Duration::from_secs(365 * 24 * 3600),
            accounts: None,
            election: None,
            nodes: NodeTiming::default(),
            pod_gc_period: Duration::from_secs(20),
            pod_gc_quarantine: Duration::from_secs(40),
            terminated_pod_gc_threshold: 12_500,
            time_zone: TimeZone::UTC,
            autoscaling: Autoscaling::default(),
            triggers_may_reach: Vec::new(),
            scaled_object_metrics: ScaledObjectMetrics::default(),
            discovery_period: Duration::from_secs(30),
        }
    }
}

/// What a certificate is signed for. The request was approved and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    /// The PKCS #10 request in PEM.
    pub request_pem: String,
    /// `spec.usages`, for example `client auth`.
    pub usages: Vec<String>,
    /// How long the certificate is to be valid.
    pub duration: Duration,
}

/// The authority behind certificate signing requests. It signs subject, names and key as they are
/// in the request; this crate checks before that the requester may have them.
pub trait Signer: Send + Sync {
    /// The certificate in PEM, leaf first.
    fn sign(&self, request: &SigningRequest) -> Result<String, SigningError>;
}

impl<F> Signer for F
where
    F: Fn(&SigningRequest) -> Result<String, SigningError> + Send + Sync,
{
    fn sign(&self, request: &SigningRequest) -> Result<String, SigningError> {
        self(request)
    }
}

/// Why the authority did not sign.
#[derive(Debug, Error)]
pub enum SigningError {
    /// No certificate can be made of the request; another attempt would end the same way.
    #[error("{0}")]
    Unfit(Box<dyn std::error::Error + Send + Sync>),
    /// The authority failed.
    #[error("signing a certificate")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A name in `--controllers` that no controller has.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("\"{name}\" is not in the list of known controllers")]
pub struct UnknownController {
    /// The name in the list.
    pub name: String,
}

/// Whether upstream's `--controllers` list enables `name`: an explicit mention decides, `-name` before `name`, else `*` enables
/// it.
pub(crate) fn enabled(list: &[String], name: &str) -> bool {
    let mentions = |item: &str| same_controller(item, name);
    if list.iter().any(|item| item.strip_prefix('-').is_some_and(mentions)) {
        return false;
    }
    list.iter().any(|item| item == "*" || mentions(item))
}

/// Checks that every mention names one of `controllers`.
pub(crate) fn check_names(list: &[String], controllers: &[&str]) -> Result<(), UnknownController> {
    for item in list.iter().filter(|item| *item != "*") {
        let name = item.strip_prefix('-').unwrap_or(item);
        if !controllers.iter().any(|k| same_controller(name, k)) {
            return Err(UnknownController { name: name.to_owned() });
        }
    }
    Ok(())
}

fn same_controller(given: &str, name: &str) -> bool {
    given == name || name.strip_suffix("-controller") == Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_the_star_select_controllers() {
        let cases: &[(&[&str], &str, bool)] = &[
            (&["*"], "deployment-controller", true),
            (&["*", "-deployment-controller"], "deployment-controller", false),
            (&["*", "-deployment"], "deployment-controller", false),
            (&["*", "-deployment"], "replicaset-controller", true),
            (&["deployment"], "deployment-controller", true),
            (&["deployment"], "replicaset-controller", false),
            (&[], "replicaset-controller", false),
        ];
        for (list, name, expected) in cases {
            let list: Vec<String> = list.iter().map(|&s| s.to_owned()).collect();
            assert_eq!(enabled(&list, name), *expected, "{list:?} {name}");
        }
    }

    #[test]
    fn an_unknown_name_is_rejected() {
        let controllers = ["deployment-controller"];
        assert_eq!(check_names(&["*".to_owned(), "-deployment".to_owned()], &controllers), Ok(()));
        assert!(check_names(&["-deploymnt".to_owned()], &controllers).is_err());
    }
}
