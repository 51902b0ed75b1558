//! The types whose schemas the crate has: the Rust type of k8s-openapi for each group, version and kind.

use std::borrow::Cow;

use k8s::api;
use k8s::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi as k8s;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

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

/// A type of `metrics.k8s.io`, which k8s-openapi does not have.
const fn metrics(kind: &'static str, name: fn() -> Cow<'static, str>, generate: fn(&mut SchemaGenerator) -> schemars::Schema) -> Type {
    Type { gvk: ["metrics.k8s.io", "v1beta1", kind], name, generate }
}

/// The name of a type of `metrics.k8s.io/v1beta1`.
fn metrics_name(kind: &str) -> Cow<'static, str> {
    format!("io.k8s.metrics.pkg.apis.metrics.v1beta1.{kind}").into()
}

/// The properties that the metrics of a node and of a Pod share, and one more.
fn metrics_schema(generator: &mut SchemaGenerator, description: &str, (field, schema): (&str, Schema)) -> Schema {
    let (metadata, time) = (generator.subschema_for::<meta::ObjectMeta>(), generator.subschema_for::<meta::Time>());
    let window = generator.subschema_for::<Duration>();
    let text = |description: &str| json!({"description": description, "type": "string"});
    let referring = |description: &str, schema: &Schema| {
        let mut schema = schema.clone();
        schema.insert("description".to_owned(), description.into());
        schema
    };
    json_schema!({
        "description": description,
        "properties": {
            "apiVersion": text("APIVersion defines the versioned schema of this representation of an object."),
            "kind": text("Kind is a string value representing the REST resource this object represents."),
            "metadata": metadata,
            "timestamp": referring("The end of the interval in which the metrics were collected.", &time),
            "window": referring("The length of the interval in which the metrics were collected, which ends at the timestamp.", &window),
            field: schema,
        },
        "required": ["timestamp", "window", field],
        "type": "object",
    })
}

/// Amounts by the name of the resource.
fn usage(generator: &mut SchemaGenerator) -> Schema {
    let quantity = generator.subschema_for::<k8s::apimachinery::pkg::api::resource::Quantity>();
    json_schema!({"description": "The amount that was used of each resource.", "type": "object", "additionalProperties": quantity})
}

/// A duration in Go's words, which k8s-openapi does not have either.
struct Duration;

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.apimachinery.pkg.apis.meta.v1.Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Duration is a length of time, such as 15.016s.", "type": "string"})
    }
}

/// `metrics.k8s.io/v1beta1 NodeMetrics`
struct NodeMetrics;

impl JsonSchema for NodeMetrics {
    fn schema_name() -> Cow<'static, str> {
        metrics_name("NodeMetrics")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let usage = usage(generator);
        metrics_schema(generator, "NodeMetrics has what a node uses.", ("usage", usage))
    }
}

/// `metrics.k8s.io/v1beta1 PodMetrics`
struct PodMetrics;

impl JsonSchema for PodMetrics {
    fn schema_name() -> Cow<'static, str> {
        metrics_name("PodMetrics")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let container = generator.subschema_for::<ContainerMetrics>();
        let containers = json_schema!({"description": "The containers that ran in the interval.", "type": "array", "items": container});
        metrics_schema(generator, "PodMetrics has what the containers of a Pod use.", ("containers", containers))
    }
}

/// An item of `containers` of [`PodMetrics`].
struct ContainerMetrics;

impl JsonSchema for ContainerMetrics {
    fn schema_name() -> Cow<'static, str> {
        metrics_name("ContainerMetrics")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "ContainerMetrics has what a container uses.",
            "properties": {"name": {"description": "The name of the container.", "type": "string"}, "usage": usage(generator)},
            "required": ["name", "usage"],
            "type": "object",
        })
    }
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
    type_of::<api::scheduling::v1beta1::PodGroup>(),
    type_of::<api::scheduling::v1beta1::Workload>(),
    type_of::<api::storage::v1::CSIDriver>(),
    type_of::<api::storage::v1::CSINode>(),
    type_of::<api::storage::v1::CSIStorageCapacity>(),
    type_of::<api::storage::v1::StorageClass>(),
    type_of::<api::storage::v1::VolumeAttachment>(),
    type_of::<api::storage::v1::VolumeAttributesClass>(),
    type_of::<api::storagemigration::v1::StorageVersionMigration>(),
    type_of::<meta::Status>(),
    metrics("NodeMetrics", NodeMetrics::schema_name, SchemaGenerator::subschema_for::<NodeMetrics>),
    metrics("PodMetrics", PodMetrics::schema_name, SchemaGenerator::subschema_for::<PodMetrics>),
];
