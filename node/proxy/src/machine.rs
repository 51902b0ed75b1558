//! The machine's own addresses, and the ports on which its programs listen: a Service must not take them over. They are read
//! periodically; the rules get them as a value.

use node_netfilter::{Listener, Protocol};
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::{Config, ProxyError};

/// How a machine is read. The functions may block.
#[derive(Clone, Copy, Debug)]
pub struct MachineReader {
    /// The addresses of its interfaces.
    pub addresses: fn() -> io::Result<Vec<Ipv4Addr>>,
    /// The sockets on which its programs listen.
    pub listening: fn() -> io::Result<Vec<Listener>>,
}

/// A machine's addresses, and the sockets on which its programs listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) addresses: BTreeSet<Ipv4Addr>,
    pub(crate) listening: BTreeSet<(Protocol, SocketAddrV4)>,
}

impl Machine {
    /// Reads the machine. Blocks.
    pub(crate) fn read(config: &Config, reader: MachineReader) -> Result<Self, ProxyError> {
        let addresses = (reader.addresses)().map_err(ProxyError::Machine)?.into_iter().collect();
        let listeners = (reader.listening)().map_err(ProxyError::Machine)?.into_iter().map(|listener| (listener.protocol, listener.at));
        let reserved = config.reserved_ports.iter().map(|port| (Protocol::Tcp, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port)));
        Ok(Self { addresses, listening: listeners.chain(reserved).collect() })
    }

    /// Whether a program of the node listens on a Service's port: at the address of the node that the Service has, or, without
    /// one (a node port), at any address of the node that is not the cluster's.
    pub(crate) fn listens(&self, ip: Option<Ipv4Addr>, protocol: Protocol, port: u16, config: &Config) -> bool {
        if ip.is_some_and(|ip| !self.addresses.contains(&ip)) {
            return false;
        }
        let meets = |at: &Ipv4Addr| match ip {
            _ if at.is_unspecified() => true,
            Some(ip) => *at == ip,
            None => !at.is_loopback() && !config.service_cidr.contains(at),
        };
        self.listening.iter().any(|(transport, at)| *transport == protocol && at.port() == port && meets(at.ip()))
    }
}
