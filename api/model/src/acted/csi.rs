//! The rows of what CSI drivers say about themselves, about nodes and about storage. Skiff runs no driver: the scheduler reads what is
//! reported.

use super::Field;
use super::Part::{self, Scheduler};

const SCHEDULER: &[Part] = &[Scheduler];
const LIMITS: &str = "sched/scheduler/src/plugins/node_volume_limits.rs";
const PROVISION: &str = "sched/scheduler/src/plugins/volume_binding/provision.rs";

pub(super) const DRIVER: &[Field] = &[
    Field::nobody("attachRequired"),
    Field::nobody("fsGroupPolicy"),
    Field::nobody("nodeAllocatableUpdatePeriodSeconds"),
    Field::nobody("podInfoOnMount"),
    Field::by(SCHEDULER, "preventPodSchedulingIfMissing", LIMITS),
    Field::nobody("requiresRepublish"),
    Field::nobody("seLinuxMount"),
    Field::nobody("serviceAccountTokenInSecrets"),
    Field::by(SCHEDULER, "storageCapacity", PROVISION),
    Field::nobody("tokenRequests").although("the API server asks the drivers before it gives nodes tokens"),
    Field::nobody("volumeLifecycleModes"),
];

pub(super) const NODE: &[Field] = &[
    Field::by(SCHEDULER, "drivers[].allocatable", LIMITS),
    Field::by(SCHEDULER, "drivers[].name", LIMITS),
    Field::nobody("drivers[].nodeID"),
    Field::nobody("drivers[].topologyKeys"),
];

pub(super) const STORAGE_CAPACITY: &[Field] = &[
    Field::by(SCHEDULER, "capacity", PROVISION),
    Field::by(SCHEDULER, "maximumVolumeSize", PROVISION),
    Field::by(SCHEDULER, "nodeTopology", PROVISION),
    Field::by(SCHEDULER, "storageClassName", PROVISION),
];

pub(super) const ATTACHMENT: &[Field] = &[
    Field::by(SCHEDULER, "attacher", LIMITS),
    Field::by(SCHEDULER, "nodeName", "sched/framework/src/volumes.rs"),
    Field::nobody("source.inlineVolumeSpec"),
    Field::by(SCHEDULER, "source.persistentVolumeName", LIMITS),
];
