//! The types behind the kinds: which Rust type of k8s-openapi describes which group, version and kind.

use std::borrow::Cow;

use api_model::k8s_openapi as k8s;
use k8s::api;
use k8s::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::{JsonSchema, SchemaGenerator};

/// One type that describes the bodies of a kind.
pub(crate) struct Type {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    /// Upstream's name of the type, for example `io.k8s.api.apps.v1.Deployment`.
    pub(crate) name: fn() -> Cow<'static, str>,
    /// Makes the type's schema, a reference, and puts all it reaches in the generator's definitions.
    pub(crate) generate: fn(&mut SchemaGenerator) -> schemars::Schema,
}

const fn of<T: k8s::Resource + JsonSchema>() -> Type {
    Type { group: T::GROUP, version: T::VERSION, kind: T::KIND, name: T::schema_name, generate: SchemaGenerator::subschema_for::<T> }
}

/// Types that every document names beside its kinds: what requests and answers carry.
pub(crate) static SHARED: &[fn(&mut SchemaGenerator) -> schemars::Schema] = &[
    SchemaGenerator::subschema_for::<meta::Status>,
    SchemaGenerator::subschema_for::<meta::APIResourceList>,
    SchemaGenerator::subschema_for::<meta::DeleteOptions>,
    SchemaGenerator::subschema_for::<meta::ListMeta>,
    SchemaGenerator::subschema_for::<meta::ObjectMeta>,
    SchemaGenerator::subschema_for::<meta::Patch>,
    SchemaGenerator::subschema_for::<meta::WatchEvent<k8s::apimachinery::pkg::runtime::RawExtension>>,
];

/// The type that describes a kind.
pub(crate) fn find(group: &str, version: &str, kind: &str) -> Option<&'static Type> {
    TYPES.iter().find(|t| t.group == group && t.version == version && t.kind == kind)
}

/// Every described kind: served objects, bodies of subresources, and what the server itself answers.
pub(crate) const TYPES: &[Type] = &[
    of::<api::admissionregistration::v1::MutatingAdmissionPolicy>(),
    of::<api::admissionregistration::v1::MutatingAdmissionPolicyBinding>(),
    of::<api::admissionregistration::v1::MutatingWebhookConfiguration>(),
    of::<api::admissionregistration::v1::ValidatingAdmissionPolicy>(),
    of::<api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>(),
    of::<api::admissionregistration::v1::ValidatingWebhookConfiguration>(),
    of::<k8s::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(),
    of::<k8s::kube_aggregator::pkg::apis::apiregistration::v1::APIService>(),
    of::<api::apps::v1::ControllerRevision>(),
    of::<api::apps::v1::DaemonSet>(),
    of::<api::apps::v1::Deployment>(),
    of::<api::apps::v1::ReplicaSet>(),
    of::<api::apps::v1::StatefulSet>(),
    of::<api::authentication::v1::SelfSubjectReview>(),
    of::<api::authentication::v1::TokenRequest>(),
    of::<api::authentication::v1::TokenReview>(),
    of::<api::authorization::v1::LocalSubjectAccessReview>(),
    of::<api::authorization::v1::SelfSubjectAccessReview>(),
    of::<api::authorization::v1::SelfSubjectRulesReview>(),
    of::<api::authorization::v1::SubjectAccessReview>(),
    of::<api::autoscaling::v1::HorizontalPodAutoscaler>(),
    of::<api::autoscaling::v1::Scale>(),
    of::<api::autoscaling::v2::HorizontalPodAutoscaler>(),
    of::<api::batch::v1::CronJob>(),
    of::<api::batch::v1::Job>(),
    of::<api::certificates::v1::CertificateSigningRequest>(),
    of::<api::certificates::v1::ClusterTrustBundle>(),
    of::<api::certificates::v1::PodCertificateRequest>(),
    of::<api::coordination::v1::Lease>(),
    of::<api::core::v1::Binding>(),
    of::<api::core::v1::ComponentStatus>(),
    of::<api::core::v1::ConfigMap>(),
    of::<api::core::v1::Endpoints>(),
    of::<api::core::v1::Event>(),
    of::<api::core::v1::LimitRange>(),
    of::<api::core::v1::Namespace>(),
    of::<api::core::v1::Node>(),
    of::<api::core::v1::PersistentVolume>(),
    of::<api::core::v1::PersistentVolumeClaim>(),
    of::<api::core::v1::Pod>(),
    of::<api::core::v1::PodTemplate>(),
    of::<api::core::v1::ReplicationController>(),
    of::<api::core::v1::ResourceQuota>(),
    of::<api::core::v1::Secret>(),
    of::<api::core::v1::Service>(),
    of::<api::core::v1::ServiceAccount>(),
    of::<api::discovery::v1::EndpointSlice>(),
    of::<api::events::v1::Event>(),
    of::<api::flowcontrol::v1::FlowSchema>(),
    of::<api::flowcontrol::v1::PriorityLevelConfiguration>(),
    of::<api::networking::v1::IPAddress>(),
    of::<api::networking::v1::Ingress>(),
    of::<api::networking::v1::IngressClass>(),
    of::<api::networking::v1::NetworkPolicy>(),
    of::<api::networking::v1::ServiceCIDR>(),
    of::<api::node::v1::RuntimeClass>(),
    of::<api::policy::v1::Eviction>(),
    of::<api::policy::v1::PodDisruptionBudget>(),
    of::<api::rbac::v1::ClusterRole>(),
    of::<api::rbac::v1::ClusterRoleBinding>(),
    of::<api::rbac::v1::Role>(),
    of::<api::rbac::v1::RoleBinding>(),
    of::<api::resource::v1::DeviceClass>(),
    of::<api::resource::v1::DeviceTaintRule>(),
    of::<api::resource::v1::ResourceClaim>(),
    of::<api::resource::v1::ResourceClaimTemplate>(),
    of::<api::resource::v1::ResourceSlice>(),
    of::<api::scheduling::v1::PriorityClass>(),
    of::<api::storage::v1::CSIDriver>(),
    of::<api::storage::v1::CSINode>(),
    of::<api::storage::v1::CSIStorageCapacity>(),
    of::<api::storage::v1::StorageClass>(),
    of::<api::storage::v1::VolumeAttachment>(),
    of::<api::storage::v1::VolumeAttributesClass>(),
    of::<api::storagemigration::v1::StorageVersionMigration>(),
    of::<meta::Status>(),
];

#[cfg(test)]
mod tests;
