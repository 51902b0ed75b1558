//! Addresses and ports of Services: a cluster address from the cluster's range, a node port from the range that every node offers.
//!
//! Taken are the addresses and ports of stored Services and those that writes under way have reserved. So a deleted Service frees its
//! own without further work. Two creates at the same time cannot get the same address: each looks at the reservations, and makes its
//! own, under one lock.

mod claims;
mod families;
mod taken;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use api_model::field::{FieldError, Path};
use api_model::meta;
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) use self::claims::carry_over;
use self::claims::{NodePort, wants_cluster_ip, wants_node_ports};
use self::taken::{Claims, Pool, Taken};
use crate::exclusive::{self, Exclusive, Locks};
use crate::registry::Served;
use api_cache::Cache;
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};

/// Hands out addresses and ports.
pub(crate) struct Allocator {
    range: Ipv4Net,
    ports: RangeInclusive<u16>,
    taken: Mutex<Taken>,
}

/// Addresses and ports of one write. They are held until every read sees the write or it has failed.
pub(crate) struct Reservation {
    allocator: Arc<Allocator>,
    claims: Claims,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.allocator.taken.lock().release(&self.claims);
    }
}

/// The lock for handing out addresses and ports among servers that share a store, if the kind may get some.
pub(crate) async fn alone(locks: &Arc<Locks>, served: &Served, dry_run: bool) -> ApiResult<Option<Arc<Exclusive>>> {
    match served.is("", "services") && !dry_run {
        true => exclusive::enter(locks, "services").await,
        false => Ok(None),
    }
}

impl Allocator {
    pub(crate) fn new(range: Ipv4Net, ports: RangeInclusive<u16>) -> Arc<Self> {
        Arc::new(Self { range, ports, taken: Mutex::default() })
    }

    /// Gives a new or changed Service the addresses and ports that it lacks. Other kinds get nothing.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        served: &Served,
        service: &mut Value,
        old: Option<&Value>,
        cache: &Cache,
    ) -> ApiResult<Option<Reservation>> {
        if !served.is("", "services") || old.is_some_and(meta::is_deleting) {
            return Ok(None);
        }
        let wrong = families::settle(service, old);
        if !wrong.is_empty() {
            return Err(ApiError::invalid(&served.kind, meta::name(service), &wrong));
        }
        let mut claims = Claims::default();
        let mut taken = self.taken.lock();
        taken.refresh(served, cache);
        let previous = old.map(claims::of).unwrap_or_default();
        let allocated = self
            .address(service, &previous, &taken, &mut claims)
            .and_then(|()| self.node_ports(service, old.is_none(), &previous, &taken, &mut claims));
        allocated.map_err(|refusal| refusal.into_error(served, service))?;
        if claims.is_empty() {
            return Ok(None);
        }
        taken.reserve(&claims);
        Ok(Some(Reservation { allocator: Arc::clone(self), claims }))
    }

    fn address(&self, service: &mut Value, previous: &Claims, taken: &Taken, claims: &mut Claims) -> Result<(), Refusal> {
        if !wants_cluster_ip(service) {
            return Ok(());
        }
        let wanted = json::text(service, &["spec", "clusterIP"]).to_owned();
        let address = match wanted.as_str() {
            "" => Pool::addresses(self.range)
                .free(|address| taken.has_address(Ipv4Addr::from(address)))
                .map(Ipv4Addr::from)
                .ok_or(Refusal::NoAddress)?,
            text => {
                // Validation rejected a text that is no address.
                let Ok(address) = text.parse::<Ipv4Addr>() else { return Ok(()) };
                if previous.addresses.contains(&address) {
                    return Ok(());
                }
                self.check_address(address, taken)?;
                address
            }
        };
        claims.addresses.insert(address);
        json::set(service, &["spec", "clusterIP"], address.to_string());
        json::set(service, &["spec", "clusterIPs"], json!([address.to_string()]));
        Ok(())
    }

    fn check_address(&self, address: Ipv4Addr, taken: &Taken) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::Address(address, why));
        if !Pool::addresses(self.range).contains(address.into()) {
            return refuse(format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {}", self.range));
        }
        if taken.has_address(address) {
            return refuse("provided IP is already allocated".to_owned());
        }
        Ok(())
    }

    fn node_ports(&self, service: &mut Value, is_new: bool, previous: &Claims, taken: &Taken, claims: &mut Claims) -> Result<(), Refusal> {
        if !wants_node_ports(service) {
            return Ok(());
        }
        let pool = Pool::ports(&self.ports);
        let mut given = BTreeMap::new();
        for NodePort { path, port, wanted, slot } in claims::node_ports(service) {
            // As upstream, the protocols of one port of a new Service share one node port.
            let shared = port.filter(|_| is_new).and_then(|port| given.get(&port).copied());
            let node_port = match wanted.or(shared) {
                Some(known) if previous.ports.contains(&known) || claims.ports.contains(&known) => known,
                Some(requested) => {
                    self.check_port(&path, requested, taken)?;
                    requested
                }
                None => {
                    let free = pool.free(|port| u16::try_from(port).is_ok_and(|port| taken.has_port(port) || claims.ports.contains(&port)));
                    free.and_then(|port| u16::try_from(port).ok()).ok_or(Refusal::NoPort)?
                }
            };
            if let Some(port) = port {
                given.entry(port).or_insert(node_port);
            }
            if !previous.ports.contains(&node_port) {
                claims.ports.insert(node_port);
            }
            *slot = node_port.into();
        }
        Ok(())
    }

    fn check_port(&self, path: &Path, port: u16, taken: &Taken) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::Port(path.clone(), port, why));
        if !self.ports.contains(&port) {
            let (from, to) = (self.ports.start(), self.ports.end());
            return refuse(format!("provided port is not in the valid range. The range of valid ports is {from}-{to}"));
        }
        if taken.has_port(port) {
            return refuse("provided port is already allocated".to_owned());
        }
        Ok(())
    }
}

/// Why a Service could not get its addresses and ports.
enum Refusal {
    NoAddress,
    NoPort,
    Address(Ipv4Addr, String),
    Port(Path, u16, String),
}

impl Refusal {
    fn into_error(self, served: &Served, service: &Value) -> ApiError {
        let error = match self {
            Self::NoAddress => return ApiError::internal("failed to allocate a serviceIP: range is full"),
            Self::NoPort => return ApiError::internal("failed to allocate a nodePort: range is full"),
            Self::Address(address, why) => {
                let path = Path::new("spec").child("clusterIPs");
                FieldError::invalid(&path, json!([address.to_string()]), format!("failed to allocate IP {address}: {why}"))
            }
            Self::Port(path, port, why) => FieldError::invalid(&path, port, why),
        };
        ApiError::invalid(&served.kind, meta::name(service), &[error])
    }
}

/// The address of that number in the range. Number 1 is the `kubernetes` Service's, number 10 the cluster DNS'.
pub(crate) fn nth_address(range: Ipv4Net, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(range.network()).saturating_add(number))
}

type Addresses = BTreeSet<Ipv4Addr>;
type Ports = BTreeSet<u16>;

#[cfg(test)]
mod tests;
