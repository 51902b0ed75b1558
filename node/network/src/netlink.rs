//! rtnetlink without a runtime: several requests go to the kernel in one system call and their answers are read at once, so
//! that adding a Pod takes a few milliseconds only. A socket stays in the network namespace in which its thread was when it was
//! opened. [`message`] has the requests that change something; the dumps are here.

pub(crate) mod message;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use nix::libc;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, State};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteHeader};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket as RawSocket, SocketAddr};

use crate::NetworkError;

/// The number of requests that are sent before their answers are read: the answers must fit the socket's receive buffer.
const BATCH_LEN_MAX: usize = 64;
/// The kernel hands out dumps in pieces of at most this size.
const RECEIVE_BYTES: usize = 64 * 1024;

/// The longest wait for an interface to come up: a kernel before 6.8 acts on carriers once a second.
const OPERATIONAL_TIMEOUT: Duration = Duration::from_secs(2);
const OPERATIONAL_POLL: Duration = Duration::from_millis(1);

/// One request, and how to handle its error.
pub(crate) struct Request {
    doing: String,
    message: RouteNetlinkMessage,
    flags: u16,
    ignored: &'static [i32],
}

impl Request {
    /// `doing` names the action in an error; `flags` are netlink's beyond request and ack.
    pub(crate) fn new(doing: impl Into<String>, message: RouteNetlinkMessage, flags: u16) -> Self {
        Self { doing: doing.into(), message, flags, ignored: &[] }
    }

    /// The error numbers that mean that the wanted state exists already.
    pub(crate) fn ignoring(mut self, errors: &'static [i32]) -> Self {
        self.ignored = errors;
        self
    }
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Largest packet, in bytes.
    pub(crate) mtu: u32,
    /// Index of the bridge that it is a port of.
    pub(crate) controller: Option<u32>,
    /// Whether the kernel passes its packets on.
    pub(crate) is_operational: bool,
}

/// An IPv4 address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) index: u32,
    pub(crate) ip: Ipv4Addr,
    pub(crate) prefix_len: u8,
}

/// An IPv4 route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) destination: Ipv4Net,
    /// The origin of the route (`RTPROT_…`).
    pub(crate) protocol: u8,
    pub(crate) metric: u32,
    pub(crate) oif: Option<u32>,
    pub(crate) via: Option<Ipv4Addr>,
}

/// A netlink socket of the namespace that it was opened in.
pub(crate) struct Socket {
    raw: RawSocket,
    sequence: u32,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Self, NetworkError> {
        let open = || {
            let mut raw = RawSocket::new(NETLINK_ROUTE)?;
            raw.bind_auto()?;
            raw.connect(&SocketAddr::new(0, 0))?;
            raw.set_cap_ack(true)?;
            Ok(raw)
        };
        let raw = open().map_err(NetworkError::kernel("opening a netlink socket"))?;
        Ok(Self { raw, sequence: 0 })
    }

    /// Performs all requests in order, each even if requests before it were rejected; the error is the first one.
    pub(crate) fn apply(&mut self, requests: Vec<Request>) -> Result<(), NetworkError> {
        self.apply_each(requests)?.into_iter().collect()
    }

    /// As [`Socket::apply`], with the outcome of every request.
    pub(crate) fn apply_each(&mut self, requests: Vec<Request>) -> Result<Vec<Result<(), NetworkError>>, NetworkError> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let batch: Vec<Request> = requests.by_ref().take(BATCH_LEN_MAX).collect();
            outcomes.extend(self.exchange(batch).map_err(NetworkError::kernel("talking netlink"))?);
        }
        Ok(outcomes)
    }

    fn exchange(&mut self, batch: Vec<Request>) -> io::Result<Vec<Result<(), NetworkError>>> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        let mut pending = Vec::with_capacity(batch.len());
        for request in batch {
            self.write(&mut bytes, request.message, NLM_F_REQUEST | NLM_F_ACK | request.flags);
            pending.push((request.doing, request.ignored));
        }
        self.raw.send(&bytes, 0)?;
        let mut answers: Vec<Option<i32>> = vec![None; pending.len()];
        let mut left = pending.len();
        while left > 0 {
            self.receive(|header, payload| {
                let NetlinkPayload::Error(error) = payload else { return Ok(()) };
                let at = usize::try_from(header.sequence_number.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let Some(slot @ None) = answers.get_mut(at) {
                    *slot = Some(error.code.map_or(0, |code| code.get().saturating_neg()));
                    left = left.saturating_sub(1);
                }
                Ok(())
            })?;
        }
        let outcome = |((doing, ignored), answer): ((String, &[i32]), Option<i32>)| match answer {
            Some(errno) if errno != 0 && !ignored.contains(&errno) => {
                Err(NetworkError::Kernel { doing, source: io::Error::from_raw_os_error(errno) })
            }
            _ => Ok(()),
        };
        Ok(pending.into_iter().zip(answers).map(outcome).collect())
    }

    fn write(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let from = bytes.len();
        // Every message starts on a multiple of four bytes.
        bytes.resize(from + message.buffer_len().next_multiple_of(4), 0);
        if let Some(room) = bytes.get_mut(from..) {
            message.serialize(room);
        }
    }

    /// Reads one datagram and passes its messages on. A message of a foreign interface that the packet crate cannot parse is
    /// skipped: it cannot be about an interface of ours.
    fn receive(&self, mut each: impl FnMut(&NetlinkHeader, NetlinkPayload<RouteNetlinkMessage>) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(RECEIVE_BYTES);
        self.raw.recv(&mut buffer, 0)?;
        let mut rest = buffer.as_slice();
        while let Some(length) = rest.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b)) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let Some(one) = rest.get(..length).filter(|_| length >= 16) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "cut-off netlink message"));
            };
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(one) {
                Ok(message) => each(&message.header, message.payload)?,
                Err(error) => tracing::debug!(%error, "netlink message passed over"),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }

    fn dump<T>(
        &mut self,
        what: &str,
        message: RouteNetlinkMessage,
        mut pick: impl FnMut(RouteNetlinkMessage) -> Option<T>,
    ) -> Result<Vec<T>, NetworkError> {
        let mut bytes = Vec::new();
        self.write(&mut bytes, message, NLM_F_REQUEST | NLM_F_DUMP);
        let failed = || NetworkError::kernel(format!("listing {what}"));
        self.raw.send(&bytes, 0).map_err(failed())?;
        let (mut found, mut done) = (Vec::new(), false);
        while !done {
            self.receive(|_, payload| {
                match payload {
                    NetlinkPayload::Done(_) => done = true,
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(message) => found.extend(pick(message)),
                    _ => {}
                }
                Ok(())
            })
            .map_err(failed())?;
        }
        Ok(found)
    }

    /// Every interface.
    pub(crate) fn links(&mut self) -> Result<Vec<Link>, NetworkError> {
        self.dump("interfaces", message::all_links(), read_link)
    }

    /// The interface of that name, if it exists.
    pub(crate) fn link(&mut self, name: &str) -> Result<Option<Link>, NetworkError> {
        let failed = || NetworkError::kernel(format!("finding interface {name}"));
        let mut bytes = Vec::new();
        self.write(&mut bytes, message::one_link(name), NLM_F_REQUEST);
        self.raw.send(&bytes, 0).map_err(failed())?;
        let mut found = None;
        let received = self.receive(|_, payload| {
            match payload {
                NetlinkPayload::Error(error) if error.raw_code() != 0 => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(message) => found = read_link(message),
                _ => {}
            }
            Ok(())
        });
        match received {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            other => other.map(|()| found).map_err(failed()),
        }
    }

    /// Waits until the kernel passes the packets of an interface on. It does so some time after both ends of a cable are up,
    /// and drops them before. Since Linux 6.8 the query itself makes the kernel act on a new carrier; an older kernel acts
    /// within a second. An interface that stays down is logged: it may come up later.
    #[expect(clippy::disallowed_methods, reason = "a wait for a condition of the kernel, with a deadline")]
    pub(crate) fn await_operational(&mut self, name: &str) -> Result<(), NetworkError> {
        let begun = Instant::now();
        loop {
            match self.link(name)? {
                Some(link) if !link.is_operational && begun.elapsed() < OPERATIONAL_TIMEOUT => std::thread::sleep(OPERATIONAL_POLL),
                Some(link) if !link.is_operational => {
                    tracing::warn!(interface = name, "the interface does not come up; its first packets are lost");
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Every IPv4 address.
    pub(crate) fn addresses(&mut self) -> Result<Vec<Address>, NetworkError> {
        self.dump("addresses", message::all_addresses(), |message| {
            let RouteNetlinkMessage::NewAddress(address) = message else { return None };
            // The own address is `Local`; on a point-to-point link `Address` is the other end.
            let local = address.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(IpAddr::V4(ip)) => Some(*ip),
                _ => None,
            })?;
            Some(Address { index: address.header.index, ip: local, prefix_len: address.header.prefix_len })
        })
    }

    /// Every IPv4 route of the main table.
    pub(crate) fn routes(&mut self) -> Result<Vec<Route>, NetworkError> {
        self.dump("routes", message::all_routes(), |message| {
            let RouteNetlinkMessage::NewRoute(route) = message else { return None };
            if route.header.table != RouteHeader::RT_TABLE_MAIN {
                return None;
            }
            let len = route.header.destination_prefix_length;
            let mut found = Route {
                destination: Ipv4Net::new(Ipv4Addr::UNSPECIFIED, len).ok()?,
                protocol: route.header.protocol.into(),
                metric: 0,
                oif: None,
                via: None,
            };
            for attribute in route.attributes {
                match attribute {
                    RouteAttribute::Destination(RouteAddress::Inet(ip)) => found.destination = Ipv4Net::new(ip, len).ok()?,
                    RouteAttribute::Priority(metric) => found.metric = metric,
                    RouteAttribute::Oif(index) => found.oif = Some(index),
                    RouteAttribute::Gateway(RouteAddress::Inet(ip)) => found.via = Some(ip),
                    _ => {}
                }
            }
            Some(found)
        })
    }
}

fn read_link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let mut found = Link { index: link.header.index, name: String::new(), mtu: 0, controller: None, is_operational: false };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name = name,
            LinkAttribute::Mtu(mtu) => found.mtu = mtu,
            LinkAttribute::Controller(index) => found.controller = Some(index),
            LinkAttribute::OperState(state) => found.is_operational = matches!(state, State::Up | State::Unknown),
            _ => {}
        }
    }
    Some(found)
}
