//! The fields and indexes that a process stores of each kind. A field that a reader needs must not be trimmed here.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, ReplicationController, Secret,
    Service, ServiceAccount, Volume,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Cached, Index};

/// `kubectl apply`'s own annotation: it is large, and only that client reads it.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Objects by the UID of their controller; those without a controller have the empty value.
pub const BY_CONTROLLER: &str = "controller";
/// Pods by the name of the Node that they are bound to.
pub const BY_NODE: &str = "node";
/// PersistentVolumes by the UID of the claim that they are bound to.
pub const BY_CLAIM_UID: &str = "claim-uid";
/// PersistentVolumes that are reserved for a claim whose UID is not set yet, by the claim's name.
pub const BY_RESERVED_NAME: &str = "reserved-name";
/// PersistentVolumeClaims by the name of the volume that they name.
pub const BY_VOLUME: &str = "volume";
/// PersistentVolumeClaims that name no volume yet, by their class; those without a class have the empty value.
pub const UNBOUND_BY_CLASS: &str = "unbound-class";
/// ResourceSlices by the name of their pool. Drivers may have pools of the same name.
pub const BY_POOL: &str = "pool";
/// EndpointSlices by the name of their Service.
pub const BY_SERVICE: &str = "service";

const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The annotation for the class of a claim, older than the field.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

impl Cached for CSIDriver {}
impl Cached for CSINode {}
impl Cached for CSIStorageCapacity {}
impl Cached for CertificateSigningRequest {}
impl Cached for ClusterRole {}
impl Cached for ConfigMap {}
impl Cached for CronJob {}
impl Cached for DaemonSet {}
impl Cached for Deployment {}
impl Cached for DeviceClass {}
impl Cached for DeviceTaintRule {}
impl Cached for Endpoints {}
impl Cached for HorizontalPodAutoscaler {}
impl Cached for Lease {}
impl Cached for Namespace {}
impl Cached for PodDisruptionBudget {}
impl Cached for PodGroup {}
impl Cached for ResourceClaimTemplate {}
impl Cached for RuntimeClass {}
impl Cached for Secret {}
impl Cached for Service {}
impl Cached for ServiceAccount {}
impl Cached for StatefulSet {}
impl Cached for StorageClass {}
impl Cached for ValidatingAdmissionPolicy {}
impl Cached for VolumeAttachment {}

impl Cached for ControllerRevision {
    const INDEXES: &'static [Index<Self>] = &[Index { name: BY_CONTROLLER, value: |revision| Some(controller_uid(&revision.metadata)) }];
}

impl Cached for EndpointSlice {
    const INDEXES: &'static [Index<Self>] =
        &[Index { name: BY_SERVICE, value: |slice| slice.metadata.labels.as_ref()?.get(SERVICE_NAME).map(String::as_str) }];
}

impl Cached for Job {
    const INDEXES: &'static [Index<Self>] = &[Index { name: BY_CONTROLLER, value: |job| Some(controller_uid(&job.metadata)) }];
}

impl Cached for PersistentVolume {
    const INDEXES: &'static [Index<Self>] = &[
        Index { name: BY_CLAIM_UID, value: |volume| non_empty(volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()) },
        Index {
            name: BY_RESERVED_NAME,
            value: |volume| {
                let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
                claim.name.as_deref().filter(|_| non_empty(claim.uid.as_deref()).is_none())
            },
        },
    ];
}

impl Cached for PersistentVolumeClaim {
    const INDEXES: &'static [Index<Self>] = &[
        Index { name: BY_VOLUME, value: |claim| volume_of(claim) },
        Index { name: UNBOUND_BY_CLASS, value: |claim| if volume_of(claim).is_none() { Some(class_of(claim)) } else { None } },
    ];
}

impl Cached for ResourceClaim {
    const INDEXES: &'static [Index<Self>] = &[Index { name: BY_CONTROLLER, value: |claim| Some(controller_uid(&claim.metadata)) }];
}

impl Cached for ResourceSlice {
    const INDEXES: &'static [Index<Self>] = &[Index { name: BY_POOL, value: |slice| Some(slice.spec.pool.name.as_str()) }];
}

impl Cached for ReplicaSet {
    const INDEXES: &'static [Index<Self>] = &[Index { name: BY_CONTROLLER, value: |set| Some(controller_uid(&set.metadata)) }];
}

impl Cached for Pod {
    const INDEXES: &'static [Index<Self>] = &[
        Index { name: BY_CONTROLLER, value: |pod| Some(controller_uid(&pod.metadata)) },
        Index { name: BY_NODE, value: |pod| pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty()) },
    ];

    /// Controllers and scheduler need a Pod's node, the fields that decide its placement, its ports and its status.
    fn trim(&mut self) {
        if let Some(spec) = &mut self.spec {
            trim_pod_spec(spec);
        }
        if let Some(status) = &mut self.status {
            status.ephemeral_container_statuses = None;
            // What the containers of other Pods have together is in the status of each container.
            if self.spec.as_ref().is_none_or(|spec| spec.resources.is_none()) {
                (status.resources, status.allocated_resources) = (None, None);
            }
            for container in status.container_statuses.iter_mut().flatten().chain(status.init_container_statuses.iter_mut().flatten()) {
                container.image = String::new();
                container.image_id = String::new();
                container.container_id = None;
                container.volume_mounts = None;
            }
        }
    }
}

impl Cached for Node {
    /// The lists of images and volumes in use are long. The scheduler, which needs the images, has a watch of its own for them.
    fn trim(&mut self) {
        if let Some(status) = &mut self.status {
            status.images = None;
            status.volumes_attached = None;
            status.volumes_in_use = None;
        }
    }
}

impl Cached for ReplicationController {
    const INDEXES: &'static [Index<Self>] = &[Index { name: BY_CONTROLLER, value: |one| Some(controller_uid(&one.metadata)) }];
}

fn trim_pod_spec(spec: &mut PodSpec) {
    let is_waiting = spec.node_name.is_none();
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        *container = Container {
            name: std::mem::take(&mut container.name),
            // The scheduler prefers nodes that have the images.
            image: container.image.take().filter(|_| is_waiting),
            ports: container.ports.take(),
            resources: container.resources.take(),
            restart_policy: container.restart_policy.take(),
            ..Container::default()
        };
    }
    spec.ephemeral_containers = None;
    spec.image_pull_secrets = None;
    spec.security_context = None;
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(decides_placement);
    }
}

/// Whether the scheduler or a controller reads the volume: claims, and disks that not every number of Pods may mount.
fn decides_placement(volume: &Volume) -> bool {
    let is_claim = volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
    let is_disk = volume.gce_persistent_disk.is_some() || volume.aws_elastic_block_store.is_some();
    is_claim || is_disk || volume.iscsi.is_some() || volume.rbd.is_some()
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// The volume that a claim names.
fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    non_empty(claim.spec.as_ref()?.volume_name.as_deref())
}

/// The class of a claim; empty without one.
fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let old = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(OLD_CLASS));
    let class = old.or_else(|| claim.spec.as_ref()?.storage_class_name.as_ref());
    class.map_or("", String::as_str)
}

fn controller_uid(meta: &ObjectMeta) -> &str {
    let controller = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    controller.map_or("", |owner| owner.uid.as_str())
}
