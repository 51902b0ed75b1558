//! Taken addresses and ports, and the choice of free ones.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use api_clock::rand::Rng;
use ipnet::Ipv4Net;

use super::{Addresses, Ports, claims};
use crate::registry::Served;
use api_cache::{Cache, Filter};

/// Random guesses before the whole range is searched.
const GUESSES: usize = 32;

/// Addresses and ports of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) addresses: Addresses,
    pub(super) ports: Ports,
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty()
    }

    fn add(&mut self, other: &Self) {
        self.addresses.extend(&other.addresses);
        self.ports.extend(&other.ports);
    }
}

/// All taken addresses and ports.
#[derive(Default)]
pub(super) struct Taken {
    /// The revision of the Services that `stored` was read from.
    revision: Option<u64>,
    stored: Claims,
    reserved: Claims,
}

impl Taken {
    /// Reads the stored Services, if they changed.
    pub(super) fn refresh(&mut self, served: &Served, cache: &Cache) {
        let revision = served.resource.revision();
        if self.revision == Some(revision) {
            return;
        }
        self.stored = Claims::default();
        for object in served.resource.list(&Filter::default(), cache.applied()).items {
            self.stored.add(&claims::of(&object.value()));
        }
        self.revision = Some(revision);
    }

    pub(super) fn has_address(&self, address: Ipv4Addr) -> bool {
        self.stored.addresses.contains(&address) || self.reserved.addresses.contains(&address)
    }

    pub(super) fn has_port(&self, port: u16) -> bool {
        self.stored.ports.contains(&port) || self.reserved.ports.contains(&port)
    }

    pub(super) fn reserve(&mut self, claims: &Claims) {
        self.reserved.add(claims);
    }

    pub(super) fn release(&mut self, claims: &Claims) {
        self.reserved.addresses.retain(|address| !claims.addresses.contains(address));
        self.reserved.ports.retain(|port| !claims.ports.contains(port));
    }
}

/// Numbers to choose from. The lower part is left to Services that name a number, until the rest is full, as upstream
/// (`ServiceIPStaticSubrange`, `ServiceNodePortStaticSubrange`).
pub(super) struct Pool {
    from: u32,
    /// Inclusive.
    to: u32,
    preferred_from: u32,
}

impl Pool {
    /// The usable addresses of a range: neither the network's nor the broadcast address.
    pub(super) fn addresses(range: Ipv4Net) -> Self {
        let (network, broadcast) = (u32::from(range.network()), u32::from(range.broadcast()));
        let size = broadcast - network;
        let reserved = (size / 16).clamp(16, 256).min(size / 2);
        Self { from: network.saturating_add(1), to: broadcast.saturating_sub(1), preferred_from: network + reserved }
    }

    pub(super) fn ports(range: &RangeInclusive<u16>) -> Self {
        let (from, to) = (u32::from(*range.start()), u32::from(*range.end()));
        let size = to.saturating_sub(from);
        let reserved = (size / 32).clamp(16, 128).min(size / 2);
        Self { from, to, preferred_from: from + reserved }
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        (self.from..=self.to).contains(&number)
    }

    /// A free number. It is random, so that a freed number is not used again at once.
    pub(super) fn free(&self, is_taken: impl Fn(u32) -> bool) -> Option<u32> {
        if self.from > self.to {
            return None;
        }
        let mut rng = api_clock::rng();
        let low = self.preferred_from.min(self.to);
        let guessed = (0..GUESSES).map(|_| rng.random_range(low..=self.to)).find(|number| !is_taken(*number));
        guessed.or_else(|| (low..=self.to).chain(self.from..low).find(|number| !is_taken(*number)))
    }
}
