//! ReplicationControllers: wanted and actual replicas, and the owners.

use api_model::k8s_openapi::api::core::v1::ReplicationController;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, generation, namespaced, owners};
use crate::read::or_empty;
use crate::series::Label;

impl Kind for ReplicationController {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("replicationcontroller", self)
    }
}

const FAMILIES: &[Family<ReplicationController>] = &[
    gauge("kube_replicationcontroller_created", "When the ReplicationController was created, in Unix seconds.", created),
    gauge("kube_replicationcontroller_status_replicas", "How many Pods the ReplicationController has.", |controller, series| {
        series.integer(or_empty(&controller.status).replicas);
    }),
    gauge(
        "kube_replicationcontroller_status_fully_labeled_replicas",
        "How many Pods have all labels of the template.",
        |controller, series| series.count(or_empty(&controller.status).fully_labeled_replicas),
    ),
    gauge("kube_replicationcontroller_status_ready_replicas", "How many Pods are ready.", |controller, series| {
        series.count(or_empty(&controller.status).ready_replicas);
    }),
    gauge("kube_replicationcontroller_status_available_replicas", "How many Pods are available.", |controller, series| {
        series.count(or_empty(&controller.status).available_replicas);
    }),
    gauge("kube_replicationcontroller_status_observed_generation", "The generation that the status is about.", |controller, series| {
        series.count(or_empty(&controller.status).observed_generation);
    }),
    gauge("kube_replicationcontroller_spec_replicas", "How many Pods there should be.", |controller, series| {
        series.present(or_empty(&controller.spec).replicas);
    }),
    gauge("kube_replicationcontroller_metadata_generation", "The generation of what is wanted.", generation),
    gauge("kube_replicationcontroller_owner", "An owner of the ReplicationController; empty labels when it has none.", owners),
];
