//! Ports of a node that Pods use.

/// A port of the node's that a Pod holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortUse {
    /// Address; `0.0.0.0` is every one.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port.
    pub port: i32,
}

impl PortUse {
    /// Whether both cannot be had at once.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port && self.protocol == other.protocol && (self.ip == other.ip || self.ip == "0.0.0.0" || other.ip == "0.0.0.0")
    }
}
