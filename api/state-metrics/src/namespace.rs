//! Namespaces: their phase and their conditions.

use api_model::k8s_openapi::api::core::v1::Namespace;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, named};
use crate::read::{list, or_empty, text};
use crate::series::Label;

impl Kind for Namespace {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        named("namespace", self)
    }
}

const FAMILIES: &[Family<Namespace>] = &[
    gauge("kube_namespace_created", "When the Namespace was created, in Unix seconds.", created),
    gauge("kube_namespace_status_phase", "1 for the phase of the Namespace, 0 for the other one.", |namespace, series| {
        series.states("phase", &["Active", "Terminating"], text(&or_empty(&namespace.status).phase));
    }),
    gauge("kube_namespace_status_condition", "1 for the status of a condition of the Namespace.", |namespace, series| {
        for condition in list(&or_empty(&namespace.status).conditions) {
            series.condition(&[("condition", &condition.type_)], "status", &condition.status);
        }
    }),
];
