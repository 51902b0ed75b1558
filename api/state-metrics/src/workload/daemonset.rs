//! DaemonSets: on how many nodes their Pods should run and do run.

use api_model::k8s_openapi::api::apps::v1::DaemonSet;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, generation, namespaced};
use crate::read::or_empty;
use crate::series::Label;

impl Kind for DaemonSet {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("daemonset", self)
    }
}

const FAMILIES: &[Family<DaemonSet>] = &[
    gauge("kube_daemonset_created", "When the DaemonSet was created, in Unix seconds.", created),
    gauge("kube_daemonset_status_current_number_scheduled", "Nodes that should have a Pod and have one.", |set, series| {
        series.integer(or_empty(&set.status).current_number_scheduled);
    }),
    gauge("kube_daemonset_status_desired_number_scheduled", "Nodes that should have a Pod.", |set, series| {
        series.integer(or_empty(&set.status).desired_number_scheduled);
    }),
    gauge("kube_daemonset_status_number_available", "Nodes that should have a Pod and have an available one.", |set, series| {
        series.count(or_empty(&set.status).number_available);
    }),
    gauge("kube_daemonset_status_number_misscheduled", "Nodes that have a Pod and should have none.", |set, series| {
        series.integer(or_empty(&set.status).number_misscheduled);
    }),
    gauge("kube_daemonset_status_number_ready", "Nodes that should have a Pod and have a ready one.", |set, series| {
        series.integer(or_empty(&set.status).number_ready);
    }),
    gauge("kube_daemonset_status_number_unavailable", "Nodes that should have a Pod and have no available one.", |set, series| {
        series.count(or_empty(&set.status).number_unavailable);
    }),
    gauge("kube_daemonset_status_observed_generation", "The generation that the status is about.", |set, series| {
        series.count(or_empty(&set.status).observed_generation);
    }),
    gauge("kube_daemonset_status_updated_number_scheduled", "Nodes that have a Pod of the current template.", |set, series| {
        series.count(or_empty(&set.status).updated_number_scheduled);
    }),
    gauge("kube_daemonset_metadata_generation", "The generation of what is wanted of the DaemonSet.", generation),
    gauge("kube_daemonset_deletion_timestamp", "When the deletion of the DaemonSet began, in Unix seconds.", deleted),
];
