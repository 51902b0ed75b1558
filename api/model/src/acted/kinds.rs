//! The rows of all other kinds: Services and related kinds, storage, access, policies, the API itself.

use super::Part::{ApiServer, Clients, Controller, Dns, Proxy, Scheduler};
use super::workloads::CLIENTS;
use super::{Field, Fields, Part, Row, csi, storage};

const SERVER: &[Part] = &[ApiServer];
const SLICES: &[Part] = &[Controller("endpointslice-controller"), Controller("endpoints-controller")];
const MIRRORING: &[Part] = &[Controller("endpointslice-mirroring-controller")];
const MIRRORED: &str = "sched/controllers/src/endpointslice_mirroring/plan.rs";
const READS_SLICES: &[Part] = &[Proxy, Dns];

/// A kind on which only the API server acts.
macro_rules! served {
    ($group:literal, $kind:literal, $source:literal) => {
        Row::new($group, $kind, &[Fields { prefix: "", rows: &[Field::by(SERVER, "", $source)] }])
    };
}

/// In the order of the documentation.
pub(super) const ROWS: &[Row] = &[
    Row::new("", "Service", &[Fields { prefix: "spec", rows: SERVICE }]),
    Row::new("discovery.k8s.io", "EndpointSlice", &[Fields { prefix: "", rows: ENDPOINT_SLICE }]),
    Row::new("", "Endpoints", &[Fields { prefix: "", rows: &[Field::by(MIRRORING, "subsets", MIRRORED)] }]),
    Row::new("networking.k8s.io", "Ingress", CLIENTS),
    Row::new("networking.k8s.io", "IngressClass", CLIENTS),
    Row::nobody("networking.k8s.io", "NetworkPolicy", "NetworkPolicies are stored but nothing enforces them yet"),
    Row::nobody("networking.k8s.io", "ServiceCIDR", "ServiceCIDRs are stored but nothing acts on them yet"),
    Row::nobody("networking.k8s.io", "IPAddress", "IPAddresses are stored but nothing acts on them yet"),
    Row::new("", "PersistentVolumeClaim", &[Fields { prefix: "spec", rows: storage::CLAIM }]),
    Row::new("", "PersistentVolume", &[Fields { prefix: "spec", rows: storage::VOLUME }]),
    Row::new("storage.k8s.io", "StorageClass", &[Fields { prefix: "", rows: storage::CLASS }]),
    Row::new("storage.k8s.io", "CSIDriver", &[Fields { prefix: "spec", rows: csi::DRIVER }]),
    Row::new("storage.k8s.io", "CSINode", &[Fields { prefix: "spec", rows: csi::NODE }]),
    Row::new("storage.k8s.io", "CSIStorageCapacity", &[Fields { prefix: "", rows: csi::STORAGE_CAPACITY }]),
    Row::new("storage.k8s.io", "VolumeAttachment", &[Fields { prefix: "spec", rows: csi::ATTACHMENT }]),
    Row::nobody("storage.k8s.io", "VolumeAttributesClass", "VolumeAttributesClasses are stored but nothing acts on them yet"),
    Row::new("resource.k8s.io", "DeviceClass", &[Fields { prefix: "spec", rows: DEVICE_CLASS }]),
    Row::new(
        "resource.k8s.io",
        "DeviceTaintRule",
        &[Fields { prefix: "spec", rows: DEVICE_TAINT_RULE }, Fields { prefix: "spec.taint", rows: DEVICE_TAINT }],
    ),
    Row::new("resource.k8s.io", "ResourceClaim", RESOURCE_CLAIM),
    Row::new("resource.k8s.io", "ResourceClaimTemplate", RESOURCE_CLAIM_TEMPLATE),
    Row::new(
        "resource.k8s.io",
        "ResourceSlice",
        &[
            Fields { prefix: "spec", rows: RESOURCE_SLICE },
            Fields { prefix: "spec.devices[]", rows: DEVICE },
            Fields { prefix: "spec.devices[].taints[]", rows: DEVICE_TAINT },
        ],
    ),
    Row::new("scheduling.k8s.io", "PodGroup", &[Fields { prefix: "spec", rows: POD_GROUP }]),
    Row::new("scheduling.k8s.io", "Workload", CLIENTS),
    Row::new("", "Namespace", &[Fields { prefix: "spec", rows: NAMESPACE }]),
    Row::new("", "Event", CLIENTS),
    Row::new("events.k8s.io", "Event", CLIENTS),
    Row::new("", "Binding", &[Fields { prefix: "", rows: &[Field::by(SERVER, "target", "api/server/src/subresource/binding.rs")] }]),
    Row::new("", "ComponentStatus", CLIENTS),
    Row::new("metrics.k8s.io", "NodeMetrics", CLIENTS),
    Row::new("metrics.k8s.io", "PodMetrics", CLIENTS),
    Row::new("certificates.k8s.io", "CertificateSigningRequest", &[Fields { prefix: "spec", rows: SIGNING_REQUEST }]),
    Row::nobody("certificates.k8s.io", "ClusterTrustBundle", "ClusterTrustBundles are stored but no node mounts them yet"),
    Row::nobody("certificates.k8s.io", "PodCertificateRequest", "PodCertificateRequests are stored but nothing acts on them yet"),
    served!("rbac.authorization.k8s.io", "ClusterRole", "api/auth/src/authorize/rbac.rs"),
    served!("rbac.authorization.k8s.io", "ClusterRoleBinding", "api/auth/src/authorize/rbac.rs"),
    served!("rbac.authorization.k8s.io", "Role", "api/auth/src/authorize/rbac.rs"),
    served!("rbac.authorization.k8s.io", "RoleBinding", "api/auth/src/authorize/rbac.rs"),
    served!("authentication.k8s.io", "SelfSubjectReview", "api/server/src/reviews.rs"),
    served!("authentication.k8s.io", "TokenReview", "api/server/src/reviews.rs"),
    served!("authorization.k8s.io", "LocalSubjectAccessReview", "api/server/src/reviews.rs"),
    served!("authorization.k8s.io", "SelfSubjectAccessReview", "api/server/src/reviews.rs"),
    served!("authorization.k8s.io", "SelfSubjectRulesReview", "api/server/src/reviews.rs"),
    Row::new("authorization.k8s.io", "SubjectAccessReview", &[Fields { prefix: "", rows: REVIEW }]),
    served!("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "api/server/src/policies.rs"),
    served!("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", "api/server/src/policies.rs"),
    served!("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "api/server/src/webhooks.rs"),
    served!("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "api/server/src/policies.rs"),
    served!("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "api/server/src/policies.rs"),
    served!("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "api/server/src/webhooks.rs"),
    served!("flowcontrol.apiserver.k8s.io", "FlowSchema", "api/server/src/fairness.rs"),
    served!("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "api/server/src/fairness.rs"),
    served!("apiextensions.k8s.io", "CustomResourceDefinition", "api/server/src/verbs/delete/definition.rs"),
    served!("apiregistration.k8s.io", "APIService", "api/server/src/aggregation.rs"),
    Row::nobody("storagemigration.k8s.io", "StorageVersionMigration", "StorageVersionMigrations are stored but nothing acts on them yet"),
];

const POD_GROUP: &[Field] = &[
    Field::by(&[Scheduler], "disruptionMode", "sched/framework/src/pod_group.rs"),
    Field::by(SERVER, "parentCompositePodGroupName", "api/rules/src/kinds/pod_group.rs"),
    Field::by(SERVER, "preemptionPolicy", "api/rules/src/kinds/pod_group.rs"),
    Field::by(&[Scheduler], "priority", "sched/framework/src/pod_group.rs"),
    Field::by(SERVER, "priorityClassName", "api/admission/src/plugins/priority.rs"),
    Field::nobody("resourceClaims").although("Pods have a field of that name"),
    Field::by(SERVER, "schedulingConstraints", "api/rules/src/kinds/pod_group.rs"),
    Field::by(&[Scheduler], "schedulingPolicy", "sched/framework/src/pod_group.rs"),
    Field::by(&[Clients], "workloadRef", ""),
];

const DEVICES: &str = "sched/scheduler/src/plugins/dynamic_resources/pools.rs";
const REQUESTS: &str = "sched/scheduler/src/plugins/dynamic_resources/requests.rs";
const CAPACITY: &str = "sched/scheduler/src/plugins/dynamic_resources/capacity.rs";
const ALLOCATOR: &str = "sched/scheduler/src/plugins/dynamic_resources/allocator.rs";
const OUTCOME: &str = "sched/scheduler/src/plugins/dynamic_resources/outcome.rs";
const ALLOCATES: &[Part] = &[Scheduler];
const TAINTS: &str = "sched/framework/src/device_taint.rs";
const TAINT_TIMES: &str = "sched/controllers/src/device_taint_eviction/plan.rs";
const EVICTS: &[Part] = &[Controller("device-taint-eviction-controller")];
/// New Pods keep away from tainted devices, and Pods leave them.
const AVOIDS: &[Part] = &[Scheduler, Controller("device-taint-eviction-controller")];
const TEMPLATE: &[Part] = &[Controller("resourceclaim-controller")];

const DEVICE_CLASS: &[Field] = &[
    Field::by(&[Clients], "config", ""),
    Field::by(ALLOCATES, "extendedResourceName", "sched/framework/src/dra_manager.rs"),
    Field::by(ALLOCATES, "selectors", ALLOCATOR),
];

const DEVICE_TAINT_RULE: &[Field] = &[Field::by(AVOIDS, "deviceSelector", "sched/framework/src/dra_manager.rs")];

const DEVICE_TAINT: &[Field] = &[
    Field::by(AVOIDS, "effect", TAINTS),
    Field::by(AVOIDS, "key", TAINTS),
    Field::by(EVICTS, "timeAdded", TAINT_TIMES),
    Field::by(AVOIDS, "value", TAINTS),
];

/// The rows of the devices of a claim, and of a claim's template.
macro_rules! claim_rows {
    ($devices:literal $(, $more:expr)?) => {
        &[
            $($more,)?
            Fields { prefix: $devices, rows: CLAIM_DEVICES },
            Fields { prefix: concat!($devices, ".requests[].exactly"), rows: EXACT_REQUEST },
            Fields { prefix: concat!($devices, ".requests[].exactly"), rows: DEVICE_REQUEST },
            Fields { prefix: concat!($devices, ".requests[].exactly.tolerations[]"), rows: DEVICE_TOLERATION },
            Fields { prefix: concat!($devices, ".requests[].firstAvailable[]"), rows: SUB_REQUEST },
            Fields { prefix: concat!($devices, ".requests[].firstAvailable[]"), rows: DEVICE_REQUEST },
            Fields { prefix: concat!($devices, ".requests[].firstAvailable[].tolerations[]"), rows: DEVICE_TOLERATION },
        ]
    };
}

const RESOURCE_CLAIM: &[Fields] = claim_rows!("spec.devices");

const RESOURCE_CLAIM_TEMPLATE: &[Fields] = claim_rows!("spec.spec.devices", Fields { prefix: "spec", rows: CLAIM_METADATA });

const CLAIM_METADATA: &[Field] = &[Field::by(TEMPLATE, "metadata", "sched/controllers/src/resourceclaim/generate.rs")];

const CLAIM_DEVICES: &[Field] = &[
    Field::by(&[Clients], "config", ""),
    Field::by(ALLOCATES, "constraints", ALLOCATOR),
    Field::by(ALLOCATES, "requests[].name", REQUESTS),
];

const EXACT_REQUEST: &[Field] = &[Field::by(ALLOCATES, "adminAccess", REQUESTS)];

const SUB_REQUEST: &[Field] = &[Field::by(ALLOCATES, "name", REQUESTS)];

const DEVICE_REQUEST: &[Field] = &[
    Field::by(ALLOCATES, "allocationMode", REQUESTS),
    Field::by(ALLOCATES, "capacity", CAPACITY),
    Field::by(ALLOCATES, "count", REQUESTS),
    Field::nobody("derivedAttributes").although("a request that has it is not allocated"),
    Field::by(ALLOCATES, "deviceClassName", REQUESTS),
    Field::by(ALLOCATES, "selectors", REQUESTS),
];

const DEVICE_TOLERATION: &[Field] = &[
    Field::by(AVOIDS, "effect", TAINTS),
    Field::by(AVOIDS, "key", TAINTS),
    Field::by(AVOIDS, "operator", TAINTS),
    Field::by(EVICTS, "tolerationSeconds", TAINT_TIMES),
    Field::by(AVOIDS, "value", TAINTS),
];

const RESOURCE_SLICE: &[Field] = &[
    Field::by(ALLOCATES, "allNodes", DEVICES),
    Field::by(ALLOCATES, "driver", DEVICES),
    Field::by(ALLOCATES, "nodeName", DEVICES),
    Field::by(ALLOCATES, "nodeSelector", DEVICES),
    Field::nobody("partitionTypeAttribute"),
    Field::by(ALLOCATES, "perDeviceNodeSelection", DEVICES),
    Field::by(ALLOCATES, "pool", DEVICES),
    Field::by(ALLOCATES, "sharedCounters", DEVICES),
    Field::nobody("skipNodeOperations").although(REFUSED),
];

/// What the scheduler does with a device that has an unsupported field.
const REFUSED: &str = "a device that has it is not allocated";

const DEVICE: &[Field] = &[
    Field::by(ALLOCATES, "allNodes", DEVICES),
    Field::by(ALLOCATES, "allowMultipleAllocations", ALLOCATOR),
    Field::by(ALLOCATES, "attributes", DEVICES),
    Field::by(ALLOCATES, "bindingConditions", OUTCOME),
    Field::by(ALLOCATES, "bindingFailureConditions", OUTCOME),
    Field::by(ALLOCATES, "bindsToNode", OUTCOME),
    Field::by(&[Scheduler, ApiServer], "capacity", CAPACITY),
    Field::by(ALLOCATES, "consumesCounters", DEVICES),
    Field::by(ALLOCATES, "name", DEVICES),
    Field::nobody("nodeAllocatableResources").although(REFUSED),
    Field::by(ALLOCATES, "nodeName", DEVICES),
    Field::by(ALLOCATES, "nodeSelector", DEVICES),
];

const REVIEW: &[Field] = &[Field::by(SERVER, "spec", "api/server/src/reviews.rs")];

const SERVICE: &[Field] = &[
    Field::by(SERVER, "allocateLoadBalancerNodePorts", "api/server/src/services/claims.rs"),
    Field::by(&[ApiServer, Proxy, Dns], "clusterIP", "api/server/src/services/claims.rs"),
    Field::by(&[ApiServer, Proxy, Dns], "clusterIPs", "api/server/src/services/claims.rs"),
    Field::by(&[Proxy], "externalIPs", "node/proxy/src/service.rs"),
    Field::by(&[Dns], "externalName", "dns/src/objects.rs"),
    Field::by(&[Proxy], "externalTrafficPolicy", "node/proxy/src/service.rs"),
    Field::nobody("healthCheckNodePort").although("the API server gives out the port; nobody answers on it"),
    Field::by(&[Proxy], "internalTrafficPolicy", "node/proxy/src/service.rs"),
    Field::by(SERVER, "ipFamilies", "api/server/src/services/families.rs"),
    Field::by(SERVER, "ipFamilyPolicy", "api/server/src/services/families.rs"),
    Field::by(&[Clients], "loadBalancerClass", ""),
    Field::by(&[Clients], "loadBalancerIP", ""),
    Field::by(&[Proxy], "loadBalancerSourceRanges", "node/proxy/src/service.rs"),
    Field::by(SLICES, "ports[].appProtocol", "sched/controllers/src/endpointslice/plan.rs"),
    Field::by(&[Proxy, Dns], "ports[].name", "dns/src/objects.rs"),
    Field::by(&[ApiServer, Proxy], "ports[].nodePort", "node/proxy/src/service.rs"),
    Field::by(&[Proxy, Dns], "ports[].port", "node/proxy/src/service.rs"),
    Field::by(&[Proxy, Dns], "ports[].protocol", "node/proxy/src/service.rs"),
    Field::by(SLICES, "ports[].targetPort", "sched/controllers/src/service.rs"),
    Field::by(SLICES, "publishNotReadyAddresses", "sched/controllers/src/service.rs"),
    Field::by(SLICES, "selector", "sched/controllers/src/service.rs"),
    Field::by(&[Proxy], "sessionAffinity", "node/proxy/src/service.rs"),
    Field::by(&[Proxy], "sessionAffinityConfig", "node/proxy/src/service.rs"),
    Field::by(SLICES, "trafficDistribution", "sched/controllers/src/endpointslice/hints.rs"),
    Field::by(&[ApiServer, Proxy, Dns], "type", "api/server/src/services/claims.rs"),
];

const ENDPOINT_SLICE: &[Field] = &[
    Field::by(&[Proxy], "addressType", "node/proxy/src/service.rs"),
    Field::by(READS_SLICES, "endpoints[].addresses", "dns/src/objects.rs"),
    Field::by(READS_SLICES, "endpoints[].conditions", "dns/src/objects.rs"),
    Field::nobody("endpoints[].deprecatedTopology"),
    Field::by(&[Clients], "endpoints[].hints", ""),
    Field::by(&[Dns], "endpoints[].hostname", "dns/src/objects.rs"),
    Field::by(&[Proxy], "endpoints[].nodeName", "node/proxy/src/service.rs"),
    Field::by(&[Clients], "endpoints[].targetRef", ""),
    Field::by(&[Clients], "endpoints[].zone", ""),
    Field::by(&[Clients], "ports[].appProtocol", ""),
    Field::by(READS_SLICES, "ports[].name", "dns/src/objects.rs"),
    Field::by(READS_SLICES, "ports[].port", "dns/src/objects.rs"),
    Field::by(READS_SLICES, "ports[].protocol", "dns/src/objects.rs"),
];

const NAMESPACE: &[Field] = &[Field::by(&[Controller("namespace-controller")], "finalizers", "sched/controllers/src/namespace.rs")];

const SIGNERS: &[Part] =
    &[Controller("certificatesigningrequest-approving-controller"), Controller("certificatesigningrequest-signing-controller")];

const SIGNING_REQUEST: &[Field] = &[
    Field::by(SIGNERS, "expirationSeconds", "sched/controllers/src/csr/sign.rs"),
    Field::by(SIGNERS, "extra", "sched/controllers/src/csr/approve.rs"),
    Field::by(SIGNERS, "groups", "sched/controllers/src/csr/approve.rs"),
    Field::by(SIGNERS, "request", "sched/controllers/src/csr/sign.rs"),
    Field::by(SIGNERS, "signerName", "sched/controllers/src/csr/sign.rs"),
    Field::by(SIGNERS, "uid", "sched/controllers/src/csr/approve.rs"),
    Field::by(SIGNERS, "usages", "sched/controllers/src/csr/sign.rs"),
    Field::by(SIGNERS, "username", "sched/controllers/src/csr/approve.rs"),
];
