//! Connections that guests may open, when a setting has a list of hosts. Without one the Pod's network alone decides.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtimes_contract::OutboundHost;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// How long the addresses of a name count. As long as that, an address stays allowed that the name has no more.
const ADDRESSES_LAST: Duration = Duration::from_secs(30);
/// How soon a name is looked up again whose look-up failed.
const FAILURE_LASTS: Duration = Duration::from_secs(5);
/// Look-ups at once: threads of the shim wait for them, which files need too.
const LOOK_UPS_MAX: usize = 4;

/// The list of a container.
pub struct Outbound {
    hosts: Vec<OutboundHost>,
    by_name: Mutex<HashMap<String, Addresses>>,
    look_ups: Semaphore,
}

/// What a name stands for, until it is looked up again.
#[derive(Clone)]
struct Addresses {
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl From<Vec<OutboundHost>> for Outbound {
    /// Nothing but these.
    fn from(hosts: Vec<OutboundHost>) -> Self {
        Self { hosts, by_name: Mutex::default(), look_ups: Semaphore::new(LOOK_UPS_MAX) }
    }
}

impl Outbound {
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
        let names = self.hosts.iter().filter_map(|host| host.name(port));
        let (recent, old): (Vec<_>, Vec<_>) = names.map(|name| (name, self.recent(name))).partition(|(_, recent)| recent.is_some());
        if recent.into_iter().filter_map(|(_, recent)| recent).any(|addresses| addresses.contains(&ip)) {
            return true;
        }
        for (name, _) in old {
            if self.renewed(name).await.contains(&ip) {
                return true;
            }
        }
        false
    }

    /// The addresses to which a guest's request to this host may be sent. A list without names asks no nameserver.
    ///
    /// # Errors
    /// When the name has no address.
    pub async fn allowed(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let is_address = unbracketed(host).parse::<IpAddr>().is_ok();
        if !is_address && !self.needs_names() {
            return Ok(Vec::new());
        }
        let addresses = self.look_up(host, port).await?;
        if self.hosts.iter().any(|entry| entry.allows_host(host, port)) {
            return Ok(addresses);
        }
        let mut allowed = Vec::new();
        for address in addresses {
            if self.allows(address).await {
                allowed.push(address);
            }
        }
        Ok(allowed)
    }

    /// The addresses of a name of the list, if they need not be looked up.
    fn recent(&self, name: &str) -> Option<Vec<IpAddr>> {
        let by_name = self.by_name.lock();
        by_name.get(name).filter(|addresses| addresses.until > Instant::now()).map(|addresses| addresses.addresses.clone())
    }

    /// The addresses of a name of the list, looked up again. A look-up that fails leaves those that the name had.
    async fn renewed(&self, name: &str) -> Vec<IpAddr> {
        let looked_up = self.look_up(name, 0).await;
        // Somebody else may have looked it up meanwhile: the later answer counts.
        let mut by_name = self.by_name.lock();
        let entry = by_name.entry(name.to_owned()).or_insert_with(|| Addresses { addresses: Vec::new(), until: Instant::now() });
        match looked_up {
            Ok(addresses) => {
                entry.addresses = addresses.into_iter().map(|address| address.ip().to_canonical()).collect();
                entry.until = Instant::now() + ADDRESSES_LAST;
            }
            Err(_) => entry.until = Instant::now() + FAILURE_LASTS,
        }
        entry.addresses.clone()
    }

    /// By the Pod's own resolver.
    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = unbracketed(host).to_owned();
        // The semaphore is never closed.
        let _permit = self.look_ups.acquire().await.map_err(io::Error::other)?;
        spawn_blocking(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await.map_err(io::Error::other)?
    }
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(hosts: &[&str]) -> Outbound {
        hosts.iter().map(|host| host.parse().unwrap()).collect::<Vec<_>>().into()
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
            (&["127.0.0.1"], "localhost", false),
            (&["127.0.0.1", "nowhere.invalid"], "localhost", true),
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
