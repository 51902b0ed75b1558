//! The node's own side: the bridges of its Pods, the interface with the cluster DNS address, and the routes. Packets to
//! addresses without a Pod or Service end here: the Pod range is unreachable but for the routes to known nodes, and the Service
//! range ends in an interface without a link, where the rules reject packets. (The node's own programs need *some* route there:
//! without one the kernel would reject their connections before Services are translated.)

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

use crate::netlink::message::{self, ROUTE_PROTOCOL, Target};
use crate::netlink::{Address, Link, Request, Route, Socket};
use crate::proc_mount::write_sysctl;
use crate::segment::{self, Segment};
use crate::{Config, NetworkError, Peer, ledger};

/// The flags that change each range.
const POD_FLAG: &str = "--cluster-cidr";
const SERVICE_FLAG: &str = "--service-cluster-ip-range";
/// The packet size when no interface has the node's own address.
const MTU_DEFAULT: u32 = 1_500;

/// The metric of this cluster's routes: together with the protocol number it separates them from those of other clusters on the
/// machine.
pub(crate) fn metric(prefix: &str) -> u32 {
    let digest = Sha256::digest(prefix.as_bytes());
    let bytes = digest.first_chunk::<3>().copied().unwrap_or_default();
    // Above every metric that people and DHCP clients use, and never zero.
    (1 << 24) | bytes.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}

/// The name of a Pod's interface on the node, computed from its address: distinct within the cluster.
pub(crate) fn veth(prefix: &str, ip: Ipv4Addr) -> String {
    let [_, b, c, d] = ip.octets();
    format!("{prefix}v{b:02x}{c:02x}{d:02x}")
}

/// Whether an interface is this cluster's.
pub(crate) fn owns(prefix: &str, name: &str) -> bool {
    let is_veth = |rest: &str| rest.strip_prefix('v').is_some_and(|hex| hex.len() == 6 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    name.strip_prefix(prefix).is_some_and(|rest| rest == "-dns" || segment::owns(rest) || is_veth(rest))
}

/// The machine as it is.
pub(crate) struct Present {
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) routes: Vec<Route>,
}

impl Present {
    pub(crate) fn read(socket: &mut Socket) -> Result<Self, NetworkError> {
        Ok(Self { links: socket.links()?, addresses: socket.addresses()?, routes: socket.routes()? })
    }

    fn name(&self, index: u32) -> &str {
        self.links.iter().find(|link| link.index == index).map_or("?", |link| link.name.as_str())
    }

    fn index(&self, name: &str) -> Result<u32, NetworkError> {
        let missing = || NetworkError::kernel(format!("finding interface {name}"))(io::ErrorKind::NotFound.into());
        self.links.iter().find(|link| link.name == name).map(|link| link.index).ok_or_else(missing)
    }

    /// Whether a route is this cluster's, by its mark or by its interface.
    fn owns_route(&self, config: &Config, route: &Route) -> bool {
        (route.protocol == ROUTE_PROTOCOL && route.metric == metric(&config.prefix))
            || route.oif.is_some_and(|index| owns(&config.prefix, self.name(index)))
    }

    /// The packet size of the interface that other nodes are reached by.
    fn mtu(&self, node_ip: IpAddr) -> u32 {
        let holder = self.addresses.iter().find(|address| IpAddr::V4(address.ip) == node_ip);
        let link = holder.and_then(|address| self.links.iter().find(|link| link.index == address.index));
        // The loopback's packet size is larger than a bridge accepts.
        link.map(|link| link.mtu).filter(|mtu| *mtu <= 9_216).unwrap_or(MTU_DEFAULT)
    }
}

/// [`check_free`] on the machine as it is.
pub(crate) fn check_ranges(config: &Config) -> Result<(), NetworkError> {
    check_free(config, &Present::read(&mut Socket::open()?)?)
}

/// Rejects ranges that another cluster or the machine's own network uses.
pub(crate) fn check_free(config: &Config, present: &Present) -> Result<(), NetworkError> {
    let ranges = [(config.cluster_cidr, POD_FLAG), (config.service_cidr, SERVICE_FLAG)];
    let taken: Vec<String> = ranges
        .iter()
        .filter_map(|(range, flag)| {
            let user = user_of(config, present, *range)?;
            Some(format!("{range} is already used on this machine by {user}; choose another with {flag}"))
        })
        .collect();
    if taken.is_empty() { Ok(()) } else { Err(NetworkError::InUse(taken.join(". "))) }
}

/// The other users of a range.
fn user_of(config: &Config, present: &Present, range: Ipv4Net) -> Option<String> {
    let others = |address: &&Address| !owns(&config.prefix, present.name(address.index));
    if let Some(address) = present.addresses.iter().filter(others).find(|address| range.contains(&address.ip)) {
        return Some(format!("interface {} ({})", present.name(address.index), address.ip));
    }
    // A wider route of the machine (a LAN of 10.0.0.0/8) has lower precedence than ours; a narrower one would win, and the
    // ranges of another cluster must not overlap at all.
    let meets = |route: &&Route| {
        let to = route.destination;
        to.prefix_len() > 0
            && !present.owns_route(config, route)
            && (range.contains(&to) || (route.protocol == ROUTE_PROTOCOL && to.contains(&range)))
    };
    let route = present.routes.iter().find(meets)?;
    let through = route.oif.map(|index| format!(" through {}", present.name(index))).unwrap_or_default();
    Some(format!("the route to {}{through}", route.destination))
}

/// Sets interfaces, addresses, routes and sysctls; `pods` are the Pods' addresses with their UIDs. The only sysctl that stays
/// after [`remove`] is `net.ipv4.ip_forward`: other programs may need it by now.
pub(crate) fn configure(config: &Config, pod_cidr: Ipv4Net, pods: &[(Ipv4Addr, String)]) -> Result<(), NetworkError> {
    let mut socket = Socket::open()?;
    let present = Present::read(&mut socket)?;
    check_free(config, &present)?;
    let gateway = ledger::gateway(pod_cidr)
        .filter(|_| config.cluster_cidr.contains(&pod_cidr) && pod_cidr.prefix_len() <= 30)
        .ok_or_else(|| NetworkError::Invalid(format!("Pod range {pod_cidr} is too small or outside {POD_FLAG} {}", config.cluster_cidr)))?;
    let segments = segment::all(&config.prefix, pod_cidr);
    make_interfaces(&mut socket, config, &segments, gateway, present.mtu(config.node_ip))?;
    sysctl("ipv4/ip_forward", "1")?;
    for Segment { bridge, .. } in &segments {
        sysctl(&format!("ipv4/conf/{bridge}/send_redirects"), "0")?;
    }
    let present = Present::read(&mut socket)?;
    let links: HashMap<&str, &Link> = present.links.iter().map(|link| (link.name.as_str(), link)).collect();
    let mut requests = addresses_and_routes(config, pod_cidr, gateway, &segments, &present)?;
    // A Pod that is left from another range of the node is cut off: the guard lets nothing of it pass.
    for (ip, uid) in pods.iter().filter(|(ip, _)| pod_cidr.contains(ip)) {
        let name = veth(&config.prefix, *ip);
        let Some(link) = links.get(name.as_str()) else { continue };
        let bridge = present.index(&segment::bridge(&config.prefix, pod_cidr, *ip))?;
        if link.controller != Some(bridge) {
            requests.push(message::attach(&name, bridge, uid));
        }
        requests.extend(message::port(&name, link.index, bridge, *ip));
    }
    // The bridges of a wider range. Their addresses may be other machines' by now.
    let is_present = |name: &str| segments.iter().any(|segment| segment.bridge == name || segment.carrier.iter().any(|port| port == name));
    let stale = present.links.iter().filter(|link| segment_of(config, &link.name) && !is_present(&link.name));
    requests.extend(stale.map(|link| message::delete_link(&link.name)));
    socket.apply(requests)
}

/// Writes a sysctl of the node's network.
fn sysctl(name: &str, value: &str) -> Result<(), NetworkError> {
    write_sysctl(File::open("/proc").map_err(NetworkError::io("opening /proc"))?, name, value)
}

/// Lets the node reach host ports by its localhost. The rules must be written before: they keep Pods out of it.
pub(crate) fn route_localhost(config: &Config, pod_cidr: Ipv4Net) -> Result<(), NetworkError> {
    let segments = segment::all(&config.prefix, pod_cidr);
    segments.iter().try_for_each(|Segment { bridge, .. }| sysctl(&format!("ipv4/conf/{bridge}/route_localnet"), "1"))
}

/// Creates the bridges and the DNS interface, each up.
fn make_interfaces(socket: &mut Socket, config: &Config, segments: &[Segment], gateway: Ipv4Addr, mtu: u32) -> Result<(), NetworkError> {
    let dns = config.dns_interface();
    let bridges = segments.iter().map(|segment| (&segment.bridge, gateway));
    let interfaces: Vec<_> = bridges.chain([(&dns, config.dns_ip)]).collect();
    socket.apply(interfaces.iter().flat_map(|(name, ip)| interface(name, *ip, mtu)).collect())?;
    segments.iter().try_for_each(|segment| give_carrier(socket, segment, mtu))?;
    socket.apply(interfaces.iter().map(|(name, _)| message::up(name)).collect())?;
    segments.iter().try_for_each(|Segment { bridge, carrier: [port, _], .. }| {
        socket.await_operational(port)?;
        socket.await_operational(bridge)
    })
}

/// The requests for the node's addresses, and for the routes that do not lead to other nodes. Each bridge has the address of the
/// gateway, the first one with the route to the whole Pod range; narrower routes lead to the others.
fn addresses_and_routes(
    config: &Config,
    pod_cidr: Ipv4Net,
    gateway: Ipv4Addr,
    segments: &[Segment],
    present: &Present,
) -> Result<Vec<Request>, NetworkError> {
    let metric = metric(&config.prefix);
    let dns = present.index(&config.dns_interface())?;
    let bridges: Vec<u32> = segments.iter().map(|segment| present.index(&segment.bridge)).collect::<Result<_, _>>()?;
    let mut wanted = vec![Address { index: dns, ip: config.dns_ip, prefix_len: 32 }];
    // What the node itself sends to a Pod has the address of the Pod's bridge.
    let prefix_lens = std::iter::once(pod_cidr.prefix_len()).chain(std::iter::repeat(Ipv4Net::from(gateway).prefix_len()));
    wanted.extend(bridges.iter().zip(prefix_lens).map(|(index, prefix_len)| Address { index: *index, ip: gateway, prefix_len }));
    let mut requests: Vec<Request> = present
        .addresses
        .iter()
        .filter(|address| (bridges.contains(&address.index) || address.index == dns) && !wanted.contains(address))
        .map(|address| message::delete_address(address.index, address.ip, address.prefix_len))
        .collect();
    requests.extend(wanted.iter().map(|address| message::add_address(address.index, address.ip, address.prefix_len)));
    let source = match config.node_ip {
        IpAddr::V4(ip) if present.addresses.iter().any(|address| address.ip == ip) => Some(ip),
        _ => None,
    };
    requests.push(message::set_route(config.cluster_cidr, Target::Unreachable, metric));
    requests.push(message::set_route(config.service_cidr, Target::Interface(dns, source), metric));
    let others = || segments.iter().zip(&bridges).skip(1);
    // The routes of a range that the node had before.
    let of_segment = |route: &&Route| {
        route.protocol == ROUTE_PROTOCOL
            && route.metric == metric
            && route.oif.is_some_and(|index| segment_of(config, present.name(index)))
            && !others().any(|(segment, index)| segment.range == route.destination && route.oif == Some(*index))
    };
    requests.extend(present.routes.iter().filter(of_segment).map(|route| message::delete_route(route.destination, metric)));
    requests.extend(others().map(|(segment, index)| message::set_route(segment.range, Target::Interface(*index, Some(gateway)), metric)));
    Ok(requests)
}

/// Whether an interface belongs to a segment of this cluster.
fn segment_of(config: &Config, name: &str) -> bool {
    name.strip_prefix(&config.prefix).is_some_and(segment::owns)
}

/// Removes the neighbour entry of a Pod, whose segment is unknown while the node has no Pod range.
pub(crate) fn forget_pod(config: &Config, pod_cidr: Option<Ipv4Net>, ip: Ipv4Addr) -> Result<(), NetworkError> {
    let mut socket = Socket::open()?;
    let bridges: Vec<Link> = match pod_cidr {
        Some(pod_cidr) => socket.link(&segment::bridge(&config.prefix, pod_cidr, ip))?.into_iter().collect(),
        None => socket.links()?.into_iter().filter(|link| segment_of(config, &link.name)).collect(),
    };
    socket.apply(bridges.iter().map(|link| message::delete_neighbour(link.index, ip)).collect())
}

/// A bridge; the one for DNS never gets a port. (A dummy interface would do, but not every kernel
/// has them, and bridges are needed anyway.)
fn interface(name: &str, ip: Ipv4Addr, mtu: u32) -> [Request; 3] {
    [message::add_bridge(name, ip, mtu), message::set_shape(name, ip, mtu), message::without_ipv6_addresses(name)]
}

/// Gives the bridge a port that is always there. A bridge without a port has no carrier, and the kernel drops what is sent to
/// the first Pod until it has noticed the new carrier, up to a second later.
fn give_carrier(socket: &mut Socket, segment: &Segment, mtu: u32) -> Result<(), NetworkError> {
    let Segment { bridge, carrier: [port, peer], .. } = segment;
    let missing = || NetworkError::kernel(format!("finding interface {bridge}"))(io::ErrorKind::NotFound.into());
    let controller = socket.link(bridge)?.ok_or_else(missing)?.index;
    let mut requests = vec![message::add_pair(port, peer, mtu)];
    requests.extend([port, peer].map(|name| message::without_ipv6_addresses(name)));
    requests.extend([message::up(peer), message::attach(port, controller, bridge), message::closed_port(port)]);
    socket.apply(requests)
}

/// The changes that turn the present routes to other nodes into the wanted ones.
pub(crate) fn plan_routes(config: &Config, pod_cidr: Option<Ipv4Net>, present: &[Route], peers: &[Peer]) -> (Vec<Ipv4Net>, Vec<Peer>) {
    let metric = metric(&config.prefix);
    // A node must not take over this node's Pods or some of them, the whole range, or anything outside of it.
    let wanted: Vec<Peer> = peers
        .iter()
        .filter(|peer| {
            pod_cidr.is_none_or(|own| !own.contains(&peer.pod_cidr))
                && peer.pod_cidr != config.cluster_cidr
                && config.cluster_cidr.contains(&peer.pod_cidr)
        })
        .cloned()
        .collect();
    let own = |route: &&Route| route.protocol == ROUTE_PROTOCOL && route.metric == metric && route.via.is_some();
    let gone = present
        .iter()
        .filter(own)
        .filter(|route| !wanted.iter().any(|peer| peer.pod_cidr.trunc() == route.destination.trunc()))
        .map(|route| route.destination)
        .collect();
    let is_present =
        |peer: &Peer| present.iter().filter(own).any(|r| r.destination.trunc() == peer.pod_cidr.trunc() && r.via == Some(peer.via));
    (gone, wanted.into_iter().filter(|peer| !is_present(peer)).collect())
}

/// Replaces the routes to other nodes' Pods; the error names all routes that the kernel rejects.
pub(crate) fn set_routes(config: &Config, pod_cidr: Option<Ipv4Net>, peers: &[Peer]) -> Result<(), NetworkError> {
    let mut socket = Socket::open()?;
    let (gone, new) = plan_routes(config, pod_cidr, &socket.routes()?, peers);
    let metric = metric(&config.prefix);
    socket.apply(gone.into_iter().map(|range| message::delete_route(range, metric)).collect())?;
    let outcomes = socket.apply_each(new.iter().map(|peer| message::set_route(peer.pod_cidr, Target::Via(peer.via), metric)).collect())?;
    let refused: Vec<_> = new
        .into_iter()
        .zip(outcomes)
        .filter_map(|(peer, outcome)| match outcome {
            Err(NetworkError::Kernel { source, .. }) => Some((peer.pod_cidr, peer.via, source.to_string())),
            _ => None,
        })
        .collect();
    if refused.is_empty() { Ok(()) } else { Err(NetworkError::Routes(refused)) }
}

/// Removes this cluster's interfaces and routes.
pub(crate) fn remove(prefix: &str) -> Result<(), NetworkError> {
    let mut socket = Socket::open()?;
    let metric = metric(prefix);
    let own = |route: &&Route| route.protocol == ROUTE_PROTOCOL && route.metric == metric;
    let mut requests: Vec<Request> = socket.routes()?.iter().filter(own).map(|r| message::delete_route(r.destination, metric)).collect();
    requests.extend(socket.links()?.iter().filter(|link| owns(prefix, &link.name)).map(|link| message::delete_link(&link.name)));
    socket.apply(requests)
}

#[cfg(test)]
mod tests;
