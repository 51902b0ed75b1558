//! ReplicaSets: wanted and actual replicas, and the owners.

use api_model::k8s_openapi::api::apps::v1::ReplicaSet;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, generation, namespaced, owners};
use crate::read::or_empty;
use crate::series::Label;

impl Kind for ReplicaSet {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("replicaset", self)
    }
}

const FAMILIES: &[Family<ReplicaSet>] = &[
    gauge("kube_replicaset_created", "When the ReplicaSet was created, in Unix seconds.", created),
    gauge("kube_replicaset_status_replicas", "How many Pods the ReplicaSet has.", |set, series| {
        series.integer(or_empty(&set.status).replicas);
    }),
    gauge("kube_replicaset_status_fully_labeled_replicas", "How many Pods have all labels of the template.", |set, series| {
        series.count(or_empty(&set.status).fully_labeled_replicas);
    }),
    gauge("kube_replicaset_status_ready_replicas", "How many Pods of the ReplicaSet are ready.", |set, series| {
        series.count(or_empty(&set.status).ready_replicas);
    }),
    gauge("kube_replicaset_status_observed_generation", "The generation that the status is about.", |set, series| {
        series.count(or_empty(&set.status).observed_generation);
    }),
    gauge("kube_replicaset_spec_replicas", "How many Pods the ReplicaSet should have.", |set, series| {
        series.present(set.spec.replicas);
    }),
    gauge("kube_replicaset_metadata_generation", "The generation of what is wanted of the ReplicaSet.", generation),
    gauge("kube_replicaset_owner", "An owner of the ReplicaSet; empty labels when it has none.", owners),
];
