//! The errors that end the agent, and how errors become text for users.

use std::path::PathBuf;

pub(crate) use api_client::error::chain;
use ipnet::Ipv4Net;
use thiserror::Error;

/// An error that ends the agent, or prevents its start.
#[derive(Debug, Error)]
pub enum AgentError {
    /// A runtime lacks something of the machine; the text says what to install.
    #[error("runtime {handler}: {message}")]
    Runtime {
        /// Its handler.
        handler: &'static str,
        /// What is missing.
        message: String,
    },
    /// The machine's cgroups cannot be used; the text says what is missing.
    #[error("cgroups: {0}")]
    Cgroups(String),
    /// The CPU manager cannot begin; the text says what to do.
    #[error("CPU manager: {0}")]
    CpuManager(String),
    /// The devices of containers cannot be read; the text says what to do.
    #[error("device plugins: {0}")]
    DevicePlugins(String),
    /// More is reserved than the machine has; upstream's words.
    #[error(
        "invalid Node Allocatable configuration. Resource {resource:?} has a reservation of {reserved} but capacity of {capacity}. \
         Expected capacity >= reservation."
    )]
    Reservation {
        /// The resource.
        resource: &'static str,
        /// Thousandths of a CPU, or bytes.
        reserved: i64,
        /// In the same unit.
        capacity: i64,
    },
    /// The node's Pod range has fewer addresses than the node takes Pods; the text says what to set.
    #[error(
        "--max-pods {pods_max} is more than the {addresses} addresses of the node's Pod range {range}: \
         set --max-pods={addresses}{wider}"
    )]
    MaxPods {
        /// The highest number of Pods.
        pods_max: u32,
        /// The addresses of the range that Pods may get.
        addresses: u32,
        /// The node's range.
        range: Ipv4Net,
        /// How the node gets a range that is wide enough; empty if no range is.
        wider: String,
    },
    /// A file or directory of the node.
    #[error("{doing} {}", .path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The run directory belongs to another node.
    #[error("{} holds containers of the node of {owner}; give this node another --run-dir", .path.display())]
    RunDirTaken {
        /// The directory.
        path: PathBuf,
        /// The other node's data directory.
        owner: String,
    },
    /// The server's port cannot be used.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The serving certificate or key cannot be used.
    #[error("the node server's certificate cannot be used: {0}")]
    Certificate(String),
    /// A part of the node could not be cleaned.
    #[error("removing what the node left: {0}")]
    Remove(String),
    /// The files of static Pods could not be read, because the reading panicked.
    #[error("reading the manifests of static Pods was interrupted")]
    Interrupted,
    /// A background task failed: no task looks after the node any more.
    #[error(transparent)]
    Task(#[from] api_tasks::TaskFailure),
}
