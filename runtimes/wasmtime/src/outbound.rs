//! Connections that guests may open, when a setting has a list of hosts. Without one the Pod's network alone decides.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtimes_contract::OutboundHost;
use tokio::task::spawn_blocking;

/// How long the addresses of a name count. As long as that, an address stays allowed that the name has no more.
const ADDRESSES_LAST: Duration = Duration::from_secs(30);

/// The list of a container.
pub struct Outbound {
    hosts: Vec<OutboundHost>,
    by_name: Mutex<HashMap<String, Addresses>>,
}

/// What a name stood for.
struct Addresses {
    addresses: Vec<IpAddr>,
    at: Instant,
}

impl Outbound {
    /// Nothing but these.
    pub fn new(hosts: Vec<OutboundHost>) -> Self {
        Self { hosts, by_name: Mutex::default() }
    }

    /// Whether guests may look up names.
    pub fn needs_names(&self) -> bool {
        self.hosts.iter().any(OutboundHost::needs_names)
    }

    /// Whether a guest may open a connection, or send a datagram, to this address: it is in the list, or one of those of a name there.
    pub async fn allows(&self, address: SocketAddr) -> bool {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        if self.hosts.iter().any(|host| host.allows_address(ip, port)) {
            return true;
        }
        for name in self.hosts.iter().filter_map(|host| host.name(port)) {
            if self.addresses(name).await.contains(&ip) {
                return true;
            }
        }
        false
    }

    /// The addresses to which a guest's request to this host may be sent.
    ///
    /// # Errors
    /// When the name has no address.
    pub async fn allowed(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut addresses = look_up(host, port).await?;
        if !self.hosts.iter().any(|entry| entry.allows_host(host, port)) {
            let mut allowed = Vec::new();
            for address in addresses {
                if self.allows(address).await {
                    allowed.push(address);
                }
            }
            addresses = allowed;
        }
        Ok(addresses)
    }

    /// Those of a name of the list; none when it has none now.
    async fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let recent = |addresses: &&Addresses| addresses.at.elapsed() < ADDRESSES_LAST;
        if let Some(recent) = self.by_name.lock().get(name).filter(recent) {
            return recent.addresses.clone();
        }
        let addresses = look_up(name, 0).await.unwrap_or_default();
        let addresses: Vec<_> = addresses.into_iter().map(|address| address.ip().to_canonical()).collect();
        if !addresses.is_empty() {
            self.by_name.lock().insert(name.to_owned(), Addresses { addresses: addresses.clone(), at: Instant::now() });
        }
        addresses
    }
}

/// By the Pod's own resolver.
async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    spawn_blocking(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(hosts: &[&str]) -> Outbound {
        Outbound::new(hosts.iter().map(|host| host.parse().unwrap()).collect())
    }

    #[tokio::test]
    async fn an_address_is_allowed_by_itself_or_by_a_name_that_has_it() {
        for (hosts, address, wanted) in [
            (&["127.0.0.0/8:80"][..], "127.0.0.1:80", true),
            (&["127.0.0.0/8:80"], "127.0.0.1:81", false),
            (&["127.0.0.0/8"], "[::ffff:127.0.0.1]:81", true),
            // The machine's own name for it.
            (&["nowhere.invalid", "localhost:80"], "127.0.0.1:80", true),
            (&["localhost:80"], "127.0.0.1:81", false),
            (&["localhost"], "127.0.0.2:80", false),
            (&["*.localhost"], "127.0.0.1:80", false),
            (&[], "127.0.0.1:80", false),
        ] {
            assert_eq!(outbound(hosts).allows(address.parse().unwrap()).await, wanted, "{hosts:?} {address}");
        }
    }

    #[tokio::test]
    async fn a_request_goes_to_addresses_that_its_host_or_an_entry_allows() {
        let local: SocketAddr = "127.0.0.1:80".parse().unwrap();
        for (hosts, host, wanted) in [
            (&["localhost"][..], "localhost", true),
            (&["127.0.0.1"], "localhost", true),
            (&["localhost"], "127.0.0.1", true),
            (&["other.example"], "localhost", false),
            (&[], "localhost", false),
        ] {
            let allowed = outbound(hosts).allowed(host, 80).await.unwrap();
            assert_eq!(allowed.contains(&local), wanted, "{hosts:?} {host}: {allowed:?}");
        }
    }

    #[test]
    fn a_list_of_networks_needs_no_names() {
        for (hosts, wanted) in [(&["10.0.0.0/8"][..], false), (&[], false), (&["10.0.0.0/8", "a.b"], true), (&["*"], true)] {
            assert_eq!(outbound(hosts).needs_names(), wanted);
        }
    }
}
