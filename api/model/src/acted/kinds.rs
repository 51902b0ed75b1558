//! The rows of all other kinds: Services and related kinds, storage, access, policies, the API itself.

use super::Part::{ApiServer, Clients, Controller, Dns, Proxy};
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
    Row::nobody("resource.k8s.io", "DeviceClass", "DeviceClasses are stored but nothing acts on them yet"),
    Row::nobody("resource.k8s.io", "DeviceTaintRule", "DeviceTaintRules are stored but nothing acts on them yet"),
    Row::nobody("resource.k8s.io", "ResourceClaim", "ResourceClaims are stored but nothing acts on them yet"),
    Row::nobody("resource.k8s.io", "ResourceClaimTemplate", "ResourceClaimTemplates are stored but nothing acts on them yet"),
    Row::nobody("resource.k8s.io", "ResourceSlice", "ResourceSlices are stored but nothing acts on them yet"),
    Row::new("", "Namespace", &[Fields { prefix: "spec", rows: NAMESPACE }]),
    Row::new("", "Event", CLIENTS),
    Row::new("events.k8s.io", "Event", CLIENTS),
    Row::new("", "Binding", &[Fields { prefix: "", rows: &[Field::by(SERVER, "target", "api/server/src/subresource/binding.rs")] }]),
    Row::new("", "ComponentStatus", CLIENTS),
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
