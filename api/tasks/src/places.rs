//! Places for connections that strangers open: so many at once, shared out among the addresses that they come from.
//!
//! A bound alone lets one client keep everybody else out: it opens as many connections as there are places and says
//! nothing on them. Here a newcomer gets in for as long as somebody holds more. When all places are taken, the address
//! with the most connections loses its oldest; those of clients that have first claim ([`Place::keep`]) go after all
//! others. Whoever serves a connection ends it when [`Place::lost`] says so. Addresses of IPv6 count by their network
//! of 64 bits, in which one client has all of them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Bits of an IPv6 address that name the network.
const NETWORK_MASK: u128 = u128::MAX << 64;

/// All places of one server.
#[derive(Clone, Debug)]
pub struct Places {
    places_max: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    taken: usize,
    /// Grows with each connection: a lower number is an older one.
    next: u64,
    peers: HashMap<IpAddr, BTreeMap<u64, Connection>>,
}

#[derive(Debug)]
struct Connection {
    lost: CancellationToken,
    is_kept: bool,
}

/// The place of one connection, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    table: Arc<Mutex<Table>>,
    peer: IpAddr,
    number: u64,
    lost: CancellationToken,
}

impl Places {
    /// So many places.
    pub fn new(places_max: usize) -> Self {
        Self { places_max, table: Arc::default() }
    }

    /// A place for a connection from that address; none where all are taken and nobody has to give one up for it.
    pub fn take(&self, peer: IpAddr) -> Option<Place> {
        let peer = network(peer);
        let mut table = self.table.lock();
        if table.taken >= self.places_max && !table.make_room(peer) {
            return None;
        }
        let (number, lost) = (table.next, CancellationToken::new());
        table.next += 1;
        table.taken += 1;
        table.peers.entry(peer).or_default().insert(number, Connection { lost: lost.clone(), is_kept: false });
        Some(Place { table: Arc::clone(&self.table), peer, number, lost })
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.table.lock().taken
    }
}

impl Place {
    /// Its client has first claim: of the connections of one address it is ended last, and never for another one of the
    /// same address.
    pub fn keep(&self) {
        let mut table = self.table.lock();
        if let Some(connection) = table.peers.get_mut(&self.peer).and_then(|all| all.get_mut(&self.number)) {
            connection.is_kept = true;
        }
    }

    /// Waits until somebody else gets the place.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().remove(self.peer, self.number);
    }
}

impl Table {
    /// Takes a place from who has the most, for a newcomer.
    fn make_room(&mut self, newcomer: IpAddr) -> bool {
        let of_newcomer = self.peers.get(&newcomer).map_or(0, BTreeMap::len);
        let Some((most, connections)) = self.peers.iter().max_by_key(|(_, connections)| connections.len()) else { return false };
        let oldest_not_kept = |all: &BTreeMap<u64, Connection>| all.iter().find(|(_, one)| !one.is_kept).map(|(number, _)| *number);
        let found = if connections.len() > of_newcomer {
            oldest_not_kept(connections).or_else(|| connections.keys().next().copied()).map(|number| (*most, number))
        } else {
            self.peers.get(&newcomer).and_then(oldest_not_kept).map(|number| (newcomer, number))
        };
        found.and_then(|(peer, number)| self.remove(peer, number)).inspect(|connection| connection.lost.cancel()).is_some()
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

fn network(peer: IpAddr) -> IpAddr {
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

    fn is_lost(place: &Place) -> bool {
        place.lost.is_cancelled()
    }

    #[test]
    fn who_has_the_most_makes_room_for_others() {
        let places = Places::new(4);
        let greedy: Vec<Place> = (0..4).map(|_| places.take(ip("192.0.2.1")).expect("room")).collect();
        let second = places.take(ip("192.0.2.2")).expect("made room");
        let third = places.take(ip("192.0.2.3")).expect("made room");
        assert_eq!(greedy.iter().map(is_lost).collect::<Vec<_>>(), [true, true, false, false]);
        assert!(!is_lost(&second) && !is_lost(&third));
        assert_eq!(places.taken(), 4);
        // Who lost a place gives it back once.
        drop(greedy);
        assert_eq!(places.taken(), 2);
    }

    #[test]
    fn an_address_makes_room_for_itself_but_for_what_has_first_claim() {
        let places = Places::new(2);
        let kept = places.take(ip("192.0.2.1")).expect("room");
        kept.keep();
        let idle = places.take(ip("192.0.2.1")).expect("room");
        let next = places.take(ip("192.0.2.1")).expect("the idle one goes");
        assert!(is_lost(&idle) && !is_lost(&kept));
        next.keep();
        assert!(places.take(ip("192.0.2.1")).is_none(), "all that is left has first claim");
        let other = places.take(ip("192.0.2.2")).expect("who has less gets in all the same");
        assert!(is_lost(&kept) && !is_lost(&next) && !is_lost(&other));
    }

    #[test]
    fn equals_do_not_push_each_other_out() {
        let places = Places::new(2);
        let held: Vec<Place> = ["192.0.2.1", "192.0.2.2"].into_iter().map(|peer| places.take(ip(peer)).expect("room")).collect();
        let third = places.take(ip("192.0.2.3")).expect("it has none yet");
        assert_eq!(held.iter().filter(|place| is_lost(place)).count(), 1);
        drop(third);
        assert_eq!(places.taken(), 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let places = Places::new(3);
        let many: Vec<Place> = (1..4).map(|n| places.take(ip(&format!("2001:db8::{n}"))).expect("room")).collect();
        let other = places.take(ip("2001:db8:0:1::1")).expect("made room");
        assert_eq!((is_lost(&many[0]), is_lost(&other)), (true, false));
        assert_eq!(network(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
    }
}
