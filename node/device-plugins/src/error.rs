//! The errors of device plugins. Their words are upstream's where clients see them: in the answers to plugins, and in the status of Pods.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::wire;

/// The file of allocations cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error("reading {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It holds something else. Without it, devices that containers use would count as free.
    #[error(
        "the device plugin allocations in {} cannot be read: {why}; please drain this node and delete the file before starting it again",
        .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The directory of the device plugins cannot be used now.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The system's error.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any user who may write there could offer devices to the node, and get the devices of Pods.
    #[error("{} must belong to the user of this process, and no other user may write it", .0.display())]
    Writable(PathBuf),
    /// A node has one owner of the directory.
    #[error("another agent uses {}; give each agent of the machine its own --device-plugin-dir", .0.display())]
    Taken(PathBuf),
    /// It is a kubelet's.
    #[error("another program, such as a kubelet, listens on {}", .0.display())]
    Listening(PathBuf),
}

impl DirectoryError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

/// A call of a plugin failed, in the words of gRPC's library for Go.
#[derive(Debug, Error)]
#[error("rpc error: code = {code} desc = {message}")]
pub struct CallError {
    code: String,
    message: String,
}

impl From<tonic::Status> for CallError {
    fn from(status: tonic::Status) -> Self {
        let code = match status.code() {
            tonic::Code::Ok => "OK".to_owned(),
            tonic::Code::Cancelled => "Canceled".to_owned(),
            code => format!("{code:?}"),
        };
        Self { code, message: status.message().to_owned() }
    }
}

/// A registration is refused.
#[derive(Debug, Error)]
pub(crate) enum RegisterError {
    #[error("requested API version {0:?} is not supported by kubelet. Supported version is [{version:?}]", version = wire::VERSION)]
    Version(String),
    #[error("the ResourceName {0:?} is invalid")]
    ResourceName(String),
    #[error("the endpoint {0:?} is invalid: it must be the name of a socket in the directory of the device plugins")]
    Endpoint(String),
    #[error("failed to dial device plugin: {0}")]
    Dial(String),
    /// Nobody listens there, or not yet.
    #[error("failed to dial device plugin: {0}")]
    Absent(String),
    #[error("failed to get device plugin options: {0}")]
    Options(CallError),
    #[error("the node has {0} resources of device plugins already")]
    TooMany(usize),
}

/// Devices are not allocated.
#[derive(Debug, Error)]
pub enum AllocateError {
    /// The resource has no plugin.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// The plugin has not registered again, or all its devices are broken.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoneHealthy(String),
    /// Others have them.
    #[error("requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}")]
    TooFew {
        /// The resource.
        resource: String,
        /// Devices that are missing.
        requested: usize,
        /// Devices that nobody has.
        available: usize,
    },
    /// A Pod cannot change.
    #[error("pod {pod:?} container {container:?} changed request for resource {resource:?} from {before} to {after}")]
    Changed {
        /// The Pod's UID.
        pod: String,
        /// The container.
        container: String,
        /// The resource.
        resource: String,
        /// How many devices it has.
        before: usize,
        /// How many it requests.
        after: u64,
    },
    /// The plugin has gone.
    #[error("endpoint {0} has been stopped")]
    Stopped(String),
    /// The plugin failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The plugin answered with something that a container cannot get.
    #[error("the device plugin of {resource} answered with {what}")]
    Response {
        /// The resource.
        resource: String,
        /// What it was.
        what: String,
    },
    /// The allocation would be lost with the process.
    #[error("failed to write the allocations of devices: {0}")]
    NotStored(String),
}

/// The devices of a container are not ready.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// They were not allocated at the Pod's admission, and are not now.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The plugin failed.
    #[error("device plugin PreStartContainer rpc failed with err: {0}")]
    PreStart(CallError),
    /// The plugin has gone.
    #[error("device plugin PreStartContainer rpc failed with err: endpoint {0} has been stopped")]
    Stopped(String),
}
