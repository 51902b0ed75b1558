//! Records of the zone, with their names and times to live.

use std::net::IpAddr;
use std::str::FromStr as _;

use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::Key;

/// The seconds for which answers may be cached, CoreDNS' default for its kubernetes plugin; also for missing answers.
const TTL: u32 = 5;
/// The schema that the names follow.
const VERSION: &str = "1.1.0";
/// The weights of SRV records, which clients divide by their sum.
const SRV_WEIGHT: u16 = 100;

/// Makes the records of one domain.
pub(super) struct Maker {
    domain: Name,
    services: Name,
    server: Name,
    mailbox: Name,
    reverse: Name,
}

/// A name in text form, taken as fully qualified.
pub(super) fn fully_qualified(text: &str) -> Option<Name> {
    let mut name = Name::from_str(text).ok()?;
    name.set_fqdn(true);
    Some(name)
}

impl Maker {
    pub(super) fn new(domain: &str) -> Option<Self> {
        let domain = fully_qualified(domain)?.to_lowercase();
        let under = |text: &str| Name::from_str(text).ok()?.append_domain(&domain).ok();
        Some(Self {
            services: under("svc")?,
            server: under("ns.dns")?,
            mailbox: under("hostmaster")?,
            reverse: fully_qualified("in-addr.arpa")?,
            domain,
        })
    }

    pub(super) fn domain(&self) -> &Name {
        &self.domain
    }

    /// `<name>.<namespace>.svc.<domain>`; `None` when a part is not a label.
    pub(super) fn service(&self, (namespace, name): &Key) -> Option<Name> {
        self.services.prepend_label(namespace.as_str()).ok()?.prepend_label(name.as_str()).ok()
    }

    /// `<label>.<name>.<namespace>.svc.<domain>`.
    pub(super) fn endpoint(&self, service: &Key, label: &str) -> Option<Name> {
        self.service(service)?.prepend_label(label).ok()
    }

    fn record(name: &Name, data: RData) -> Record {
        Record::from_rdata(name.clone(), TTL, data)
    }

    /// The addresses of the requested record type; any other type has no records.
    pub(super) fn addresses(&self, name: &Name, ips: &[IpAddr], kind: RecordType) -> Vec<Record> {
        let wanted = |ip: &&IpAddr| match kind {
            RecordType::A => ip.is_ipv4(),
            RecordType::AAAA => ip.is_ipv6(),
            RecordType::ANY => true,
            _ => false,
        };
        ips.iter().filter(wanted).map(|ip| Self::address(name, *ip)).collect()
    }

    pub(super) fn all_addresses(&self, name: &Name, ips: &[IpAddr]) -> Vec<Record> {
        ips.iter().map(|ip| Self::address(name, *ip)).collect()
    }

    fn address(name: &Name, ip: IpAddr) -> Record {
        Self::record(
            name,
            match ip {
                IpAddr::V4(ip) => RData::A(A(ip)),
                IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
            },
        )
    }

    pub(super) fn srv(&self, name: &Name, port: u16, target: &Name) -> Record {
        Self::record(name, RData::SRV(SRV::new(0, SRV_WEIGHT, port, target.clone())))
    }

    pub(super) fn cname(&self, name: &Name, target: &Name) -> Record {
        Self::record(name, RData::CNAME(CNAME(target.clone())))
    }

    pub(super) fn ptr(&self, name: &Name, target: &Name) -> Record {
        Self::record(name, RData::PTR(PTR(target.clone())))
    }

    pub(super) fn version(&self, name: &Name) -> Record {
        Self::record(name, RData::TXT(TXT::new(vec![VERSION.to_owned()])))
    }

    pub(super) fn ns(&self) -> Record {
        Self::record(&self.domain, RData::NS(NS(self.server.clone())))
    }

    pub(super) fn soa(&self) -> Record {
        self.soa_of(&self.domain)
    }

    pub(super) fn reverse_soa(&self) -> Record {
        self.soa_of(&self.reverse)
    }

    fn soa_of(&self, zone: &Name) -> Record {
        // As in CoreDNS the serial is the time. No server transfers this zone.
        let serial = u32::try_from(api_clock::now().as_second() & i64::from(u32::MAX)).unwrap_or(0);
        Self::record(zone, RData::SOA(SOA::new(self.server.clone(), self.mailbox.clone(), serial, 7_200, 1_800, 86_400, TTL)))
    }
}
