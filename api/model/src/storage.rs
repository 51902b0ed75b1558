//! Upstream's annotations of claims, volumes and StorageClasses: the contract between the controllers, the scheduler, provisioners and
//! nodes.

/// On a claim: the binding was complete once.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: a controller or the scheduler chose the other side, not a user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: the provisioner that made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: the node that the scheduler chose for the first Pod.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: the provisioner that is to make a volume, in its two names.
pub const STORAGE_PROVISIONERS: [&str; 2] = ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
/// On a claim or a volume: its class; older than the field, and stronger.
pub const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a StorageClass: whether claims without a class get it.
pub const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
