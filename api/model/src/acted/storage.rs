//! The rows of claims, volumes and their classes.

use super::Part::{ApiServer, Controller, NodeAgent, Scheduler};
use super::{Field, Part};

const BINDER: &[Part] = &[Controller("persistentvolume-binder-controller")];
/// The scheduler matches free volumes with claims that wait for their first Pod.
const MATCHED: &[Part] = &[Controller("persistentvolume-binder-controller"), Scheduler];
/// The node limits what the provisioner's volumes have.
const SIZED: &[Part] = &[Controller("persistentvolume-binder-controller"), NodeAgent, Scheduler];
const PLACED: &[Part] = &[NodeAgent, Scheduler];
const PROVISIONER: &[Part] = &[Controller("local-path-provisioner-controller")];
const NODE: &[Part] = &[NodeAgent];
const MATCHING: &str = "sched/controllers/src/volumes/matching.rs";
const CLAIMS: &str = "sched/controllers/src/volumes/binder/claims.rs";
const PROVISIONED: &str = "sched/controllers/src/volumes/local_path/claims.rs";
const MOUNTED: &str = "node/volumes/src/persistent.rs";
/// A Pod has such volumes too.
const DISKS: &str = "the scheduler compares the disks of Pods";
/// Sources of volumes that no node mounts.
const SECRETS: &str = "the API server lets nodes read the Secrets of these volumes";

/// `spec` of PersistentVolumeClaims.
pub(super) const CLAIM: &[Field] = &[
    Field::by(MATCHED, "accessModes", MATCHING),
    Field::by(PROVISIONER, "dataSource", PROVISIONED),
    Field::by(PROVISIONER, "dataSourceRef", PROVISIONED),
    Field::nobody("resources.limits").although("containers have limits too"),
    Field::by(MATCHED, "resources.requests", MATCHING),
    Field::by(MATCHED, "selector", MATCHING),
    Field::by(MATCHED, "storageClassName", "sched/controllers/src/volumes/class.rs"),
    Field::by(BINDER, "volumeAttributesClassName", MATCHING),
    Field::by(MATCHED, "volumeMode", MATCHING),
    Field::by(MATCHED, "volumeName", CLAIMS),
];

/// `spec` of PersistentVolumes.
pub(super) const VOLUME: &[Field] = &[
    Field::by(MATCHED, "accessModes", MATCHING),
    Field::nobody("awsElasticBlockStore").although(DISKS),
    Field::nobody("azureDisk"),
    Field::nobody("azureFile").although(SECRETS),
    Field::by(SIZED, "capacity", MATCHING),
    Field::nobody("cephfs").although(SECRETS),
    Field::nobody("cinder").although(SECRETS),
    Field::by(MATCHED, "claimRef", MATCHING),
    Field::nobody("csi").although("the binder leaves the deletion of such volumes to others"),
    Field::nobody("fc"),
    Field::nobody("flexVolume").although(SECRETS),
    Field::nobody("flocker"),
    Field::nobody("gcePersistentDisk").although(DISKS),
    Field::nobody("glusterfs"),
    Field::by(NODE, "hostPath", MOUNTED),
    Field::nobody("iscsi").although(SECRETS),
    Field::nobody("local.fsType").although("a local volume that is a block device is not mounted"),
    Field::by(NODE, "local.path", MOUNTED),
    Field::by(NODE, "mountOptions", MOUNTED),
    Field::nobody("nfs"),
    Field::by(PLACED, "nodeAffinity", MOUNTED),
    Field::by(BINDER, "persistentVolumeReclaimPolicy", "sched/controllers/src/volumes/object.rs"),
    Field::nobody("photonPersistentDisk"),
    Field::nobody("portworxVolume"),
    Field::nobody("quobyte"),
    Field::nobody("rbd").although(SECRETS),
    Field::nobody("scaleIO").although(SECRETS),
    Field::by(MATCHED, "storageClassName", "sched/controllers/src/volumes/class.rs"),
    Field::nobody("storageos").although(SECRETS),
    Field::by(BINDER, "volumeAttributesClassName", MATCHING),
    Field::by(MATCHED, "volumeMode", MATCHING),
    Field::nobody("vsphereVolume"),
];

/// StorageClasses.
pub(super) const CLASS: &[Field] = &[
    Field::by(&[ApiServer], "allowVolumeExpansion", "api/admission/src/plugins/persistent_volume_claim_resize.rs"),
    Field::by(&[Scheduler], "allowedTopologies", "sched/scheduler/src/plugins/volume_binding/provision.rs"),
    Field::by(PROVISIONER, "mountOptions", PROVISIONED),
    Field::by(PROVISIONER, "parameters", PROVISIONED),
    Field::by(MATCHED, "provisioner", CLAIMS),
    Field::by(PROVISIONER, "reclaimPolicy", PROVISIONED),
    Field::by(MATCHED, "volumeBindingMode", "sched/controllers/src/volumes/class.rs"),
];
