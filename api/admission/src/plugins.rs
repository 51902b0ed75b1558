//! The plugins, one file each, and their order.

use crate::plugin::{Allows, Plugin};

pub mod certificates;
pub mod default_ingress_class;
pub mod default_storage_class;
pub mod default_toleration_seconds;
pub mod deny_service_external_ips;
pub mod limit_ranger;
pub mod namespace_lifecycle;
pub mod node_restriction;
pub mod persistent_volume_claim_resize;
pub mod pod_security;
pub mod pod_topology_labels;
pub mod priority;
pub mod resource_quota;
pub mod runtime_class;
pub mod service_account;
pub mod storage_object_in_use_protection;
pub mod taint_nodes_by_condition;

/// Upstream's plugins that have no effect here: they are off by default, or concern kinds that are not served. A flag
/// may name them. StorageObjectInUseProtection is one of them: no controller would remove its finalizers.
pub const ABSENT: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "JobValidation",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "OwnerReferencesPermissionEnforcement",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodTolerationRestriction",
    "StorageObjectInUseProtection",
];

/// Plugins that need I/O or stored configuration: the server implements them, unless they are disabled.
pub const ELSEWHERE: &[&str] = &[
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    resource_quota::NAME,
];

/// The plugins in upstream's order, in which they run.
pub fn all(allows: Allows, mirror_pods: bool) -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(namespace_lifecycle::NamespaceLifecycle),
        Box::new(limit_ranger::LimitRanger),
        Box::new(service_account::ServiceAccount),
        Box::new(node_restriction::NodeRestriction { allows: allows.clone(), mirror_pods }),
        Box::new(taint_nodes_by_condition::TaintNodesByCondition),
        Box::new(pod_security::PodSecurity),
        Box::new(priority::Priority),
        Box::new(default_toleration_seconds::DefaultTolerationSeconds),
        Box::new(default_storage_class::DefaultStorageClass),
        Box::new(persistent_volume_claim_resize::PersistentVolumeClaimResize),
        Box::new(runtime_class::RuntimeClass),
        Box::new(certificates::CertificateApproval { allows: allows.clone() }),
        Box::new(certificates::CertificateSigning { allows: allows.clone() }),
        Box::new(certificates::ClusterTrustBundleAttest { allows }),
        Box::new(certificates::CertificateSubjectRestriction),
        Box::new(default_ingress_class::DefaultIngressClass),
        Box::new(deny_service_external_ips::DenyServiceExternalIPs),
        Box::new(pod_topology_labels::PodTopologyLabels),
    ]
}
