//! The server's settings, and how a node's own resolvers are read.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use tokio::sync::watch;

/// How one node serves names.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses to listen on, for UDP and TCP. They may be added to the machine later.
    pub listen: Vec<SocketAddr>,
    /// The cluster's domain, without a dot at the end: `cluster.local`.
    pub domain: String,
    /// Ranges whose reverse names are answered here only (Pods and Services); questions for reverse names of other addresses
    /// are forwarded.
    pub ranges: Vec<IpNet>,
    /// Resolvers for all other names, in order; without any, such questions are refused. They change with the machine's
    /// network.
    pub upstream: watch::Receiver<Vec<SocketAddr>>,
}

/// The resolvers of a `resolv.conf`, without those in `own`: a server that forwards to itself would never stop.
pub fn upstreams(resolv_conf: &str, own: &[IpAddr]) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        // An IPv6 address may have a zone (`fe80::1%eth0`): such an address is on one link only.
        let Some(ip) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        let address = SocketAddr::new(ip, 53);
        if !own.contains(&ip) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_come_from_resolv_conf_without_oneself() {
        let text = "# by hand\nsearch example.org\nnameserver 10.96.0.10\n nameserver\t192.0.2.53 # first\nnameserver fe80::1%eth0\n\
                    nameserver 2001:db8::53\nnameserver 192.0.2.53\noptions ndots:1\nnameserver\nnameserver nonsense\n";
        let own = "10.96.0.10".parse().expect("an address");
        let found: Vec<String> = upstreams(text, &[own]).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.53:53", "[2001:db8::53]:53"]);
    }
}
