//! Ports of a node that Pods use.

/// A port of the node that a Pod uses (`hostPort`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Address; `0.0.0.0` means every address of the node.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port.
    pub port: i32,
}

impl HostPort {
    /// Whether two Pods on one node cannot use both ports.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port && self.protocol == other.protocol && (self.ip == other.ip || self.ip == "0.0.0.0" || other.ip == "0.0.0.0")
    }
}
