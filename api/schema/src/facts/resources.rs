//! Facts about resources: devices, storage, scheduling, node classes, leases, events, storage migration.

use super::{Table, field, map, of, set};

pub(super) const TABLES: &[Table] = &[
    of("io.k8s.api.node.v1.Scheduling", &["tolerations"], &[field("nodeSelector").map_atomic()]),
    of("io.k8s.api.resource.v1.AllocatedDeviceStatus", &[], &[map("conditions", &["type"])]),
    of("io.k8s.api.resource.v1.CapacityRequestPolicy", &["validValues"], &[]),
    of("io.k8s.api.resource.v1.Device", &["bindingConditions", "bindingFailureConditions", "consumesCounters", "taints"], &[]),
    of("io.k8s.api.resource.v1.DeviceAllocationConfiguration", &["requests"], &[field("source").one_of(&["FromClaim", "FromClass"])]),
    of("io.k8s.api.resource.v1.DeviceAllocationResult", &["config", "results"], &[]),
    of("io.k8s.api.resource.v1.DeviceAttribute", &["bools", "ints", "strings", "versions"], &[]),
    of("io.k8s.api.resource.v1.DeviceClaim", &["config", "constraints", "requests"], &[]),
    of("io.k8s.api.resource.v1.DeviceClaimConfiguration", &["requests"], &[]),
    of("io.k8s.api.resource.v1.DeviceClassSpec", &["config", "selectors"], &[]),
    of("io.k8s.api.resource.v1.DeviceConstraint", &["requests"], &[]),
    of("io.k8s.api.resource.v1.DeviceRequest", &["firstAvailable"], &[]),
    of(
        "io.k8s.api.resource.v1.DeviceRequestAllocationResult",
        &["bindingConditions", "bindingFailureConditions", "tolerations"],
        &[set("skipNodeOperations"), field("skipNodeOperations[]").one_of(&["*", "NodePrepareResources", "NodeUnprepareResources"])],
    ),
    of("io.k8s.api.resource.v1.DeviceSubRequest", &["selectors", "tolerations"], &[field("allocationMode").one_of(&["All", "ExactCount"])]),
    of("io.k8s.api.resource.v1.DeviceTaint", &[], &[field("effect").one_of(&["NoExecute", "NoSchedule", "None"])]),
    of("io.k8s.api.resource.v1.DeviceTaintRuleStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    of(
        "io.k8s.api.resource.v1.DeviceToleration",
        &[],
        &[
            field("effect").one_of(&["NoExecute", "NoSchedule", "None"]),
            field("operator").default(r#""Equal""#).one_of(&["Equal", "Exists"]),
        ],
    ),
    of(
        "io.k8s.api.resource.v1.ExactDeviceRequest",
        &["selectors", "tolerations"],
        &[field("allocationMode").one_of(&["All", "ExactCount"])],
    ),
    of("io.k8s.api.resource.v1.NetworkDeviceData", &["ips"], &[]),
    of(
        "io.k8s.api.resource.v1.ResourceClaimStatus",
        &[],
        &[map("devices", &["driver", "device", "pool", "shareID"]), map("reservedFor", &["uid"]).merge_by("uid")],
    ),
    of(
        "io.k8s.api.resource.v1.ResourceSliceSpec",
        &["devices", "sharedCounters"],
        &[set("skipNodeOperations"), field("skipNodeOperations[]").one_of(&["*", "NodePrepareResources", "NodeUnprepareResources"])],
    ),
    of("io.k8s.api.storage.v1.CSIDriverSpec", &["tokenRequests"], &[set("volumeLifecycleModes")]),
    of("io.k8s.api.storage.v1.CSINodeDriver", &["topologyKeys"], &[]),
    of("io.k8s.api.storage.v1.CSINodeSpec", &[], &[map("drivers", &["name"]).merge_by("name")]),
    of("io.k8s.api.storage.v1.CSINodeStatus", &[], &[map("storageHealth", &["name"]).merge_by("name")]),
    of(
        "io.k8s.api.storage.v1.StorageClass",
        &["allowedTopologies", "mountOptions"],
        &[field("volumeBindingMode").one_of(&["Immediate", "WaitForFirstConsumer"])],
    ),
    of("io.k8s.api.storage.v1.StorageHealth", &["healthConditions"], &[]),
    of("io.k8s.api.storage.v1.StorageHealthCondition", &[], &[field("status").one_of(&["StorageDegraded", "StorageUnreachable"])]),
    of("io.k8s.api.storagemigration.v1.StorageVersionMigrationStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
