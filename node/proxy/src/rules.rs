//! From one Service and its endpoints to rules: a pure function to a [`RuleSet`], the union of
//! which over all Services is what the kernel should hold. A packet finds its Service by one look
//! into a verdict map keyed by address, transport and port, and its endpoint by one random number,
//! however many there are of either.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use sha2::{Digest, Sha256};

use crate::Config;
use crate::service::{Endpoint, Key, Protocol, Service, ServicePort, Slice};

/// The mark of packets to be masqueraded, upstream's.
pub(crate) const MASQUERADE_MARK: u32 = 0x4000;
/// Clients remembered for each endpoint under session affinity.
const AFFINITY_CLIENTS_MAX: u32 = 65_536;

/// A map or set of the table, by its nft name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Collection {
    /// Addresses of all Services, whatever their ports.
    ClusterIps,
    /// Endpoints of this node, each paired with itself.
    Hairpin,
    /// Address, transport and port of what has endpoints.
    Services,
    /// Transport and port on every address of the node.
    NodePorts,
    /// As `Services`, of what has no usable endpoints.
    Refused,
    /// As `NodePorts`, of what has no usable endpoints.
    RefusedNodePorts,
}

impl Collection {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIps => "cluster-ips",
            Self::Hairpin => "hairpin",
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::Refused => "refused",
            Self::RefusedNodePorts => "refused-node-ports",
        }
    }
}

/// Rules, in nft's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleSet {
    /// Definitions of the sets that remember clients.
    pub(crate) sets: BTreeMap<String, String>,
    pub(crate) chains: BTreeMap<String, Vec<String>>,
    /// Elements of the fixed maps and sets with their verdicts (empty in sets).
    pub(crate) elements: BTreeMap<(Collection, String), String>,
    /// What UDP flows lead where, to find those that outlive their endpoint.
    pub(crate) flows: BTreeMap<Front, BTreeSet<SocketAddrV4>>,
}

/// An address and port that UDP clients use; without an address it is the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Front {
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) port: u16,
}

impl RuleSet {
    /// Adds another Service's rules. Where two claim one address and port, the first one keeps it.
    pub(crate) fn merge(&mut self, other: &Self) {
        fn fill<K: Ord + Clone, V: Clone>(into: &mut BTreeMap<K, V>, from: &BTreeMap<K, V>) {
            for (key, value) in from {
                into.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        fill(&mut self.sets, &other.sets);
        fill(&mut self.chains, &other.chains);
        fill(&mut self.elements, &other.elements);
        for (front, endpoints) in &other.flows {
            self.flows.entry(*front).or_default().extend(endpoints);
        }
    }

    fn add(&mut self, collection: Collection, key: String, verdict: &str) {
        self.elements.entry((collection, key)).or_insert_with(|| verdict.to_owned());
    }
}

/// The rules of one Service.
pub(crate) fn rules(key: &Key, service: &Service, slices: &[&Slice], config: &Config) -> RuleSet {
    let mut rules = RuleSet::default();
    for ip in &service.cluster_ips {
        rules.add(Collection::ClusterIps, ip.to_string(), "");
    }
    for port in &service.ports {
        Port::new(key, service, port, slices, config).write(&mut rules);
    }
    rules
}

/// Where packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Backend {
    ip: Ipv4Addr,
    port: u16,
}

/// Everything that one port's rules are made of.
struct Port<'a> {
    service: &'a Service,
    port: &'a ServicePort,
    config: &'a Config,
    /// What every chain's name ends in: a digest, so that names stay distinct, then words for people.
    suffix: String,
    /// Usable endpoints of the cluster, and those of this node.
    all: Vec<Backend>,
    local: Vec<Backend>,
}

impl<'a> Port<'a> {
    fn new(key: &Key, service: &'a Service, port: &'a ServicePort, slices: &[&Slice], config: &'a Config) -> Self {
        let words = format!("{}/{}/{}/{}", key.0, key.1, port.protocol.as_str(), port.name);
        let digest = Sha256::digest(words.as_bytes());
        let digest: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let endpoints: Vec<(Backend, &Endpoint)> = slices
            .iter()
            .flat_map(|slice| {
                let number = slice.ports.iter().find(|(name, protocol, _)| *name == port.name && *protocol == port.protocol);
                number.into_iter().flat_map(|(_, _, number)| slice.endpoints.iter().map(|e| (Backend { ip: e.ip, port: *number }, e)))
            })
            .collect();
        Self {
            service,
            port,
            config,
            suffix: format!("{digest}-{words}"),
            all: usable(endpoints.iter().copied()),
            local: usable(endpoints.iter().copied().filter(|(_, endpoint)| endpoint.local)),
        }
    }

    fn write(&self, rules: &mut RuleSet) {
        let service = self.service;
        for backend in &self.local {
            rules.add(Collection::Hairpin, format!("{0} . {0}", backend.ip), "");
        }
        if service.affinity_seconds.is_some() {
            self.all.iter().chain(&self.local).for_each(|backend| self.write_affinity(rules, *backend));
        }
        let used = if service.internal_local { &self.local } else { &self.all };
        let internal = self.chain(if service.internal_local { "local" } else { "service" });
        if !used.is_empty() {
            rules.chains.insert(internal.clone(), self.balance(used));
        }
        for ip in &service.cluster_ips {
            self.front(rules, Some(*ip), self.port.port, used, &internal);
        }
        self.write_external(rules);
    }

    /// Ways in from outside of the cluster: node port, external addresses, load balancer.
    fn write_external(&self, rules: &mut RuleSet) {
        let service = self.service;
        let ips: Vec<Ipv4Addr> = service.external_ips.iter().chain(&service.load_balancer_ips).copied().collect();
        if ips.is_empty() && self.port.node_port.is_none() {
            return;
        }
        // With the Local policy too, what comes from Pods and the node may go anywhere.
        let (external, everywhere) = (self.chain("external"), self.chain("service"));
        if !self.all.is_empty() {
            rules.chains.entry(everywhere.clone()).or_insert_with(|| self.balance(&self.all));
            rules.chains.insert(external.clone(), self.external(&everywhere));
        }
        for ip in ips {
            self.front(rules, Some(ip), self.port.port, &self.all, &external);
        }
        if let Some(port) = self.port.node_port {
            self.front(rules, None, port, &self.all, &external);
        }
    }

    fn external(&self, everywhere: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.service.load_balancer_ips.is_empty() && !self.service.source_ranges.is_empty() {
            let (ips, ranges) = (join(&self.service.load_balancer_ips), join(&self.service.source_ranges));
            lines.push(format!("ip daddr {{ {ips} }} ip saddr != {{ {ranges} }} drop"));
        }
        let mark = mark();
        if !self.service.external_local {
            lines.push(mark);
            lines.push(format!("goto {everywhere}"));
            return lines;
        }
        lines.push(format!("ip saddr {} goto {everywhere}", self.config.cluster_cidr));
        lines.push(format!("fib saddr type local {mark} goto {everywhere}"));
        if self.local.is_empty() {
            lines.push("drop".to_owned());
        } else {
            lines.extend(self.to_one_of(&self.local));
        }
        lines
    }

    /// One way in: to its chain, or to its refusal. That nothing of this node may serve is no
    /// reason to tell the client that nobody does: such packets are dropped, as upstream.
    fn front(&self, rules: &mut RuleSet, ip: Option<Ipv4Addr>, port: u16, used: &[Backend], chain: &str) {
        let key = match ip {
            Some(ip) => format!("{ip} . {} . {port}", self.port.protocol.as_str()),
            None => format!("{} . {port}", self.port.protocol.as_str()),
        };
        let (found, refused) = match ip {
            Some(_) => (Collection::Services, Collection::Refused),
            None => (Collection::NodePorts, Collection::RefusedNodePorts),
        };
        match (used.is_empty(), self.all.is_empty()) {
            (false, _) => rules.add(found, key, &format!("goto {chain}")),
            (true, false) => rules.add(refused, key, "drop"),
            (true, true) => rules.add(refused, key, "goto refuse"),
        }
        if self.port.protocol == Protocol::Udp {
            rules
                .flows
                .entry(Front { ip, port })
                .or_default()
                .extend(used.iter().map(|backend| SocketAddrV4::new(backend.ip, backend.port)));
        }
    }

    fn chain(&self, kind: &str) -> String {
        format!("{kind}-{}", self.suffix)
    }

    /// A chain that ends at one of the endpoints. What comes to a cluster address from outside of
    /// the Pod range is masqueraded, so that the answer finds its way back through this node.
    fn balance(&self, backends: &[Backend]) -> Vec<String> {
        let (ips, protocol, port) = (join(&self.service.cluster_ips), self.port.protocol.as_str(), self.port.port);
        let outside = format!("ip daddr {{ {ips} }} {protocol} dport {port} ip saddr != {}", self.config.cluster_cidr);
        let mut lines = vec![format!("{outside} {}", mark())];
        lines.extend(self.to_one_of(backends));
        lines
    }

    fn to_one_of(&self, backends: &[Backend]) -> Vec<String> {
        let protocol = self.port.protocol.as_str();
        let choice = format!("numgen random mod {}", backends.len());
        if self.service.affinity_seconds.is_none() {
            return match backends {
                [one] => vec![format!("meta l4proto {protocol} dnat ip to {}:{}", one.ip, one.port)],
                many => {
                    let many: Vec<_> = many.iter().enumerate().map(|(at, b)| format!("{at} : {} . {}", b.ip, b.port)).collect();
                    vec![format!("meta l4proto {protocol} dnat ip to {choice} map {{ {} }}", many.join(", "))]
                }
            };
        }
        let known = |b: &Backend| format!("ip saddr @{} goto {}", self.affinity_set(*b), self.per_backend("endpoint", *b));
        let mut lines: Vec<String> = backends.iter().map(known).collect();
        let any: Vec<_> = backends.iter().enumerate().map(|(at, b)| format!("{at} : goto {}", self.per_backend("endpoint", *b))).collect();
        lines.push(format!("{choice} vmap {{ {} }}", any.join(", ")));
        lines
    }

    fn per_backend(&self, kind: &str, backend: Backend) -> String {
        format!("{}/{}/{}", self.chain(kind), backend.ip, backend.port)
    }

    /// The set of the clients that stay with an endpoint. The time is part of the name: to change
    /// it is to make another set.
    fn affinity_set(&self, backend: Backend) -> String {
        format!("{}/{}s", self.per_backend("affinity", backend), self.service.affinity_seconds.unwrap_or_default())
    }

    fn write_affinity(&self, rules: &mut RuleSet, backend: Backend) {
        let (set, seconds) = (self.affinity_set(backend), self.service.affinity_seconds.unwrap_or_default());
        let lines = vec![
            format!("update @{set} {{ ip saddr }}"),
            format!("meta l4proto {} dnat ip to {}:{}", self.port.protocol.as_str(), backend.ip, backend.port),
        ];
        rules.chains.insert(self.per_backend("endpoint", backend), lines);
        let definition = format!("type ipv4_addr; flags dynamic, timeout; timeout {seconds}s; size {AFFINITY_CLIENTS_MAX};");
        rules.sets.insert(set, definition);
    }
}

/// The endpoints to send to: the ready ones; when there are none, those that still serve while they
/// terminate (KEP-1669).
fn usable<'a>(endpoints: impl Iterator<Item = (Backend, &'a Endpoint)> + Clone) -> Vec<Backend> {
    let pick = |fits: fn(&Endpoint) -> bool| -> BTreeSet<Backend> {
        endpoints.clone().filter(|(_, endpoint)| fits(endpoint)).map(|(backend, _)| backend).collect()
    };
    let mut picked = pick(|endpoint| endpoint.ready);
    if picked.is_empty() {
        picked = pick(|endpoint| endpoint.serving && endpoint.terminating);
    }
    picked.into_iter().collect()
}

fn mark() -> String {
    format!("meta mark set meta mark | {MASQUERADE_MARK:#x}")
}

fn join<T: ToString>(parts: &[T]) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
