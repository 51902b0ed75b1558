//! The use of Services on all nodes, as their proxies and agents report it in the nodes' Leases.

use std::sync::Arc;

use api_client::demand::{Demand, Measurement, Report, Requests};
use api_client::informer::{Change, Informer, ObjectKey};
use api_client::lease::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};

use crate::context::ControllerContext;
use crate::{meta, nodes};

/// The reports of all nodes, and the Services that they are about.
pub struct Reports {
    /// The Leases of nodes.
    pub leases: Informer<Lease>,
    /// Nodes.
    pub nodes: Informer<Node>,
    /// Services.
    pub services: Informer<Service>,
}

impl Reports {
    /// The reports to this process.
    pub fn new(context: &mut ControllerContext) -> Self {
        Self { leases: context.selected(nodes::LEASES), nodes: context.informer(), services: context.informer() }
    }

    /// The demand for a Service on all nodes that are ready. A node that is lost leaves its last report behind.
    pub fn demand(&self, service: &ObjectKey) -> Demand {
        let leases = self.leases.list();
        let alive = leases.iter().filter(|lease| self.is_ready(meta::name(&lease.metadata)));
        alive.map(|lease| Report::<Demand>::of(lease).measurement(service)).fold(Demand::default(), Demand::plus)
    }

    /// The requests to a Service on one node; none if the node is not ready.
    pub fn requests(&self, service: &ObjectKey, node: &str) -> Option<Requests> {
        let lease = self.leases.get(&ObjectKey::new(NODE_LEASE_NAMESPACE, node)).filter(|_| self.is_ready(node))?;
        Some(Report::<Requests>::of(&lease).measurement(service))
    }

    fn is_ready(&self, node: &str) -> bool {
        self.nodes.get(&ObjectKey::new("", node)).is_some_and(|node| nodes::is_ready(&node))
    }
}

/// The Services that a node's report says are used again.
pub fn awakened(change: &Change<Lease>) -> Vec<ObjectKey> {
    let annotations = |lease: &Arc<Lease>| lease.metadata.annotations.clone();
    let (old, new) = (change.old.as_ref(), change.new.as_ref());
    // Most changes are heartbeats.
    if old.map(annotations) == new.map(annotations) {
        return Vec::new();
    }
    let mut services = awakened_by::<Demand>(old, new);
    services.extend(awakened_by::<Requests>(old, new));
    services
}

fn awakened_by<M: Measurement>(old: Option<&Arc<Lease>>, new: Option<&Arc<Lease>>) -> Vec<ObjectKey> {
    let report = |lease: Option<&Arc<Lease>>| lease.map(|lease| Report::<M>::of(lease)).unwrap_or_default();
    report(new).awakened(&report(old))
}
