//! Why devices cannot be allocated, with upstream's messages.

use api_cel::device::{MatchError, SelectorError};
use sched_framework::DeviceId;

/// The highest number of devices of a claim: upstream's `AllocationResultsMaxSize`.
pub(crate) const DEVICES_MAX: usize = 32;

/// Something is wrong with a claim, a class or a slice, or the search takes too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllocationError {
    /// A request cannot be fulfilled.
    #[error("claim {claim}, request {request}{reason}")]
    Request { claim: String, request: String, reason: RequestError },
    /// The requests of a claim are for too many devices.
    #[error("claim {claim}: number of requested devices {devices} exceeds the claim limit of {DEVICES_MAX}")]
    TooManyDevices { claim: String, devices: usize },
    /// A constraint is of an unknown kind.
    #[error("claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")]
    Constraint { claim: String, index: usize },
    /// A selector does not compile. It was stored by a server that knew more.
    #[error("{owner}: selector #{index}: CEL compile error: {error}")]
    Compile { owner: String, index: usize, error: Box<SelectorError> },
    /// The evaluation of a selector failed.
    #[error("{owner}: selector #{index} on device {device}: CEL runtime error: {error}")]
    Runtime { owner: String, index: usize, device: DeviceId, error: Box<MatchError> },
    /// The node selector of a slice has several terms.
    #[error("create NodeSelector for claim {claim}: unsupported ResourceSlice.NodeSelector with {terms} terms")]
    NodeSelector { claim: String, terms: usize },
    /// A pool has two devices of one name, or counters that do not exist.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The search took more steps than one may take.
    #[error("timed out trying to allocate devices")]
    TimedOut,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(": capacity {capacity:?} requested both as {:?} and as {:?}", names.0, names.1)]
    CapacityTwice { capacity: String, names: Box<(String, String)> },
    #[error(": the requested amount of capacity {0:?} is no quantity")]
    CapacityAmount(String),
    #[error(", device {device}: capacity {capacity:?}: capacity value is negative")]
    NegativeCapacity { device: Box<DeviceId>, capacity: String },
    #[error(": has derived attributes, but the DRADerivedAttributes feature is disabled")]
    DerivedAttributes,
    #[error(": unknown request type")]
    Unknown,
    #[error(": missing device class name (unsupported request type?)")]
    NoClassName,
    #[error(": could not retrieve device class {0}: deviceclass.resource.k8s.io \"{0}\" not found")]
    NoClass(String),
    #[error(": unsupported count mode {0}")]
    Mode(String),
    #[error(", selector #{0}: CEL expression empty (unsupported selector type?)")]
    Selector(usize),
    #[error(": asks for all devices, but resource pool {0} is currently being updated")]
    Incomplete(String),
    #[error(": asks for all devices, but resource pool {0} is currently invalid")]
    Invalid(String),
    #[error(": cannot add device {0} because a claim constraint would not be satisfied")]
    Unconstrained(DeviceId),
}

impl AllocationError {
    /// Whether the error concerns the node alone: the Pod may fit on another one.
    pub fn concerns_node(&self) -> bool {
        matches!(self, Self::InvalidPools | Self::TimedOut)
    }
}
