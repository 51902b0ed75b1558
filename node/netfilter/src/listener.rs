//! A socket of the node's own programs, as the rules must respect it.

use std::net::SocketAddrV4;

use crate::Protocol;

/// A socket of the node that accepts connections or datagrams from any peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Transport.
    pub protocol: Protocol,
    /// Address and port; the unspecified address stands for every address of the node.
    pub at: SocketAddrV4,
}
