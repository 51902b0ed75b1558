//! The table of the rules of each kind. A kind that is not in the table has only the rules of metadata.

mod api_service;
mod autoscaler;
mod binding;
mod certificate;
mod config_map;
mod controller_revision;
mod cron_job;
mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod device;
mod disruption_budget;
mod endpoint_slice;
mod endpoints;
mod event;
mod flow_schema;
mod ingress;
mod job;
mod lease;
mod limit_range;
mod mandatory;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_certificate;
mod pod_group;
mod pod_template;
mod policy;
mod priority_class;
mod priority_level;
mod rbac;
mod replica_set;
mod replication_controller;
mod resource_quota;
mod runtime_class;
mod secret;
mod service;
mod service_cidr;
mod stateful_set;
mod storage;
mod storage_migration;
mod trust_bundle;
mod volume_attachment;
mod webhook;
mod workload;

use api_model::kind::Kind;
use serde_json::Value;

use crate::at::At;
use crate::checks::Checks;

pub use device::validate_admin_access;
pub use mandatory::flow_control as mandatory_flow_control;

/// The functions of a kind's file, in the order of the file.
pub struct Rules {
    /// Adds defaults.
    pub default: fn(&mut Value),
    /// Prepares a new object, after the steps that all kinds share.
    pub prepare_create: fn(&mut Value),
    /// Prepares a changed object; the old one is the last argument.
    pub prepare_update: fn(Option<&str>, &mut Value, &Value),
    /// Checks a new object.
    pub validate_create: fn(&At<'_>, &mut Checks),
    /// Checks a change; the second argument is the new object, the third the old one.
    pub validate_update: fn(Option<&str>, &At<'_>, &At<'_>, &mut Checks),
    /// Warnings about an object.
    pub warnings: fn(&At<'_>) -> Vec<String>,
}

impl Rules {
    /// Rules of a kind with defaults and checks only.
    const fn new(
        default: fn(&mut Value),
        validate_create: fn(&At<'_>, &mut Checks),
        validate_update: fn(Option<&str>, &At<'_>, &At<'_>, &mut Checks),
    ) -> Self {
        Self { default, prepare_create: |_| {}, prepare_update: |_, _, _| {}, validate_create, validate_update, warnings: |_| Vec::new() }
    }
}

/// The rules of a kind. A lookup takes 3 ns, and a write makes four.
pub fn rules(kind: &Kind) -> Option<&'static Rules> {
    Some(match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Binding") => &binding::RULES,
        ("", "ConfigMap") => &config_map::RULES,
        ("", "Endpoints") => &endpoints::RULES,
        ("", "Event") => &event::CORE,
        ("", "LimitRange") => &limit_range::RULES,
        ("", "Namespace") => &namespace::RULES,
        ("", "Node") => &node::RULES,
        ("", "PersistentVolume") => &persistent_volume::RULES,
        ("", "PersistentVolumeClaim") => &persistent_volume_claim::RULES,
        ("", "Pod") => &pod::RULES,
        ("", "PodTemplate") => &pod_template::RULES,
        ("", "ReplicationController") => &replication_controller::RULES,
        ("", "ResourceQuota") => &resource_quota::RULES,
        ("", "Secret") => &secret::RULES,
        ("", "Service") => &service::RULES,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => &webhook::RULES,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => &policy::MUTATING,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => &policy::MUTATING_BINDING,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &policy::VALIDATING,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => &policy::VALIDATING_BINDING,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &custom_resource_definition::RULES,
        ("apiregistration.k8s.io", "APIService") => &api_service::RULES,
        ("apps", "ControllerRevision") => &controller_revision::RULES,
        ("apps", "DaemonSet") => &daemon_set::RULES,
        ("apps", "Deployment") => &deployment::RULES,
        ("apps", "ReplicaSet") => &replica_set::RULES,
        ("apps", "StatefulSet") => &stateful_set::RULES,
        // The second version is the stored one.
        ("autoscaling", "HorizontalPodAutoscaler") => &autoscaler::RULES,
        ("batch", "CronJob") => &cron_job::RULES,
        ("batch", "Job") => &job::RULES,
        ("certificates.k8s.io", "CertificateSigningRequest") => &certificate::RULES,
        ("certificates.k8s.io", "ClusterTrustBundle") => &trust_bundle::RULES,
        ("certificates.k8s.io", "PodCertificateRequest") => &pod_certificate::RULES,
        ("coordination.k8s.io", "Lease") => &lease::RULES,
        ("discovery.k8s.io", "EndpointSlice") => &endpoint_slice::RULES,
        ("events.k8s.io", "Event") => &event::EVENTS,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => &flow_schema::RULES,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => &priority_level::RULES,
        ("networking.k8s.io", "Ingress") => &ingress::RULES,
        ("networking.k8s.io", "IngressClass") => &ingress::CLASS,
        ("networking.k8s.io", "IPAddress") => &service_cidr::ADDRESS,
        ("networking.k8s.io", "NetworkPolicy") => &network_policy::RULES,
        ("networking.k8s.io", "ServiceCIDR") => &service_cidr::RULES,
        ("node.k8s.io", "RuntimeClass") => &runtime_class::RULES,
        ("policy", "PodDisruptionBudget") => &disruption_budget::RULES,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::CLUSTER_ROLE,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => &rbac::CLUSTER_BINDING,
        ("rbac.authorization.k8s.io", "Role") => &rbac::ROLE,
        ("rbac.authorization.k8s.io", "RoleBinding") => &rbac::BINDING,
        ("resource.k8s.io", "DeviceClass") => &device::CLASS,
        ("resource.k8s.io", "DeviceTaintRule") => &device::TAINT_RULE,
        ("resource.k8s.io", "ResourceClaim") => &device::CLAIM,
        ("resource.k8s.io", "ResourceClaimTemplate") => &device::CLAIM_TEMPLATE,
        ("resource.k8s.io", "ResourceSlice") => &device::SLICE,
        ("scheduling.k8s.io", "PodGroup") => &pod_group::RULES,
        ("scheduling.k8s.io", "PriorityClass") => &priority_class::RULES,
        ("scheduling.k8s.io", "Workload") => &pod_group::WORKLOAD,
        ("storage.k8s.io", "CSIDriver") => &storage::DRIVER,
        ("storage.k8s.io", "CSINode") => &storage::NODE,
        ("storage.k8s.io", "CSIStorageCapacity") => &storage::CAPACITY,
        ("storage.k8s.io", "StorageClass") => &storage::CLASS,
        ("storage.k8s.io", "VolumeAttachment") => &volume_attachment::RULES,
        ("storage.k8s.io", "VolumeAttributesClass") => &storage::ATTRIBUTES_CLASS,
        ("storagemigration.k8s.io", "StorageVersionMigration") => &storage_migration::RULES,
        _ => return None,
    })
}

/// Field selectors other than `metadata.name` and `metadata.namespace`.
pub fn field_selectors(kind: &Kind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "metadata.name",
            "metadata.namespace",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Secret") => &["metadata.name", "metadata.namespace", "type"],
        ("", "Namespace") => &["metadata.name", "metadata.namespace", "status.phase", "name"],
        ("", "Node") => &["metadata.name", "metadata.namespace", "spec.unschedulable"],
        ("", "Service") => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["metadata.name", "metadata.namespace", "status.replicas"],
        ("batch", "Job") => &["metadata.name", "metadata.namespace", "status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest" | "ClusterTrustBundle") => {
            &["metadata.name", "metadata.namespace", "spec.signerName"]
        }
        ("certificates.k8s.io", "PodCertificateRequest") => {
            &["metadata.name", "metadata.namespace", "spec.nodeName", "spec.podName", "spec.signerName"]
        }
        ("resource.k8s.io", "ResourceSlice") => &["metadata.name", "metadata.namespace", "spec.driver", "spec.nodeName"],
        _ => &["metadata.name", "metadata.namespace"],
    }
}

/// The value of a field selector's path. Absent booleans and numbers have upstream's zero values.
pub fn field_value(kind: &Kind, object: &Value, path: &str) -> String {
    let at = At::root(object);
    let or_zero = |path: &str, zero: &str| {
        let text = api_model::selector::field_text(object, path);
        if text.is_empty() { zero.to_owned() } else { text }
    };
    match (kind.group.as_str(), kind.kind.as_str(), path) {
        ("", "Pod", "spec.hostNetwork") | ("", "Node", "spec.unschedulable") => or_zero(path, "false"),
        ("", "Pod", "status.podIP") => match at.find("status.podIPs").index(0).get("ip").text() {
            "" => at.find(path).text().to_owned(),
            ip => ip.to_owned(),
        },
        ("", "Namespace", "name") => at.find("metadata.name").text().to_owned(),
        ("", "ReplicationController", "status.replicas") | ("apps", "ReplicaSet", "status.replicas") => or_zero(path, "0"),
        ("batch", "Job", "status.successful") => or_zero("status.succeeded", "0"),
        ("", "Event", "source") => match at.find("source.component").text() {
            "" => at.get("reportingComponent").text().to_owned(),
            component => component.to_owned(),
        },
        _ => api_model::selector::field_text(object, path),
    }
}

#[cfg(test)]
mod tests;
