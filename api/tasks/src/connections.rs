//! Limits the connections of a server and shares them among the clients' addresses.
//!
//! With a plain limit, one client can lock out all others: it opens all connections that the limit allows and sends
//! nothing. Here, a new connection is admitted as long as another address has more connections. If the limit is
//! reached, the address with the most connections loses its oldest one. Connections of protected clients
//! ([`ConnectionSlot::protect`]) are evicted last. The task that serves a connection ends it when
//! [`ConnectionSlot::evicted`] returns. IPv6 addresses count by their /64 network, because one client usually has all
//! addresses of such a network.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The bits of an IPv6 address that identify the network.
const NETWORK_MASK: u128 = u128::MAX << 64;

/// The pause after a connection was not accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts the next connection. After an error it pauses and tries again: the process usually has too many open files, of which some are
/// closed after a moment. Dropping the future loses no connection.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Limits the connections of one server.
#[derive(Clone, Debug)]
pub struct ConnectionLimiter {
    connections_max: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    taken: usize,
    /// The number of the next connection: a lower number is an older connection.
    next: u64,
    peers: HashMap<IpAddr, BTreeMap<u64, Connection>>,
}

#[derive(Debug)]
struct Connection {
    evicted: CancellationToken,
    is_protected: bool,
}

/// The slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    table: Arc<Mutex<Table>>,
    peer: IpAddr,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionLimiter {
    /// A limiter with the given maximum of connections.
    pub fn new(connections_max: usize) -> Self {
        Self { connections_max, table: Arc::default() }
    }

    /// Takes a slot for a connection from the address; `None` if all slots are taken and no connection can be evicted.
    pub fn acquire(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = network(peer);
        let mut table = self.table.lock();
        if table.taken >= self.connections_max && !table.make_room(peer) {
            return None;
        }
        let (number, evicted) = (table.next, CancellationToken::new());
        table.next += 1;
        table.taken += 1;
        table.peers.entry(peer).or_default().insert(number, Connection { evicted: evicted.clone(), is_protected: false });
        Some(ConnectionSlot { table: Arc::clone(&self.table), peer, number, evicted })
    }

    /// The number of taken slots.
    pub fn taken(&self) -> usize {
        self.table.lock().taken
    }
}

impl ConnectionSlot {
    /// Protects the connection: it is evicted after all unprotected connections of its address, and never for another
    /// connection of the same address.
    pub fn protect(&self) {
        let mut table = self.table.lock();
        if let Some(connection) = table.peers.get_mut(&self.peer).and_then(|all| all.get_mut(&self.number)) {
            connection.is_protected = true;
        }
    }

    /// Waits until the slot is taken away for another connection.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.lock().remove(self.peer, self.number);
    }
}

impl Table {
    /// Evicts a connection of the address with the most connections, to make room for another address.
    fn make_room(&mut self, newcomer: IpAddr) -> bool {
        let of_newcomer = self.peers.get(&newcomer).map_or(0, BTreeMap::len);
        let Some((most, connections)) = self.peers.iter().max_by_key(|(_, connections)| connections.len()) else { return false };
        let oldest_unprotected = |all: &BTreeMap<u64, Connection>| all.iter().find(|(_, one)| !one.is_protected).map(|(number, _)| *number);
        let found = if connections.len() > of_newcomer {
            oldest_unprotected(connections).or_else(|| connections.keys().next().copied()).map(|number| (*most, number))
        } else {
            self.peers.get(&newcomer).and_then(oldest_unprotected).map(|number| (newcomer, number))
        };
        found.and_then(|(peer, number)| self.remove(peer, number)).inspect(|connection| connection.evicted.cancel()).is_some()
    }

    fn remove(&mut self, peer: IpAddr, number: u64) -> Option<Connection> {
        let connections = self.peers.get_mut(&peer)?;
        let removed = connections.remove(&number)?;
        self.taken = self.taken.saturating_sub(1);
        if connections.is_empty() {
            self.peers.remove(&peer);
        }
        Some(removed)
    }
}

/// The address by which a client counts: an IPv4 address, or the network of an IPv6 address.
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK_MASK).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[test]
    fn who_has_the_most_makes_room_for_others() {
        let limiter = ConnectionLimiter::new(4);
        let greedy: Vec<ConnectionSlot> = (0..4).map(|_| limiter.acquire(ip("192.0.2.1")).expect("room")).collect();
        let second = limiter.acquire(ip("192.0.2.2")).expect("made room");
        let third = limiter.acquire(ip("192.0.2.3")).expect("made room");
        assert_eq!(greedy.iter().map(is_evicted).collect::<Vec<_>>(), [true, true, false, false]);
        assert!(!is_evicted(&second) && !is_evicted(&third));
        assert_eq!(limiter.taken(), 4);
        // An evicted connection does not free its slot a second time.
        drop(greedy);
        assert_eq!(limiter.taken(), 2);
    }

    #[test]
    fn an_address_makes_room_for_itself_but_for_what_has_first_claim() {
        let limiter = ConnectionLimiter::new(2);
        let protected = limiter.acquire(ip("192.0.2.1")).expect("room");
        protected.protect();
        let idle = limiter.acquire(ip("192.0.2.1")).expect("room");
        let next = limiter.acquire(ip("192.0.2.1")).expect("the idle one goes");
        assert!(is_evicted(&idle) && !is_evicted(&protected));
        next.protect();
        assert!(limiter.acquire(ip("192.0.2.1")).is_none(), "all that is left has first claim");
        let other = limiter.acquire(ip("192.0.2.2")).expect("who has less gets in all the same");
        assert!(is_evicted(&protected) && !is_evicted(&next) && !is_evicted(&other));
    }

    #[test]
    fn equals_do_not_push_each_other_out() {
        let limiter = ConnectionLimiter::new(2);
        let slots: Vec<ConnectionSlot> =
            ["192.0.2.1", "192.0.2.2"].into_iter().map(|peer| limiter.acquire(ip(peer)).expect("room")).collect();
        let third = limiter.acquire(ip("192.0.2.3")).expect("it has none yet");
        assert_eq!(slots.iter().filter(|slot| is_evicted(slot)).count(), 1);
        drop(third);
        assert_eq!(limiter.taken(), 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let limiter = ConnectionLimiter::new(3);
        let many: Vec<ConnectionSlot> = (1..4).map(|n| limiter.acquire(ip(&format!("2001:db8::{n}"))).expect("room")).collect();
        let other = limiter.acquire(ip("2001:db8:0:1::1")).expect("made room");
        assert_eq!((is_evicted(&many[0]), is_evicted(&other)), (true, false));
        assert_eq!(network(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
    }
}
