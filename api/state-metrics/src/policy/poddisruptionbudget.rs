//! PodDisruptionBudgets: how many Pods are healthy, and how many may be evicted.

use api_model::k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, namespaced};
use crate::read::or_empty;
use crate::series::Label;

impl Kind for PodDisruptionBudget {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("poddisruptionbudget", self)
    }
}

const FAMILIES: &[Family<PodDisruptionBudget>] = &[
    gauge("kube_poddisruptionbudget_created", "When the budget was created, in Unix seconds.", created),
    gauge("kube_poddisruptionbudget_status_current_healthy", "How many Pods are healthy.", |budget, series| {
        series.count(or_empty(&budget.status).current_healthy);
    }),
    gauge("kube_poddisruptionbudget_status_desired_healthy", "How many Pods have to be healthy.", |budget, series| {
        series.count(or_empty(&budget.status).desired_healthy);
    }),
    gauge("kube_poddisruptionbudget_status_pod_disruptions_allowed", "How many Pods may be evicted now.", |budget, series| {
        series.count(or_empty(&budget.status).disruptions_allowed);
    }),
    gauge("kube_poddisruptionbudget_status_expected_pods", "How many Pods the budget counts.", |budget, series| {
        series.count(or_empty(&budget.status).expected_pods);
    }),
    gauge("kube_poddisruptionbudget_status_observed_generation", "The generation that the status is about.", |budget, series| {
        series.count(or_empty(&budget.status).observed_generation);
    }),
    gauge("kube_poddisruptionbudget_deletion_timestamp", "When the deletion of the budget began, in Unix seconds.", deleted),
];
