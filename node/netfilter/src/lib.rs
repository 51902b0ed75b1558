//! The kernel's packet filter, for every crate that writes rules: `nft` applies a script in one transaction ([`apply`]),
//! `conntrack` deletes flows ([`Flow::forget`]). Rules are written in nft's own language, which people can read and snapshots
//! show; nft's JSON form cannot express everything in the versions of Debian and Ubuntu.
//!
//! Every function blocks, and works in the network namespace of the calling thread.

mod flow;
mod listener;
mod nft;
mod tool;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use flow::Flow;
pub use listener::Listener;
pub use nft::{apply, counters, has_table};
pub use tool::NetfilterError;

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Reads the API's spelling; absent is TCP.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    /// As nftables and `/etc/protocols` write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
