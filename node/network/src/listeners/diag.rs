//! Listening TCP sockets, by the kernel's socket diagnostics (`sock_diag`). `/proc/net/tcp` has them too, but for each read of it
//! the kernel walks its whole table of connections: 7 ms on a machine with 24 GiB of memory, however few there are.

use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

/// Where TCP sockets listen in the calling thread's network namespace; none where the kernel has no diagnostics of TCP.
pub(super) fn listening() -> io::Result<Option<Vec<SocketAddr>>> {
    let families = [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())];
    let mut all = Vec::new();
    for (family, socket_id) in families {
        match dump(family, socket_id) {
            Ok(found) => all.extend(found),
            // The module is missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(all))
}

/// The listening sockets of one family.
fn dump(family: u8, socket_id: SocketId) -> io::Result<Vec<SocketAddr>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
    let (extensions, states) = (ExtensionFlags::empty(), StateFlags::LISTEN);
    let request = InetRequest { family, protocol: IPPROTO_TCP, extensions, states, socket_id };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(io::Error::other)?;
            let len = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            rest = rest.get(len.next_multiple_of(4).max(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    let id = &response.header.socket_id;
                    found.push(SocketAddr::new(id.source_address, id.source_port));
                }
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listening_sockets_are_found_and_connections_are_not() {
        let mut listeners = Vec::from(["127.0.0.1:0", "0.0.0.0:0"].map(|at| TcpListener::bind(at).expect("a socket")));
        // A machine may be without IPv6.
        listeners.extend(TcpListener::bind("[::1]:0"));
        let wanted: BTreeSet<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let client = std::net::TcpStream::connect(listeners[0].local_addr().expect("an address")).expect("connected");
        let found: BTreeSet<SocketAddr> = listening().expect("read").expect("diagnostics").into_iter().collect();
        assert!(wanted.is_subset(&found), "{wanted:?} in {found:?}");
        assert!(!found.contains(&client.local_addr().expect("an address")));
        let mut in_table = super::super::tcp_of_tables().expect("read");
        // Other tests of this process open and close sockets meanwhile.
        in_table.retain(|at| wanted.contains(at));
        assert_eq!(in_table.into_iter().collect::<BTreeSet<_>>(), wanted, "the slow way finds the same");
    }
}
