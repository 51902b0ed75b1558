//! The types whose schemas the crate has: the Rust type of k8s-openapi for each group, version and kind.

use std::borrow::Cow;

use k8s::api;
use k8s::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi as k8s;
use schemars::{JsonSchema, SchemaGenerator};

/// The type of the bodies of a kind.
pub(crate) struct Type {
    pub(crate) gvk: [&'static str; 3],
    /// Upstream's name of the type, for example `io.k8s.api.apps.v1.Deployment`.
    pub(crate) name: fn() -> Cow<'static, str>,
    /// Generates the schema of the type, a reference, and adds all its definitions to the generator.
    pub(crate) generate: fn(&mut SchemaGenerator) -> schemars::Schema,
}

const fn type_of<T: k8s::Resource + JsonSchema>() -> Type {
    Type { gvk: [T::GROUP, T::VERSION, T::KIND], name: T::schema_name, generate: SchemaGenerator::subschema_for::<T> }
}

/// Types that every document has besides its kinds: bodies of requests and responses.
pub(crate) static SHARED: &[fn(&mut SchemaGenerator) -> schemars::Schema] = &[
    SchemaGenerator::subschema_for::<meta::Status>,
    SchemaGenerator::subschema_for::<meta::APIResourceList>,
    SchemaGenerator::subschema_for::<meta::DeleteOptions>,
    SchemaGenerator::subschema_for::<meta::ListMeta>,
    SchemaGenerator::subschema_for::<meta::ObjectMeta>,
    SchemaGenerator::subschema_for::<meta::Patch>,
    SchemaGenerator::subschema_for::<meta::WatchEvent<k8s::apimachinery::pkg::runtime::RawExtension>>,
];

/// Every described kind: served objects, bodies of subresources, and other bodies in responses.
pub(crate) const TYPES: &[Type] = &[
    type_of::<api::admissionregistration::v1::MutatingAdmissionPolicy>(),
    type_of::<api::admissionregistration::v1::MutatingAdmissionPolicyBinding>(),
    type_of::<api::admissionregistration::v1::MutatingWebhookConfiguration>(),
    type_of::<api::admissionregistration::v1::ValidatingAdmissionPolicy>(),
    type_of::<api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>(),
    type_of::<api::admissionregistration::v1::ValidatingWebhookConfiguration>(),
    type_of::<k8s::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(),
    type_of::<k8s::kube_aggregator::pkg::apis::apiregistration::v1::APIService>(),
    type_of::<api::apps::v1::ControllerRevision>(),
    type_of::<api::apps::v1::DaemonSet>(),
    type_of::<api::apps::v1::Deployment>(),
    type_of::<api::apps::v1::ReplicaSet>(),
    type_of::<api::apps::v1::StatefulSet>(),
    type_of::<api::authentication::v1::SelfSubjectReview>(),
    type_of::<api::authentication::v1::TokenRequest>(),
    type_of::<api::authentication::v1::TokenReview>(),
    type_of::<api::authorization::v1::LocalSubjectAccessReview>(),
    type_of::<api::authorization::v1::SelfSubjectAccessReview>(),
    type_of::<api::authorization::v1::SelfSubjectRulesReview>(),
    type_of::<api::authorization::v1::SubjectAccessReview>(),
    type_of::<api::autoscaling::v1::HorizontalPodAutoscaler>(),
    type_of::<api::autoscaling::v1::Scale>(),
    type_of::<api::autoscaling::v2::HorizontalPodAutoscaler>(),
    type_of::<api::batch::v1::CronJob>(),
    type_of::<api::batch::v1::Job>(),
    type_of::<api::certificates::v1::CertificateSigningRequest>(),
    type_of::<api::certificates::v1::ClusterTrustBundle>(),
    type_of::<api::certificates::v1::PodCertificateRequest>(),
    type_of::<api::coordination::v1::Lease>(),
    type_of::<api::core::v1::Binding>(),
    type_of::<api::core::v1::ComponentStatus>(),
    type_of::<api::core::v1::ConfigMap>(),
    type_of::<api::core::v1::Endpoints>(),
    type_of::<api::core::v1::Event>(),
    type_of::<api::core::v1::LimitRange>(),
    type_of::<api::core::v1::Namespace>(),
    type_of::<api::core::v1::Node>(),
    type_of::<api::core::v1::PersistentVolume>(),
    type_of::<api::core::v1::PersistentVolumeClaim>(),
    type_of::<api::core::v1::Pod>(),
    type_of::<api::core::v1::PodTemplate>(),
    type_of::<api::core::v1::ReplicationController>(),
    type_of::<api::core::v1::ResourceQuota>(),
    type_of::<api::core::v1::Secret>(),
    type_of::<api::core::v1::Service>(),
    type_of::<api::core::v1::ServiceAccount>(),
    type_of::<api::discovery::v1::EndpointSlice>(),
    type_of::<api::events::v1::Event>(),
    type_of::<api::flowcontrol::v1::FlowSchema>(),
    type_of::<api::flowcontrol::v1::PriorityLevelConfiguration>(),
    type_of::<api::networking::v1::IPAddress>(),
    type_of::<api::networking::v1::Ingress>(),
    type_of::<api::networking::v1::IngressClass>(),
    type_of::<api::networking::v1::NetworkPolicy>(),
    type_of::<api::networking::v1::ServiceCIDR>(),
    type_of::<api::node::v1::RuntimeClass>(),
    type_of::<api::policy::v1::Eviction>(),
    type_of::<api::policy::v1::PodDisruptionBudget>(),
    type_of::<api::rbac::v1::ClusterRole>(),
    type_of::<api::rbac::v1::ClusterRoleBinding>(),
    type_of::<api::rbac::v1::Role>(),
    type_of::<api::rbac::v1::RoleBinding>(),
    type_of::<api::resource::v1::DeviceClass>(),
    type_of::<api::resource::v1::DeviceTaintRule>(),
    type_of::<api::resource::v1::ResourceClaim>(),
    type_of::<api::resource::v1::ResourceClaimTemplate>(),
    type_of::<api::resource::v1::ResourceSlice>(),
    type_of::<api::scheduling::v1::PriorityClass>(),
    type_of::<api::storage::v1::CSIDriver>(),
    type_of::<api::storage::v1::CSINode>(),
    type_of::<api::storage::v1::CSIStorageCapacity>(),
    type_of::<api::storage::v1::StorageClass>(),
    type_of::<api::storage::v1::VolumeAttachment>(),
    type_of::<api::storage::v1::VolumeAttributesClass>(),
    type_of::<api::storagemigration::v1::StorageVersionMigration>(),
    type_of::<meta::Status>(),
];
