//! The cluster's names as a value: updated with objects, asked with names, without I/O. Nothing is stored twice: records are
//! made for each question. The names are those of Kubernetes' DNS specification
//! (<https://github.com/kubernetes/dns/blob/master/docs/specification.md>), schema 1.1.0, with CoreDNS' behaviour where it says
//! nothing: the `pods insecure` form of Pod names (an address in a namespace that exists), names of endpoints also under
//! Services with addresses, and every port under a plain SRV question.

mod question;
mod record;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, Record, RecordType};
use ipnet::IpNet;

use crate::objects::{Endpoint, Port, Service, Slice, Target, undashed};
use question::{NameForm, ServicePart};
use record::Maker;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// How many names inside the cluster an ExternalName may lead through.
const CHAIN_LEN_MAX: usize = 8;

/// The result of a look-up.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Nothing: it is not the cluster's.
    Foreign,
    /// The first lists are not complete.
    Unready,
    /// The records, which may be none.
    Authoritative(Box<ZoneAnswer>),
}

/// An answer out of the zone.
#[derive(Debug, PartialEq)]
pub(crate) struct ZoneAnswer {
    pub(crate) code: ResponseCode,
    pub(crate) answers: Vec<Record>,
    pub(crate) additionals: Vec<Record>,
    /// The SOA record, with the time for which a missing answer may be cached.
    pub(crate) soa: Option<Record>,
    /// A name outside of the cluster at the end of the answers, to be resolved further.
    pub(crate) further: Option<Name>,
}

/// All names of a cluster.
pub(crate) struct Zone {
    maker: Maker,
    /// Ranges whose reverse names only this zone answers.
    ranges: Vec<IpNet>,
    /// The server's own addresses, under `ns.dns.<domain>`.
    own: Vec<IpAddr>,
    namespaces: HashSet<String>,
    services: HashMap<Key, Service>,
    slices: HashMap<Key, Slice>,
    /// Names of a Service's slices.
    of_service: HashMap<Key, BTreeSet<String>>,
    /// The objects that have an address: Services by their own, slices by their endpoints'.
    by_service_ip: HashMap<IpAddr, Key>,
    by_endpoint_ip: HashMap<IpAddr, BTreeSet<Key>>,
    /// Whether all first lists are complete.
    pub(crate) complete: bool,
}

impl Zone {
    /// An empty zone; `None` when the domain is not a valid name.
    pub(crate) fn new(domain: &str, ranges: Vec<IpNet>, own: Vec<IpAddr>) -> Option<Self> {
        Some(Self {
            maker: Maker::new(domain)?,
            ranges,
            own,
            namespaces: HashSet::new(),
            services: HashMap::new(),
            slices: HashMap::new(),
            of_service: HashMap::new(),
            by_service_ip: HashMap::new(),
            by_endpoint_ip: HashMap::new(),
            complete: false,
        })
    }

    pub(crate) fn set_namespace(&mut self, name: &str, exists: bool) {
        if exists {
            self.namespaces.insert(name.to_owned());
        } else {
            self.namespaces.remove(name);
        }
    }

    pub(crate) fn set_service(&mut self, key: &Key, service: Option<Service>) {
        if let Some(Service { target: Target::Addresses(ips), .. }) = self.services.remove(key) {
            for ip in ips {
                if self.by_service_ip.get(&ip) == Some(key) {
                    self.by_service_ip.remove(&ip);
                }
            }
        }
        let Some(service) = service else { return };
        if let Target::Addresses(ips) = &service.target {
            self.by_service_ip.extend(ips.iter().map(|ip| (*ip, key.clone())));
        }
        self.services.insert(key.clone(), service);
    }

    pub(crate) fn set_slice(&mut self, key: &Key, slice: Option<Slice>) {
        fn drop_from<K: std::hash::Hash + Eq, V: Ord>(index: &mut HashMap<K, BTreeSet<V>>, at: &K, value: &V) {
            if let Some(values) = index.get_mut(at) {
                values.remove(value);
                if values.is_empty() {
                    index.remove(at);
                }
            }
        }
        if let Some(was) = self.slices.remove(key) {
            drop_from(&mut self.of_service, &(key.0.clone(), was.service), &key.1);
            for endpoint in &was.endpoints {
                drop_from(&mut self.by_endpoint_ip, &endpoint.ip, key);
            }
        }
        let Some(slice) = slice else { return };
        self.of_service.entry((key.0.clone(), slice.service.clone())).or_default().insert(key.1.clone());
        for endpoint in &slice.endpoints {
            self.by_endpoint_ip.entry(endpoint.ip).or_default().insert(key.clone());
        }
        self.slices.insert(key.clone(), slice);
    }

    /// Answers a question of class IN.
    pub(crate) fn answer(&self, name: &Name, kind: RecordType) -> Answer {
        let form = question::read(name, self.maker.domain());
        let form = match form {
            NameForm::Foreign => return Answer::Foreign,
            NameForm::Reverse(ip) if !self.is_own_address(ip) => return Answer::Foreign,
            form => form,
        };
        if !self.complete {
            return Answer::Unready;
        }
        let mut found = self.find(name, &form, kind, 0);
        if found.answers.is_empty() {
            let reverse = matches!(form, NameForm::Reverse(_));
            found.soa = Some(if reverse { self.maker.reverse_soa() } else { self.maker.soa() });
        }
        Answer::Authoritative(Box::new(found))
    }

    fn is_own_address(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&ip)) || self.by_service_ip.contains_key(&ip) || self.by_endpoint_ip.contains_key(&ip)
    }

    fn find(&self, name: &Name, form: &NameForm, kind: RecordType, depth: usize) -> ZoneAnswer {
        let maker = &self.maker;
        match form {
            NameForm::Apex => ZoneAnswer::records(match kind {
                RecordType::SOA => vec![maker.soa()],
                RecordType::NS => vec![maker.ns()],
                _ => Vec::new(),
            }),
            NameForm::Version => ZoneAnswer::records(if kind == RecordType::TXT { vec![maker.version(name)] } else { Vec::new() }),
            NameForm::NameServer => ZoneAnswer::records(maker.addresses(name, &self.own, kind)),
            // Names between others exist, and have no records.
            NameForm::Between => ZoneAnswer::records(Vec::new()),
            NameForm::Namespace(namespace) => self.if_namespace(namespace, Vec::new),
            NameForm::Pod { label, namespace } => match undashed(label) {
                Some(ip) => self.if_namespace(namespace, || maker.addresses(name, &[ip], kind)),
                None => ZoneAnswer::missing(),
            },
            NameForm::Reverse(ip) => self.reverse(name, *ip, kind),
            NameForm::Service { service, of } => self.service(name, service, of, kind, depth),
            NameForm::Nothing | NameForm::Foreign => ZoneAnswer::missing(),
        }
    }

    fn if_namespace(&self, namespace: &str, records: impl FnOnce() -> Vec<Record>) -> ZoneAnswer {
        if self.namespaces.contains(namespace) { ZoneAnswer::records(records()) } else { ZoneAnswer::missing() }
    }

    fn service(&self, name: &Name, key: &Key, of: &ServicePart, kind: RecordType, depth: usize) -> ZoneAnswer {
        let Some(service) = self.services.get(key) else { return ZoneAnswer::missing() };
        match (of, &service.target) {
            (ServicePart::Itself, Target::Name(target)) => self.external(name, target, kind, depth),
            (ServicePart::Itself, Target::Addresses(ips)) if kind != RecordType::SRV => {
                ZoneAnswer::records(self.maker.addresses(name, ips, kind))
            }
            (ServicePart::Itself, Target::Headless) if kind != RecordType::SRV => {
                let mut ips: Vec<IpAddr> = self.endpoints(key, service).map(|(_, endpoint)| endpoint.ip).collect();
                ips.sort_unstable();
                ips.dedup();
                // Without endpoints there is no such name, as in CoreDNS.
                if ips.is_empty() { ZoneAnswer::missing() } else { ZoneAnswer::records(self.maker.addresses(name, &ips, kind)) }
            }
            (ServicePart::Itself, _) => self.ports(name, key, service, &|_| true),
            (ServicePart::Endpoint(label), _) => {
                let mut ips: Vec<IpAddr> = self.endpoints(key, service).filter(|(_, e)| e.name == *label).map(|(_, e)| e.ip).collect();
                ips.sort_unstable();
                ips.dedup();
                if ips.is_empty() { ZoneAnswer::missing() } else { ZoneAnswer::records(self.maker.addresses(name, &ips, kind)) }
            }
            (ServicePart::Protocol(protocol), _) => {
                if self.has_port(key, service, &|port| port.protocol == *protocol) {
                    ZoneAnswer::records(Vec::new())
                } else {
                    ZoneAnswer::missing()
                }
            }
            (ServicePart::Port { port: wanted, protocol }, _) => {
                let fits = |port: &Port| port.name == *wanted && port.protocol == *protocol;
                let found = self.ports(name, key, service, &fits);
                if found.answers.is_empty() || kind == RecordType::SRV { found } else { ZoneAnswer::records(Vec::new()) }
            }
        }
    }

    /// Endpoints that may be named, with their slices.
    fn endpoints<'a>(&'a self, key: &'a Key, service: &'a Service) -> impl Iterator<Item = (&'a Slice, &'a Endpoint)> {
        let names = self.of_service.get(key).into_iter().flatten();
        let slices = names.filter_map(|name| self.slices.get(&(key.0.clone(), name.clone())));
        slices
            .flat_map(|slice| slice.endpoints.iter().map(move |endpoint| (slice, endpoint)))
            .filter(|(_, endpoint)| endpoint.ready || service.publish_not_ready)
    }

    fn has_port(&self, key: &Key, service: &Service, fits: &dyn Fn(&Port) -> bool) -> bool {
        match &service.target {
            Target::Headless => self.endpoints(key, service).any(|(slice, _)| slice.ports.iter().any(fits)),
            _ => service.ports.iter().any(fits),
        }
    }

    /// SRV records of the ports that fit, with the addresses of their targets.
    fn ports(&self, name: &Name, key: &Key, service: &Service, fits: &dyn Fn(&Port) -> bool) -> ZoneAnswer {
        let mut answer = ZoneAnswer::records(Vec::new());
        let maker = &self.maker;
        match &service.target {
            Target::Name(_) => {}
            Target::Addresses(ips) => {
                let Some(target) = maker.service(key) else { return ZoneAnswer::missing() };
                answer.answers.extend(service.ports.iter().filter(|port| fits(port)).map(|port| maker.srv(name, port.number, &target)));
                answer.additionals = maker.all_addresses(&target, ips);
            }
            Target::Headless => {
                let mut named = BTreeSet::new();
                for (slice, endpoint) in self.endpoints(key, service) {
                    let Some(target) = maker.endpoint(key, &endpoint.name) else { continue };
                    for port in slice.ports.iter().filter(|port| fits(port)) {
                        if named.insert((endpoint.name.clone(), endpoint.ip, port.number)) {
                            answer.answers.push(maker.srv(name, port.number, &target));
                            answer.additionals.extend(maker.all_addresses(&target, &[endpoint.ip]));
                        }
                    }
                }
                answer.answers.dedup();
                answer.additionals.dedup();
            }
        }
        if answer.answers.is_empty() { ZoneAnswer::missing() } else { answer }
    }

    /// An ExternalName: the alias, then its target's records as far as the target is the cluster's.
    fn external(&self, name: &Name, target: &str, kind: RecordType, depth: usize) -> ZoneAnswer {
        // An address in `externalName` is not a name, so there is no alias.
        let target = match (target.parse::<IpAddr>(), record::fully_qualified(target)) {
            (Err(_), Some(target)) => target,
            _ => return ZoneAnswer::records(Vec::new()),
        };
        let mut answer = ZoneAnswer::records(vec![self.maker.cname(name, &target)]);
        if kind == RecordType::CNAME {
            return answer;
        }
        match question::read(&target, self.maker.domain()) {
            NameForm::Foreign => answer.further = Some(target),
            _ if depth >= CHAIN_LEN_MAX => {}
            form => {
                let next = self.find(&target, &form, kind, depth + 1);
                answer.answers.extend(next.answers);
                answer.additionals = next.additionals;
                answer.further = next.further;
            }
        }
        answer
    }

    fn reverse(&self, name: &Name, ip: IpAddr, kind: RecordType) -> ZoneAnswer {
        let mut targets = BTreeSet::new();
        if let Some(key) = self.by_service_ip.get(&ip) {
            targets.extend(self.maker.service(key));
        } else {
            for key in self.by_endpoint_ip.get(&ip).into_iter().flatten() {
                let Some(slice) = self.slices.get(key) else { continue };
                let service = (key.0.clone(), slice.service.clone());
                let named = slice.endpoints.iter().filter(|endpoint| endpoint.ip == ip);
                targets.extend(named.filter_map(|endpoint| self.maker.endpoint(&service, &endpoint.name)));
            }
        }
        if targets.is_empty() {
            return ZoneAnswer::missing();
        }
        ZoneAnswer::records(if kind == RecordType::PTR {
            targets.iter().map(|target| self.maker.ptr(name, target)).collect()
        } else {
            Vec::new()
        })
    }
}

impl ZoneAnswer {
    fn records(answers: Vec<Record>) -> Self {
        Self { code: ResponseCode::NoError, answers, additionals: Vec::new(), soa: None, further: None }
    }

    fn missing() -> Self {
        Self { code: ResponseCode::NXDomain, ..Self::records(Vec::new()) }
    }
}

#[cfg(test)]
mod tests;
