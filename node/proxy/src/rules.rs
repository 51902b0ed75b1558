//! From one Service and its endpoints to rules: a pure function to a [`RuleSet`]. The union of the rule sets of all Services is
//! what the kernel should have. A packet finds its Service by one look-up in a verdict map with the key address, transport and
//! port, and its endpoint by one random number, however many there are of either.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use node_netfilter::Protocol;
use sha2::{Digest, Sha256};

use crate::Config;
use crate::external::{Refusal, Unsafe};
use crate::machine::Machine;
use crate::service::{Endpoint, Key, Service, ServicePort, Slice};

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
    /// Address, transport and port of Services with endpoints.
    Services,
    /// Transport and port on every address of the node.
    NodePorts,
    /// As `Services`, for addresses from outside of the cluster. Looked up after all others and after host ports.
    External,
    /// As `Services`, for Services without usable endpoints.
    Refused,
    /// As `NodePorts`, for Services without usable endpoints.
    RefusedNodePorts,
}

impl Collection {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIps => "cluster-ips",
            Self::Hairpin => "hairpin",
            Self::Services => "services",
            Self::NodePorts => "node-ports",
            Self::External => "external",
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
    /// The endpoints of UDP flows, to find flows that outlive their endpoint.
    pub(crate) flows: BTreeMap<Front, BTreeSet<SocketAddrV4>>,
    /// The counters of new connections, by name, with the Service that each is about.
    pub(crate) counters: BTreeMap<String, Key>,
    /// Where connections lead that waited at the activator.
    pub(crate) activations: BTreeMap<Front, Activation>,
}

/// The Service whose connections to a front may wait, and the endpoints that they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Activation {
    pub(crate) service: Key,
    /// Ready endpoints in the Pod range. The activator connects to no other address.
    pub(crate) endpoints: Vec<SocketAddrV4>,
}

/// The map in which packets to one address and port are looked up.
const FRONTS: [Collection; 5] =
    [Collection::Services, Collection::NodePorts, Collection::External, Collection::Refused, Collection::RefusedNodePorts];

/// An address and port that clients use; without an address it is the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Front {
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) port: u16,
}

impl Front {
    /// The element's key in nft's words.
    fn key(self, protocol: Protocol) -> String {
        match self.ip {
            Some(ip) => format!("{ip} . {} . {}", protocol.as_str(), self.port),
            None => format!("{} . {}", protocol.as_str(), self.port),
        }
    }
}

impl RuleSet {
    /// Adds another Service's rules. When two Services claim one address and port, the first one keeps it, whether it has
    /// endpoints or not.
    pub(crate) fn merge(&mut self, other: &Self) {
        fn fill<K: Ord + Clone, V: Clone>(into: &mut BTreeMap<K, V>, from: &BTreeMap<K, V>) {
            for (key, value) in from {
                into.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        fill(&mut self.sets, &other.sets);
        fill(&mut self.chains, &other.chains);
        fill(&mut self.counters, &other.counters);
        // All before any is added: the other's own never meet each other.
        let is_new = |(collection, key): &(Collection, String)| !FRONTS.contains(collection) || !self.has_front(key);
        let elements: Vec<_> = other.elements.iter().filter(|(key, _)| is_new(key)).collect();
        let flows: Vec<_> = other.flows.iter().filter(|(front, _)| !self.has_front(&front.key(Protocol::Udp))).collect();
        let activations: Vec<_> = other.activations.iter().filter(|(front, _)| !self.has_front(&front.key(Protocol::Tcp))).collect();
        self.activations.extend(activations.into_iter().map(|(front, activation)| (*front, activation.clone())));
        self.flows.extend(flows.into_iter().map(|(front, endpoints)| (*front, endpoints.clone())));
        self.elements.extend(elements.into_iter().map(|(key, verdict)| (key.clone(), verdict.clone())));
    }

    /// Whether packets to an address and port are some Service's already.
    fn has_front(&self, key: &str) -> bool {
        FRONTS.iter().any(|collection| self.elements.contains_key(&(*collection, key.to_owned())))
    }

    fn add(&mut self, collection: Collection, key: String, verdict: &str) {
        self.elements.entry((collection, key)).or_insert_with(|| verdict.to_owned());
    }
}

/// The rules of one Service, in the order of their precedence: addresses that the server assigned come before addresses that
/// users chose, for all Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceRules {
    /// Cluster addresses and node ports, and the chains of all.
    pub(crate) own: RuleSet,
    /// Addresses from outside of the cluster.
    pub(crate) external: RuleSet,
    /// What is not served.
    pub(crate) refused: BTreeSet<Refusal>,
}

/// Computes the rules of one Service on this machine.
pub(crate) fn rules(key: &Key, service: &Service, slices: &[&Slice], config: &Config, machine: &Machine) -> ServiceRules {
    let mut rules = ServiceRules { refused: service.refused.iter().copied().collect(), ..ServiceRules::default() };
    for ip in &service.cluster_ips {
        rules.own.add(Collection::ClusterIps, ip.to_string(), "");
    }
    for port in &service.ports {
        Port::new(key, service, port, slices, config).write(&mut rules, machine);
    }
    rules
}

/// The endpoints to which packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Backend {
    ip: Ipv4Addr,
    port: u16,
}

/// The input of one port's rules.
struct Port<'a> {
    key: &'a Key,
    service: &'a Service,
    port: &'a ServicePort,
    config: &'a Config,
    /// The end of every chain's name: a digest, so that names stay distinct, then words for readers.
    suffix: String,
    /// The usable endpoints of the cluster, and those of this node.
    all: Vec<Backend>,
    local: Vec<Backend>,
    /// Where connections wait while there is no endpoint; none if they do not wait.
    activator: Option<SocketAddrV4>,
}

impl<'a> Port<'a> {
    fn new(key: &'a Key, service: &'a Service, port: &'a ServicePort, slices: &[&Slice], config: &'a Config) -> Self {
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
        let activator = config.activator.filter(|_| service.is_activated && port.protocol == Protocol::Tcp);
        Self {
            key,
            service,
            port,
            config,
            suffix: format!("{digest}-{words}"),
            all: usable(endpoints.iter().copied(), activator.is_some()),
            local: usable(endpoints.iter().copied().filter(|(_, endpoint)| endpoint.local), activator.is_some()),
            activator,
        }
    }

    fn write(&self, rules: &mut ServiceRules, machine: &Machine) {
        let (service, own) = (self.service, &mut rules.own);
        for backend in &self.local {
            own.add(Collection::Hairpin, format!("{0} . {0}", backend.ip), "");
        }
        if service.affinity_seconds.is_some() {
            self.all.iter().chain(&self.local).for_each(|backend| self.write_affinity(own, *backend));
        }
        let used = if service.internal_local { &self.local } else { &self.all };
        let internal = self.chain(if service.internal_local { "local" } else { "service" });
        if !used.is_empty() {
            own.chains.insert(internal.clone(), self.balance(used));
        }
        if let Some(activator) = self.activator {
            own.counters.insert(self.chain("connections"), self.key.clone());
            if self.all.is_empty() {
                own.chains.insert(self.chain("activate"), vec![self.count(), format!("meta l4proto tcp dnat ip to {activator}")]);
            }
        }
        for ip in &service.cluster_ips {
            self.front(own, Collection::Services, Front { ip: Some(*ip), port: self.port.port }, used, &internal);
        }
        self.write_external(rules, machine);
    }

    /// Ways in from outside of the cluster: node port, external addresses, load balancer.
    fn write_external(&self, rules: &mut ServiceRules, machine: &Machine) {
        let service = self.service;
        let ips = service.external_ips.iter().chain(&service.load_balancer_ips).map(|ip| Front { ip: Some(*ip), port: self.port.port });
        let mut fronts: Vec<Front> = ips.chain(self.port.node_port.map(|port| Front { ip: None, port })).collect();
        fronts.retain(|front| {
            let is_taken = machine.listens(front.ip, self.port.protocol, front.port, self.config);
            if is_taken {
                rules.refused.insert(Refusal { ip: front.ip, why: Unsafe::NodeListens(self.port.protocol, front.port) });
            }
            !is_taken
        });
        if fronts.is_empty() {
            return;
        }
        // With the Local policy too, packets from Pods and the node may go to any endpoint.
        let (external, everywhere) = (self.chain("external"), self.chain("service"));
        if !self.all.is_empty() {
            rules.own.chains.entry(everywhere.clone()).or_insert_with(|| self.balance(&self.all));
            rules.own.chains.insert(external.clone(), self.external(&everywhere));
        }
        for front in fronts {
            match front.ip {
                Some(_) => self.front(&mut rules.external, Collection::External, front, &self.all, &external),
                None => self.front(&mut rules.own, Collection::NodePorts, front, &self.all, &external),
            }
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
            lines.extend(self.activator.map(|_| self.count()));
            lines.extend(self.to_one_of(&self.local));
        }
        lines
    }

    /// One entry: to its chain, or to its rejection. When only this node has no endpoint, clients must not learn that the
    /// Service has none: such packets are dropped, as upstream.
    fn front(&self, rules: &mut RuleSet, found: Collection, front: Front, used: &[Backend], chain: &str) {
        let key = front.key(self.port.protocol);
        let refused = if front.ip.is_some() { Collection::Refused } else { Collection::RefusedNodePorts };
        let is_activated = self.activator.is_some() && matches!(found, Collection::Services | Collection::NodePorts);
        if is_activated {
            rules.activations.insert(front, Activation { service: self.key.clone(), endpoints: self.of_pods(used) });
        }
        match (used.is_empty(), self.all.is_empty()) {
            (false, _) => rules.add(found, key, &format!("goto {chain}")),
            (true, false) => rules.add(refused, key, "drop"),
            (true, true) if is_activated => rules.add(found, key, &format!("goto {}", self.chain("activate"))),
            (true, true) => rules.add(refused, key, "goto refuse"),
        }
        if self.port.protocol == Protocol::Udp {
            rules.flows.entry(front).or_default().extend(used.iter().map(|backend| SocketAddrV4::new(backend.ip, backend.port)));
        }
    }

    fn chain(&self, kind: &str) -> String {
        format!("{kind}-{}", self.suffix)
    }

    /// Counts a connection: only the first packet of a connection comes to the chains of a Service.
    fn count(&self) -> String {
        format!("counter name {}", self.chain("connections"))
    }

    /// The endpoints that have addresses of Pods.
    fn of_pods(&self, backends: &[Backend]) -> Vec<SocketAddrV4> {
        let is_pod = |backend: &&Backend| self.config.cluster_cidr.contains(&backend.ip);
        backends.iter().filter(is_pod).map(|backend| SocketAddrV4::new(backend.ip, backend.port)).collect()
    }

    /// A chain that ends at one of the endpoints. Packets to a cluster address from outside of the Pod range are masqueraded,
    /// so that the answers return through this node.
    fn balance(&self, backends: &[Backend]) -> Vec<String> {
        let (ips, protocol, port) = (join(&self.service.cluster_ips), self.port.protocol.as_str(), self.port.port);
        let outside = format!("ip daddr {{ {ips} }} {protocol} dport {port} ip saddr != {}", self.config.cluster_cidr);
        let mut lines: Vec<String> = self.activator.map(|_| self.count()).into_iter().collect();
        lines.push(format!("{outside} {}", mark()));
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
        let by_affinity = |b: &Backend| format!("ip saddr @{} goto {}", self.affinity_set(*b), self.per_backend("endpoint", *b));
        let mut lines: Vec<String> = backends.iter().map(by_affinity).collect();
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

/// The endpoints to use: the ready ones; when there are none, those that still serve while they terminate (KEP-1669). If
/// connections may wait, they wait for a ready endpoint instead: the last Pod of a workload that goes to zero stops to listen at
/// any moment.
fn usable<'a>(endpoints: impl Iterator<Item = (Backend, &'a Endpoint)> + Clone, may_wait: bool) -> Vec<Backend> {
    let pick = |fits: fn(&Endpoint) -> bool| -> BTreeSet<Backend> {
        endpoints.clone().filter(|(_, endpoint)| fits(endpoint)).map(|(backend, _)| backend).collect()
    };
    let mut picked = pick(|endpoint| endpoint.ready);
    if picked.is_empty() && !may_wait {
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
