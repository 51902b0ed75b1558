//! The sockets on which the node's own programs listen, read from the kernel: a Pod must not get such a port as host port.

mod diag;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use node_netfilter::Listener;
use procfs_core::net::{TcpNetEntries, TcpState, UdpNetEntries};
use procfs_core::{ExplicitSystemInfo, FromReadSI, ProcError};

use crate::{Config, HostPort, NetworkError, Protocol};

/// The tables of the network namespace that the calling thread is in.
const TABLES: &str = "/proc/thread-self/net";
/// Of this, only the order of bytes matters to the tables.
const SYSTEM: ExplicitSystemInfo =
    ExplicitSystemInfo { boot_time_secs: 0, ticks_per_second: 0, page_size: 0, is_little_endian: cfg!(target_endian = "little") };

/// Rejects host ports on addresses of the cluster, and those on which a program of the node listens. Blocks; the calling
/// thread is in the node's namespaces.
pub(crate) fn check(config: &Config, ports: &[HostPort]) -> Result<(), NetworkError> {
    if ports.is_empty() {
        return Ok(());
    }
    let mut listening = listening().map_err(NetworkError::io("reading where programs listen"))?;
    let reserved = config.reserved_ports.iter().map(|port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port));
    listening.extend(reserved.map(|at| Listener { protocol: Protocol::Tcp, at }));
    ports.iter().try_for_each(|port| check_one(config, port, &listening))
}

fn check_one(config: &Config, port: &HostPort, listening: &[Listener]) -> Result<(), NetworkError> {
    let ranges = [(config.service_cidr, "Service"), (config.cluster_cidr, "Pod")];
    let range_of = |ip: Ipv4Addr| ranges.iter().find(|(range, _)| range.contains(&ip));
    if let Some((ip, (range, what))) = port.host_ip.and_then(|ip| Some((ip, range_of(ip)?))) {
        return Err(NetworkError::HostIpRefused { ip, what, range: *range });
    }
    // A host port is never on an address of the cluster's ranges, so a listener there is no conflict.
    let meets = |at: Ipv4Addr| match port.host_ip {
        _ if at.is_unspecified() => true,
        Some(ip) => at == ip,
        None => range_of(at).is_none(),
    };
    let is_taken = |l: &&Listener| l.protocol == port.protocol && l.at.port() == port.host_port && meets(*l.at.ip());
    match listening.iter().find(is_taken) {
        Some(taken) => Err(NetworkError::HostPortInUse { port: port.host_port, protocol: port.protocol.as_str(), at: *taken.at.ip() }),
        None => Ok(()),
    }
}

/// The listening TCP sockets and the unconnected UDP sockets of the calling thread's network namespace. Blocks.
pub fn listening() -> io::Result<Vec<Listener>> {
    let mut all = Vec::new();
    let listener = |protocol, at: SocketAddr| Some(Listener { protocol, at: SocketAddrV4::new(v4(at.ip())?, at.port()) });
    let tcp = match diag::listening()? {
        Some(listening) => listening,
        None => tcp_of_tables()?,
    };
    all.extend(tcp.into_iter().filter_map(|at| listener(Protocol::Tcp, at)));
    for table in ["udp", "udp6"] {
        let entries = read::<UdpNetEntries>(table)?.map(|entries| entries.0).unwrap_or_default();
        let unconnected = entries.iter().filter(|entry| entry.remote_address.port() == 0);
        all.extend(unconnected.filter_map(|entry| listener(Protocol::Udp, entry.local_address)));
    }
    Ok(all)
}

/// Listening sockets of TCP, by the tables.
fn tcp_of_tables() -> io::Result<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for table in ["tcp", "tcp6"] {
        let entries = read::<TcpNetEntries>(table)?.map(|entries| entries.0).unwrap_or_default();
        all.extend(entries.iter().filter(|entry| entry.state == TcpState::Listen).map(|entry| entry.local_address));
    }
    Ok(all)
}

/// An IPv6 socket on all addresses accepts IPv4 as well, unless it has the option `IPV6_V6ONLY`, which the tables do not
/// show.
fn v4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(ip) if ip.is_unspecified() => Some(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
    }
}

/// A table; `None` when the kernel does not have the address family.
fn read<T: FromReadSI>(table: &str) -> io::Result<Option<T>> {
    match T::from_file(Path::new(TABLES).join(table), &SYSTEM) {
        Ok(entries) => Ok(Some(entries)),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(ProcError::Io(error, _)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ports_take_nothing_that_is_there() {
        let config = crate::rules::tests::config();
        let ip = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
        let verdict = |host_ip: &str, listening: &str| {
            let host_ip = Some(ip(host_ip)).filter(|ip| !ip.is_unspecified());
            let port = HostPort { host_ip, protocol: Protocol::Udp, host_port: 53, container_port: 53 };
            let (protocol, at) = listening.split_once(' ').expect("two words");
            let protocol = if protocol == "tcp" { Protocol::Tcp } else { Protocol::Udp };
            check_one(&config, &port, &[Listener { protocol, at: SocketAddrV4::new(ip(at), 53) }])
                .map_or_else(|error| error.to_string(), |()| "ok".to_owned())
        };
        for (host_ip, listening, wanted) in [
            ("0.0.0.0", "udp 10.96.0.10", "ok"),
            ("192.0.2.1", "udp 10.96.0.10", "ok"),
            ("0.0.0.0", "tcp 0.0.0.0", "ok"),
            ("192.0.2.1", "udp 127.0.0.53", "ok"),
            ("0.0.0.0", "udp 127.0.0.53", "host port 53/udp is in use: a program of the node listens at 127.0.0.53"),
            ("0.0.0.0", "udp 0.0.0.0", "host port 53/udp is in use: a program of the node listens at 0.0.0.0"),
            ("192.0.2.1", "udp 0.0.0.0", "host port 53/udp is in use: a program of the node listens at 0.0.0.0"),
            ("192.0.2.1", "udp 192.0.2.1", "host port 53/udp is in use: a program of the node listens at 192.0.2.1"),
            (
                "10.96.0.10",
                "tcp 0.0.0.0",
                "host IP 10.96.0.10 is not the node's own: it lies in the range of Service addresses 10.96.0.0/12",
            ),
            ("10.244.1.1", "tcp 0.0.0.0", "host IP 10.244.1.1 is not the node's own: it lies in the range of Pod addresses 10.244.0.0/16"),
        ] {
            assert_eq!(verdict(host_ip, listening), wanted, "{host_ip}, {listening}");
        }
    }
}
