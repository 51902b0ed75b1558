//! The state of a cluster's objects as Prometheus text: phases of Pods, replicas of Deployments, amounts of resources.
//! The families have the names, labels and values of kube-state-metrics 2.17, so that the dashboards and alerts of
//! kubernetes-mixin work; `kube_endpointslice_endpoints`, whose values 2.17 confuses, has those of 2.20. Objects come in one at a time as stored JSON; a text of one scrape goes out. The crate does no
//! I/O and reads no clock. Who may read the text, and which objects go into it, is up to the caller.
//!
//! A kind is a file with a table of families; a family is a name and a function over one object.
//!
//! What kube-state-metrics has and this crate has not:
//!
//! - what kube-state-metrics leaves out by default: the families of labels and annotations (but for those of
//!   VolumeAttachments), `kube_pod_nodeselectors`, `kube_persistentvolume_csi_attributes`, and the kinds of RBAC and
//!   IngressClasses;
//! - `kube_cronjob_next_schedule_time`, which is not part of the object: it follows from the schedule and a time zone.

mod certificatesigningrequest;
mod config;
mod family;
mod labels;
mod metadata;
mod namespace;
mod network;
mod node;
mod number;
mod pod;
mod policy;
mod quantity;
mod read;
mod series;
mod storage;
mod webhook;
mod workload;

use api_model::k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use api_model::k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use api_model::k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use api_model::k8s_openapi::api::batch::v1::{CronJob, Job};
use api_model::k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use api_model::k8s_openapi::api::coordination::v1::Lease;
use api_model::k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota,
    Secret, Service, ServiceAccount,
};
use api_model::k8s_openapi::api::discovery::v1::EndpointSlice;
use api_model::k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use api_model::k8s_openapi::api::policy::v1::PodDisruptionBudget;
use api_model::k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use thiserror::Error;

use family::{AddError, Head, Table};

/// All kinds, in the order of the output.
static TABLES: [Table; 30] = [
    Table::of::<Pod>(),
    Table::of::<Node>(),
    Table::of::<Namespace>(),
    Table::of::<Deployment>(),
    Table::of::<ReplicaSet>(),
    Table::of::<StatefulSet>(),
    Table::of::<DaemonSet>(),
    Table::of::<ReplicationController>(),
    Table::of::<Job>(),
    Table::of::<CronJob>(),
    Table::of::<Service>(),
    Table::of::<EndpointSlice>(),
    Table::of::<Endpoints>(),
    Table::of::<ConfigMap>(),
    Table::of::<Secret>(),
    Table::of::<ServiceAccount>(),
    Table::of::<PersistentVolume>(),
    Table::of::<PersistentVolumeClaim>(),
    Table::of::<StorageClass>(),
    Table::of::<VolumeAttachment>(),
    Table::of::<HorizontalPodAutoscaler>(),
    Table::of::<PodDisruptionBudget>(),
    Table::of::<ResourceQuota>(),
    Table::of::<LimitRange>(),
    Table::of::<Lease>(),
    Table::of::<Ingress>(),
    Table::of::<NetworkPolicy>(),
    Table::of::<CertificateSigningRequest>(),
    Table::of::<MutatingWebhookConfiguration>(),
    Table::of::<ValidatingWebhookConfiguration>(),
];

/// Why an object was not added.
#[derive(Debug, Error)]
pub enum StateMetricsError {
    /// There are no families for this group and resource.
    #[error("the resource {resource:?} of the group {group:?} has no families of metrics")]
    NoFamilies {
        /// API group; empty for the core group.
        group: String,
        /// Plural name.
        resource: String,
    },
    /// The bytes are not the JSON of such an object in its storage version.
    #[error("cannot read an object of the resource {resource:?} for its metrics")]
    Decode {
        /// Plural name.
        resource: &'static str,
        /// What is wrong with the JSON.
        source: serde_json::Error,
    },
    /// The object has no name, which every sample needs as a label.
    #[error("an object of the resource {resource:?} has no name")]
    NoName {
        /// Plural name.
        resource: &'static str,
    },
}

/// The resources that have families: API group and plural name, in the order of the output.
pub fn resources() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLES.iter().map(|table| (table.group, table.resource))
}

/// The text of a scrape, built one object at a time: objects are not retained.
#[derive(Debug)]
pub struct StateMetrics {
    /// For each table the samples of each of its families.
    buffers: Vec<Vec<Vec<u8>>>,
}

impl Default for StateMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl StateMetrics {
    /// A text without series.
    pub fn new() -> Self {
        Self { buffers: TABLES.iter().map(|table| vec![Vec::new(); (table.heads)().len()]).collect() }
    }

    /// Adds the series of one object, given as JSON in the version that is stored. After an error nothing of the object
    /// is added. A quantity that cannot be read has no series.
    pub fn add(&mut self, group: &str, resource: &str, object: &[u8]) -> Result<(), StateMetricsError> {
        let mut tables = TABLES.iter().zip(&mut self.buffers);
        let Some((table, buffers)) = tables.find(|(table, _)| table.resource == resource && table.group == group) else {
            return Err(StateMetricsError::NoFamilies { group: group.to_owned(), resource: resource.to_owned() });
        };
        (table.add)(object, buffers).map_err(|error| match error {
            AddError::Json(source) => StateMetricsError::Decode { resource: table.resource, source },
            AddError::NoName => StateMetricsError::NoName { resource: table.resource },
        })
    }

    /// The text in Prometheus' text format 0.0.4. The families of a resource are together, in the order of their table.
    /// Families without series are left out.
    pub fn into_text(self) -> Vec<u8> {
        let mut text = Vec::new();
        for (table, buffers) in TABLES.iter().zip(self.buffers) {
            for (head, samples) in (table.heads)().into_iter().zip(buffers) {
                if !samples.is_empty() {
                    write_head(&mut text, head);
                    text.extend_from_slice(&samples);
                }
            }
        }
        text
    }
}

fn write_head(text: &mut Vec<u8>, head: &Head) {
    for part in ["# HELP ", head.name, " ", head.help, "\n# TYPE ", head.name, " ", head.metric_type, "\n"] {
        text.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests;
