//! The requests that this crate makes of the kernel, as values: interfaces, addresses, routes.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::Ipv4Net;
use nix::libc;
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::packet_route::address::AddressMessage;
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute,
    LinkMessage,
};
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{AddressMessageBuilder, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use super::Request;

/// `RTPROT_…` of every route of this crate; the kernel and the known daemons have other numbers.
pub(crate) const ROUTE_PROTOCOL: u8 = 83;

/// A locally administered hardware address, computed from an IPv4 address, so that a neighbour's entry stays right when another
/// Pod gets the address.
pub(crate) fn hardware_address(ip: Ipv4Addr) -> Vec<u8> {
    [&[0x0a, 0x58], ip.octets().as_slice()].concat()
}

pub(crate) fn all_links() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetLink(LinkMessage::default())
}

pub(crate) fn one_link(name: &str) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetLink(link(name).build())
}

pub(crate) fn all_addresses() -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    RouteNetlinkMessage::GetAddress(message)
}

pub(crate) fn all_routes() -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    RouteNetlinkMessage::GetRoute(message)
}

fn link(name: &str) -> LinkMessageBuilder<LinkUnspec> {
    LinkUnspec::new_with_name(name)
}

/// Creates a bridge, unless it exists.
pub(crate) fn add_bridge(name: &str, hardware: Ipv4Addr, mtu: u32) -> Request {
    let message = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Bridge)
        .name(name)
        .address(hardware_address(hardware))
        .mtu(mtu)
        .build();
    Request::new(format!("making bridge {name}"), RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
        .ignoring(&[libc::EEXIST])
}

/// Sets an interface's hardware address and packet size, where it was created with others.
pub(crate) fn set_shape(name: &str, hardware: Ipv4Addr, mtu: u32) -> Request {
    let message = link(name).address(hardware_address(hardware)).mtu(mtu).build();
    Request::new(format!("configuring interface {name}"), RouteNetlinkMessage::NewLink(message), 0)
}

/// Prevents an interface from giving itself IPv6 addresses and announcing them. On a kernel without IPv6 there is nothing to
/// prevent.
pub(crate) fn without_ipv6_addresses(name: &str) -> Request {
    let none = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let message = link(name).append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![none])).build();
    Request::new(format!("configuring interface {name}"), RouteNetlinkMessage::NewLink(message), 0).ignoring(&[
        libc::EAFNOSUPPORT,
        libc::EOPNOTSUPP,
        libc::EINVAL,
    ])
}

pub(crate) fn up(name: &str) -> Request {
    Request::new(format!("bringing up interface {name}"), RouteNetlinkMessage::NewLink(link(name).up().build()), 0)
}

/// Removes an interface, if it exists.
pub(crate) fn delete_link(name: &str) -> Request {
    Request::new(format!("removing interface {name}"), RouteNetlinkMessage::DelLink(link(name).build()), 0).ignoring(&[libc::ENODEV])
}

/// Creates a veth pair whose other end is in another network namespace: `name` here, `inside` there, the latter with the
/// hardware address of `ip`. Both are down.
pub(crate) fn add_veth(name: &str, inside: &str, namespace: BorrowedFd<'_>, ip: Ipv4Addr, mtu: u32) -> Request {
    let peer = link(inside).address(hardware_address(ip)).mtu(mtu).setns_by_fd(namespace.as_raw_fd()).build();
    let message = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Veth)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .name(name)
        .mtu(mtu)
        .build();
    Request::new(format!("making interface {name}"), RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Makes a veth pair with both ends here, unless there is one. Both are down.
pub(crate) fn add_pair(name: &str, peer: &str, mtu: u32) -> Request {
    let message = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Veth)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(link(peer).mtu(mtu).build())))
        .name(name)
        .mtu(mtu)
        .build();
    Request::new(format!("making interface {name}"), RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
        .ignoring(&[libc::EEXIST])
}

/// Makes an interface a port of a bridge.
pub(crate) fn attach(name: &str, bridge: u32, alias: &str) -> Request {
    let join = link(name).controller(bridge).alias(alias).up().build();
    Request::new(format!("attaching interface {name} to its bridge"), RouteNetlinkMessage::NewLink(join), 0)
}

/// Configures a Pod's port of the bridge: only the Pod with address `ip` is there, whatever it sends. The bridge learns nothing
/// from frames and floods none to the port, and the node sends no ARP request for the Pod. Hairpin mode lets a Pod reach itself
/// through a Service where bridged packets pass netfilter; isolated ports would keep such packets from other Pods of the node.
pub(crate) fn port(name: &str, index: u32, bridge: u32, ip: Ipv4Addr) -> [Request; 3] {
    [
        closed_port(name),
        Request::new(
            format!("configuring bridge port {name}"),
            RouteNetlinkMessage::NewNeighbour(forwarding(index, ip)),
            NLM_F_CREATE | NLM_F_REPLACE,
        ),
        set_neighbour(bridge, ip, ip),
    ]
}

/// Shapes a port of the bridge: it learns nothing, and gets only frames for the hardware addresses that are set for it.
pub(crate) fn closed_port(name: &str) -> Request {
    let data = vec![
        InfoBridgePort::HairpinMode(true),
        InfoBridgePort::Learning(false),
        InfoBridgePort::UnicastFlood(false),
        InfoBridgePort::MulticastFlood(false),
        InfoBridgePort::BroadcastFlood(false),
    ];
    let port = link(name).set_port_kind(InfoPortKind::Bridge).set_port_data(InfoPortData::BridgePort(data)).build();
    Request::new(format!("configuring bridge port {name}"), RouteNetlinkMessage::NewLink(port), 0)
}

/// An entry of the bridge's forwarding table. `NOARP` is the kernel's flag for an entry that does not age; `PERMANENT` would be
/// the bridge's own address.
fn forwarding(port: u32, hardware: Ipv4Addr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = port;
    message.header.state = NeighbourState::Noarp;
    message.header.flags = NeighbourFlags::Controller;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(hardware_address(hardware)));
    message
}

fn neighbour(index: u32, ip: Ipv4Addr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)));
    message
}

/// Sets the hardware address of a neighbour for ever: the one computed from `hardware`.
pub(crate) fn set_neighbour(index: u32, ip: Ipv4Addr, hardware: Ipv4Addr) -> Request {
    let mut message = neighbour(index, ip);
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(hardware_address(hardware)));
    Request::new(format!("setting the neighbour {ip}"), RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Removes a neighbour entry, if it exists.
pub(crate) fn delete_neighbour(index: u32, ip: Ipv4Addr) -> Request {
    Request::new(format!("removing the neighbour {ip}"), RouteNetlinkMessage::DelNeighbour(neighbour(index, ip)), 0)
        .ignoring(&[libc::ENOENT])
}

/// Adds an address to an interface, unless it has the address.
pub(crate) fn add_address(index: u32, ip: Ipv4Addr, prefix_len: u8) -> Request {
    let message = AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(ip, prefix_len).build();
    Request::new(format!("adding address {ip}/{prefix_len}"), RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
        .ignoring(&[libc::EEXIST])
}

pub(crate) fn delete_address(index: u32, ip: Ipv4Addr, prefix_len: u8) -> Request {
    let message = AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(ip, prefix_len).build();
    Request::new(format!("removing address {ip}/{prefix_len}"), RouteNetlinkMessage::DelAddress(message), 0)
        .ignoring(&[libc::EADDRNOTAVAIL])
}

/// The target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// No target: senders get the error that the destination is unreachable.
    Unreachable,
    /// An interface, with the source address for packets of the node itself.
    Interface(u32, Option<Ipv4Addr>),
    /// Another node on a shared link.
    Via(Ipv4Addr),
    /// A gateway on this interface, even if no address there matches.
    OnLink(Ipv4Addr, u32),
}

fn route(destination: Ipv4Net, target: Target, metric: u32) -> RouteMessage {
    let builder = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(destination.network(), destination.prefix_len())
        .protocol(RouteProtocol::from(ROUTE_PROTOCOL));
    let builder = if metric == 0 { builder } else { builder.priority(metric) };
    match target {
        Target::Unreachable => builder.kind(RouteType::Unreachable),
        Target::Interface(index, source) => {
            let builder = builder.output_interface(index).scope(RouteScope::Link);
            if let Some(ip) = source { builder.pref_source(ip) } else { builder }
        }
        Target::Via(ip) => builder.gateway(ip),
        Target::OnLink(ip, index) => builder.gateway(ip).output_interface(index).onlink(),
    }
    .build()
}

/// Sets a route and replaces the one with the same destination and metric.
pub(crate) fn set_route(destination: Ipv4Net, target: Target, metric: u32) -> Request {
    let message = RouteNetlinkMessage::NewRoute(route(destination, target, metric));
    Request::new(format!("setting the route to {destination}"), message, NLM_F_CREATE | NLM_F_REPLACE)
}

/// Removes a route of ours, if it exists.
pub(crate) fn delete_route(destination: Ipv4Net, metric: u32) -> Request {
    let mut message = route(destination, Target::Unreachable, metric);
    // Matches every kind and scope.
    message.header.kind = RouteType::Unspec;
    message.header.scope = RouteScope::NoWhere;
    Request::new(format!("removing the route to {destination}"), RouteNetlinkMessage::DelRoute(message), 0).ignoring(&[libc::ESRCH])
}
