//! Why the node's network could not be set up.

use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use node_netfilter::NetfilterError;
use runtimes_host::Interrupted;
use thiserror::Error;

/// A failed operation of the node's network.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// The configuration cannot work; the text names the flag.
    #[error("{0}")]
    Invalid(String),
    /// A kernel feature or a tool is missing; the text says what to install.
    #[error("{0}")]
    Missing(String),
    /// Another cluster, or the machine itself, already uses a range here; the text names each range, its user, and the flag
    /// that changes it.
    #[error("{0}")]
    InUse(String),
    /// A Pod was added before the node had its Pod range.
    #[error("the node has no Pod range yet")]
    NoPodCidr,
    /// A Pod was added while its node is about to get another Pod range.
    #[error("the node is about to get another Pod range than {0}")]
    Withdrawn(Ipv4Net),
    /// An earlier process had set another range, which Pods still need.
    #[error("{pods} Pods have addresses of the Pod range {previous}, which the node had before {next}")]
    PreviousRange {
        /// The range that the network has.
        previous: Ipv4Net,
        /// The range that was to be set.
        next: Ipv4Net,
        /// The number of Pods that it would cut off.
        pods: usize,
    },
    /// Every address of the node's Pod range is in use.
    #[error("no free address in the node's Pod range {0}")]
    Exhausted(Ipv4Net),
    /// Another Pod of this node has the host port.
    #[error("host port {port}/{protocol} is already taken by another Pod on this node")]
    HostPortTaken {
        /// The port.
        port: u16,
        /// Its transport.
        protocol: &'static str,
    },
    /// A program of the node has the host port.
    #[error("host port {port}/{protocol} is in use: a program of the node listens at {at}")]
    HostPortInUse {
        /// The port.
        port: u16,
        /// Its transport.
        protocol: &'static str,
        /// The address of the listener; the unspecified address stands for every address.
        at: Ipv4Addr,
    },
    /// A host port was to be on an address of the cluster.
    #[error("host IP {ip} is not the node's own: it lies in the range of {what} addresses {range}")]
    HostIpRefused {
        /// The address.
        ip: Ipv4Addr,
        /// Whose addresses these are.
        what: &'static str,
        /// Their range.
        range: Ipv4Net,
    },
    /// Routes to some nodes could not be set; the others are.
    #[error("no route to the Pods of {0:?}")]
    Routes(Vec<(Ipv4Net, Ipv4Addr, String)>),
    /// The kernel rejected a change of interfaces, addresses or routes.
    #[error("{doing}")]
    Kernel {
        /// What was attempted, and on what.
        doing: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The rules could not be written.
    #[error("writing nftables rules failed: {0}")]
    Rules(String),
    /// An operation on a file failed.
    #[error("{doing}")]
    Io {
        /// What was attempted, and on which path.
        doing: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file of the state directory does not have the content that this program writes there.
    #[error("{path} is damaged: {message}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

impl From<NetfilterError> for NetworkError {
    fn from(error: NetfilterError) -> Self {
        match error {
            NetfilterError::Missing(text) => Self::Missing(text.to_owned()),
            NetfilterError::Rules(said) => Self::Rules(said),
            NetfilterError::Tool { source, .. } => Self::Rules(source.to_string()),
        }
    }
}

impl NetworkError {
    /// For `map_err` on file operations: adds what was attempted.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// For `map_err` on kernel requests: adds what was attempted.
    pub(crate) fn kernel(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Kernel { doing, source }
    }
}

impl From<Interrupted> for NetworkError {
    fn from(interrupted: Interrupted) -> Self {
        Self::io("running a blocking call")(interrupted.into())
    }
}
