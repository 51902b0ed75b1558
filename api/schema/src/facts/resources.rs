//! Facts about resources: devices, storage, scheduling, node classes, leases, events, storage migration.

use super::{Table, field, map, set, table};

pub(super) const TABLES: &[Table] = &[
    table("io.k8s.api.node.v1.Scheduling", &["tolerations"], &[field("nodeSelector").map_atomic()]),
    table("io.k8s.api.resource.v1.AllocatedDeviceStatus", &[], &[map("conditions", &["type"])]),
    table("io.k8s.api.resource.v1.CapacityRequestPolicy", &["validValues"], &[]),
    table("io.k8s.api.resource.v1.Device", &["bindingConditions", "bindingFailureConditions", "consumesCounters", "taints"], &[]),
    table("io.k8s.api.resource.v1.DeviceAllocationConfiguration", &["requests"], &[field("source").one_of(&["FromClaim", "FromClass"])]),
    table("io.k8s.api.resource.v1.DeviceAllocationResult", &["config", "results"], &[]),
    table("io.k8s.api.resource.v1.DeviceAttribute", &["bools", "ints", "strings", "versions"], &[]),
    table("io.k8s.api.resource.v1.DeviceClaim", &["config", "constraints", "requests"], &[]),
    table("io.k8s.api.resource.v1.DeviceClaimConfiguration", &["requests"], &[]),
    table("io.k8s.api.resource.v1.DeviceClassSpec", &["config", "selectors"], &[]),
    table("io.k8s.api.resource.v1.DeviceConstraint", &["requests"], &[]),
    table("io.k8s.api.resource.v1.DeviceRequest", &["firstAvailable"], &[]),
    table(
        "io.k8s.api.resource.v1.DeviceRequestAllocationResult",
        &["bindingConditions", "bindingFailureConditions", "tolerations"],
        &[set("skipNodeOperations"), field("skipNodeOperations[]").one_of(&["*", "NodePrepareResources", "NodeUnprepareResources"])],
    ),
    table(
        "io.k8s.api.resource.v1.DeviceSubRequest",
        &["selectors", "tolerations"],
        &[field("allocationMode").one_of(&["All", "ExactCount"])],
    ),
    table("io.k8s.api.resource.v1.DeviceTaint", &[], &[field("effect").one_of(&["NoExecute", "NoSchedule", "None"])]),
    table("io.k8s.api.resource.v1.DeviceTaintRuleStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    table(
        "io.k8s.api.resource.v1.DeviceToleration",
        &[],
        &[
            field("effect").one_of(&["NoExecute", "NoSchedule", "None"]),
            field("operator").default(r#""Equal""#).one_of(&["Equal", "Exists"]),
        ],
    ),
    table(
        "io.k8s.api.resource.v1.ExactDeviceRequest",
        &["selectors", "tolerations"],
        &[field("allocationMode").one_of(&["All", "ExactCount"])],
    ),
    table("io.k8s.api.resource.v1.NetworkDeviceData", &["ips"], &[]),
    table(
        "io.k8s.api.resource.v1.ResourceClaimStatus",
        &[],
        &[map("devices", &["driver", "device", "pool", "shareID"]), map("reservedFor", &["uid"]).merge_by("uid")],
    ),
    table(
        "io.k8s.api.resource.v1.ResourceSliceSpec",
        &["devices", "sharedCounters"],
        &[set("skipNodeOperations"), field("skipNodeOperations[]").one_of(&["*", "NodePrepareResources", "NodeUnprepareResources"])],
    ),
    table("io.k8s.api.scheduling.v1beta1.CompositePodGroupSchedulingConstraints", &["topology"], &[]),
    table(
        "io.k8s.api.scheduling.v1beta1.CompositePodGroupTemplate",
        &[],
        &[
            map("compositePodGroupTemplates", &["name"]),
            map("podGroupTemplates", &["name"]),
            field("preemptionPolicy").one_of(&["Never", "PreemptLowerPriority"]),
        ],
    ),
    table("io.k8s.api.scheduling.v1beta1.PodGroupSchedulingConstraints", &["topology"], &[]),
    table(
        "io.k8s.api.scheduling.v1beta1.PodGroupSpec",
        &[],
        &[
            field("disruptionMode").default(r#"{"single":{}}"#),
            field("preemptionPolicy").one_of(&["Never", "PreemptLowerPriority"]),
            map("resourceClaims", &["name"]).merge_by("name").retain_keys(),
        ],
    ),
    table(
        "io.k8s.api.scheduling.v1beta1.PodGroupStatus",
        &[],
        &[map("conditions", &["type"]).merge_by("type"), map("resourceClaimStatuses", &["name"]).merge_by("name").retain_keys()],
    ),
    table(
        "io.k8s.api.scheduling.v1beta1.PodGroupTemplate",
        &[],
        &[
            field("preemptionPolicy").one_of(&["Never", "PreemptLowerPriority"]),
            map("resourceClaims", &["name"]).merge_by("name").retain_keys(),
        ],
    ),
    table(
        "io.k8s.api.scheduling.v1beta1.WorkloadSpec",
        &[],
        &[map("compositePodGroupTemplates", &["name"]), map("podGroupTemplates", &["name"])],
    ),
    table("io.k8s.api.storage.v1.CSIDriverSpec", &["tokenRequests"], &[set("volumeLifecycleModes")]),
    table("io.k8s.api.storage.v1.CSINodeDriver", &["topologyKeys"], &[]),
    table("io.k8s.api.storage.v1.CSINodeSpec", &[], &[map("drivers", &["name"]).merge_by("name")]),
    table("io.k8s.api.storage.v1.CSINodeStatus", &[], &[map("storageHealth", &["name"]).merge_by("name")]),
    table(
        "io.k8s.api.storage.v1.StorageClass",
        &["allowedTopologies", "mountOptions"],
        &[field("volumeBindingMode").one_of(&["Immediate", "WaitForFirstConsumer"])],
    ),
    table("io.k8s.api.storage.v1.StorageHealth", &["healthConditions"], &[]),
    table("io.k8s.api.storage.v1.StorageHealthCondition", &[], &[field("status").one_of(&["StorageDegraded", "StorageUnreachable"])]),
    table("io.k8s.api.storagemigration.v1.StorageVersionMigrationStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
