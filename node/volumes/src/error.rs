//! Why a volume could not be set up. `kubectl describe` shows the text after upstream's
//! `MountVolume.SetUp failed for volume "x" : `.

use std::io;
use std::path::{Path, PathBuf};

use runtimes_host::Interrupted;
use thiserror::Error;

use crate::source::SourceError;

/// A failed volume operation.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// An `emptyDir` of another medium than the known ones; upstream's words.
    #[error("unknown storage medium {0:?}")]
    Medium(String),
    /// An object that the volume shows is missing or could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A volume kind that this node does not have.
    #[error("no volume plugin matched name: {0}")]
    Unsupported(String),
    /// A key that an `items` list names is not in the object; upstream's words.
    #[error("references non-existent {what} key: {key}")]
    NoSuchKey {
        /// `config` or `secret`.
        what: &'static str,
        /// The key.
        key: String,
    },
    /// A path in an `items` list leaves the volume.
    #[error("invalid path {0:?}: must be relative and not contain '..'")]
    BadPath(String),
    /// A PersistentVolume's path that the rules of volumes reject.
    #[error("invalid path {0:?}: must be absolute and not contain '..'")]
    BadVolumePath(String),
    /// A `fieldRef` or `resourceFieldRef` that has no value.
    #[error("{0}")]
    BadField(String),
    /// The claim of a volume, or its PersistentVolume, cannot be used; upstream's words.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: \
         error processing PVC {namespace}/{claim}: {fault}"
    )]
    Claim {
        /// The volume of the Pod.
        volume: String,
        /// The claim's namespace.
        namespace: String,
        /// The claim.
        claim: String,
        /// What is wrong.
        fault: Box<ClaimFault>,
    },
    /// The PersistentVolume belongs to other nodes; upstream's words.
    #[error("MountVolume.NodeAffinity check failed for volume {0:?} : no matching NodeSelectorTerms")]
    NodeAffinity(String),
    /// The PersistentVolume has mount options, and nothing is mounted; upstream's words.
    #[error("MountVolume.MountOptionSupport check failed for volume {volume:?} : Mount options are not supported for volume type {kind:?}")]
    MountOptions {
        /// The PersistentVolume.
        volume: String,
        /// Upstream's name of the plugin.
        kind: &'static str,
    },
    /// The path of a local volume does not exist; upstream's words.
    #[error("path {:?} does not exist", .0)]
    NoLocalPath(PathBuf),
    /// The path of a local volume with `volumeMode: Block` is something else.
    #[error("{} is not a block device", .0.display())]
    NotABlockDevice(PathBuf),
    /// The path of a local volume is a file; upstream's words.
    #[error("only directory and block device are supported")]
    LocalType,
    /// A volume of Skiff's provisioner with another path than that of its directory.
    #[error("{} is not the directory of PersistentVolume {volume:?} on this node", .path.display())]
    ForeignPath {
        /// The PersistentVolume.
        volume: String,
        /// Its path.
        path: PathBuf,
    },
    /// The directory of a volume was used and is not there any more; upstream's words come first.
    #[error("path {:?} does not exist, although the volume was used: its disk may not be mounted", .0)]
    Lost(PathBuf),
    /// The removal of a directory, or an earlier removal, takes longer than the requester waits.
    #[error("{} is not removed yet", .0.display())]
    NotRemovedYet(PathBuf),
    /// A directory that is to be removed belongs to a Pod of the node.
    #[error("{} is used by a Pod of this node", .0.display())]
    InUse(PathBuf),
    /// A Pod is being connected to a directory, or what is in it is being counted.
    #[error("{} is being prepared", .0.display())]
    Busy(PathBuf),
    /// Not the name of a volume that the provisioner made.
    #[error("{0:?} is not a volume of this node")]
    NotAVolume(String),
    /// A hostPath of another type than the requested one; upstream's words.
    #[error("hostPath type check failed: {} is not a {wanted}", .path.display())]
    HostPathType {
        /// The path.
        path: PathBuf,
        /// The requested type: `directory`, `file`, `socket file`, …
        wanted: &'static str,
    },
    /// A mount of a volume that the Pod does not have.
    #[error("container {container:?} mounts volume {volume:?}, which the Pod does not have")]
    NoSuchVolume {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// A subPath that leaves its volume, through `..` or a symbolic link.
    #[error("failed to prepare subPath for volumeMount: {0:?} is outside of the volume")]
    Escapes(PathBuf),
    /// A `subPathExpr` names a variable that the container does not have.
    #[error("failed to expand subPath for volumeMount: missing value for {0:?}")]
    UnknownVariable(String),
    /// A tree in which each entry is to be changed has too many levels.
    #[error("{doing} {}: it has more than {levels_max} levels of directories", .path.display())]
    TooDeep {
        /// What was attempted.
        doing: &'static str,
        /// The top of the tree.
        path: PathBuf,
        /// The limit.
        levels_max: u32,
    },
    /// The system returned an error.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Every number that was tried for the project of a directory is in use.
    #[error("no number is free for the quota project of {}", .0.display())]
    NoProject(PathBuf),
    /// The capacity of a PersistentVolume is no amount of bytes.
    #[error("PersistentVolume {volume:?} has no valid capacity")]
    Capacity {
        /// The PersistentVolume.
        volume: String,
    },
    /// Something is mounted below a directory that was to be removed.
    #[error("{} is still mounted", .0.display())]
    StillMounted(PathBuf),
    /// No Pod UID.
    #[error("{0:?} is not a Pod UID")]
    NotAUid(String),
    /// The process is ending.
    #[error("interrupted")]
    Interrupted,
    /// The failure of one volume; upstream's words.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    Volume {
        /// The volume.
        volume: String,
        /// The failure.
        source: Box<VolumeError>,
    },
}

impl VolumeError {
    /// For `map_err`: adds what was attempted on which path.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn in_volume(self, volume: &str) -> Self {
        match self {
            // They say already which volume it is.
            Self::Claim { .. } | Self::NodeAffinity(_) | Self::MountOptions { .. } => self,
            other => Self::Volume { volume: volume.to_owned(), source: Box::new(other) },
        }
    }
}

/// Why a claim cannot be used; upstream's words.
#[derive(Debug, Error)]
pub enum ClaimFault {
    /// The claim could not be read.
    #[error("failed to fetch PVC from API server: {0}")]
    Fetch(SourceError),
    /// The claim is being deleted.
    #[error("PVC is being deleted")]
    Deleting,
    /// The claim has no volume yet.
    #[error("PVC is not bound")]
    NotBound,
    /// The claim says that it is bound and names no volume.
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoVolumeName,
    /// The claim of an ephemeral volume belongs to somebody else.
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner {
        /// Namespace and name of the claim.
        claim: String,
        /// Namespace and name of the Pod.
        pod: String,
    },
    /// The PersistentVolume could not be read.
    #[error("failed to fetch PV {volume} from API server: {source}")]
    FetchVolume {
        /// The PersistentVolume.
        volume: String,
        /// The answer.
        source: SourceError,
    },
    /// The PersistentVolume has no claim.
    #[error("found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim")]
    NoReference(String),
    /// The PersistentVolume has another claim.
    #[error("found PV object {volume} but its pv.Spec.ClaimRef.UID {refers_to} does not point to claim.UID {claim}")]
    OtherClaim {
        /// The PersistentVolume.
        volume: String,
        /// The UID that it has.
        refers_to: String,
        /// The UID of the claim.
        claim: String,
    },
    /// The PersistentVolume is a device and a container mounts it, or the reverse.
    #[error("volume {volume} has volumeMode {mode}, but is specified in {field}")]
    Mode {
        /// The volume of the Pod.
        volume: String,
        /// The mode.
        mode: &'static str,
        /// The field of the container.
        field: &'static str,
    },
}

impl From<Interrupted> for VolumeError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
