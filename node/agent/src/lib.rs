//! The kubelet's role: it registers the Node, runs the Pods that are bound to it and tells the API
//! server how they are. In come Pods (a watch on `spec.nodeName`); out go calls to runtimes, images,
//! network and volumes, and Pod status. One serial worker a Pod decides what is next
//! (`worker::plan`, pure) from what it knows (`worker::facts`); only its status writer writes Pod
//! status. What runs outlives this process, and a new one takes it up again.
//!
//! It never knows how a runtime works, never binds Pods, and keeps no state of its own but files that
//! carry the Pod's UID.

mod backoff;
pub mod bootstrap;
mod config;
mod error;
mod layout;
mod parts;

pub use config::{Config, Serving};
pub use error::AgentError;
pub use parts::{Images, Networks, Parts};

use tokio_util::sync::CancellationToken;

/// The node agent.
pub struct Agent;

impl Agent {
    /// Runs the node until cancelled; containers go on running then. Returns an error only when the
    /// node cannot begin.
    pub async fn run(_client: kube::Client, _config: Config, _parts: Parts, cancel: CancellationToken) -> Result<(), AgentError> {
        cancel.cancelled().await;
        Ok(())
    }

    /// Removes every container, mount, volume, cgroup and namespace of the node; needs no API server
    /// and may be repeated.
    pub async fn remove_all(_config: &Config, _parts: &Parts) -> Result<(), AgentError> {
        Ok(())
    }
}
