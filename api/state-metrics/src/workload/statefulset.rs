//! StatefulSets: wanted and actual replicas, revisions, and what happens to their claims.

use api_model::k8s_openapi::api::apps::v1::StatefulSet;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, generation, namespaced};
use crate::read::{or_empty, text};
use crate::series::{Label, Series};

impl Kind for StatefulSet {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("statefulset", self)
    }
}

const FAMILIES: &[Family<StatefulSet>] = &[
    gauge("kube_statefulset_created", "When the StatefulSet was created, in Unix seconds.", created),
    gauge("kube_statefulset_status_replicas", "How many Pods the StatefulSet has.", |set, series| {
        series.integer(or_empty(&set.status).replicas);
    }),
    gauge("kube_statefulset_status_replicas_available", "How many Pods of the StatefulSet are available.", |set, series| {
        series.count(or_empty(&set.status).available_replicas);
    }),
    gauge("kube_statefulset_status_replicas_current", "How many Pods have the revision that is being replaced.", |set, series| {
        series.count(or_empty(&set.status).current_replicas);
    }),
    gauge("kube_statefulset_status_replicas_ready", "How many Pods of the StatefulSet are ready.", |set, series| {
        series.count(or_empty(&set.status).ready_replicas);
    }),
    gauge("kube_statefulset_status_replicas_updated", "How many Pods have the newest revision.", |set, series| {
        series.count(or_empty(&set.status).updated_replicas);
    }),
    gauge("kube_statefulset_status_observed_generation", "The generation that the status is about.", |set, series| {
        series.count(or_empty(&set.status).observed_generation);
    }),
    gauge("kube_statefulset_replicas", "How many Pods the StatefulSet should have.", |set, series| {
        series.present(set.spec.replicas);
    }),
    gauge("kube_statefulset_ordinals_start", "The number of the first Pod, if it is set.", |set, series| {
        if let Some(ordinals) = &set.spec.ordinals {
            series.count(ordinals.start);
        }
    }),
    gauge("kube_statefulset_metadata_generation", "The generation of what is wanted of the StatefulSet.", generation),
    gauge(
        "kube_statefulset_persistentvolumeclaim_retention_policy",
        "What happens to the claims when the StatefulSet is deleted or scaled down.",
        retention_policy,
    ),
    gauge("kube_statefulset_status_current_revision", "The revision that is being replaced.", |set, series| {
        series.info(&[("revision", text(&or_empty(&set.status).current_revision))]);
    }),
    gauge("kube_statefulset_status_update_revision", "The newest revision.", |set, series| {
        series.info(&[("revision", text(&or_empty(&set.status).update_revision))]);
    }),
    gauge("kube_statefulset_deletion_timestamp", "When the deletion of the StatefulSet began, in Unix seconds.", deleted),
];

fn retention_policy(set: &StatefulSet, series: &mut Series<'_>) {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let Some(policy) = policy else { return };
    let (deleted, scaled) = (text(&policy.when_deleted), text(&policy.when_scaled));
    if !deleted.is_empty() || !scaled.is_empty() {
        series.info(&[("when_deleted", deleted), ("when_scaled", scaled)]);
    }
}
