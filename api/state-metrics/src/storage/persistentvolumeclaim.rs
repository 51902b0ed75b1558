//! PersistentVolumeClaims: their phase, their volume and how much they request.

use api_model::k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, namespaced};
use crate::quantity::whole;
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

const PHASES: [&str; 3] = ["Lost", "Bound", "Pending"];
/// The annotation that named the class before the field did. It comes first.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

impl Kind for PersistentVolumeClaim {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("persistentvolumeclaim", self)
    }
}

const FAMILIES: &[Family<PersistentVolumeClaim>] = &[
    gauge("kube_persistentvolumeclaim_info", "A claim with its class, its volume and its mode.", info),
    gauge("kube_persistentvolumeclaim_status_phase", "1 for the phase of the claim, 0 for the other phases.", |claim, series| {
        if let Some(phase) = &or_empty(&claim.status).phase {
            series.states("phase", &PHASES, phase);
        }
    }),
    gauge("kube_persistentvolumeclaim_resource_requests_storage_bytes", "Bytes of storage that the claim requests.", requests),
    gauge("kube_persistentvolumeclaim_access_mode", "An access mode that the claim asks for.", |claim, series| {
        for mode in list(&or_empty(&claim.spec).access_modes) {
            series.info(&[("access_mode", mode)]);
        }
    }),
    gauge("kube_persistentvolumeclaim_status_condition", "1 for the status of a condition of the claim.", |claim, series| {
        for condition in list(&or_empty(&claim.status).conditions) {
            series.condition(&[("condition", &condition.type_)], "status", &condition.status);
        }
    }),
    gauge("kube_persistentvolumeclaim_created", "When the claim was created, in Unix seconds.", created),
    gauge("kube_persistentvolumeclaim_deletion_timestamp", "When the deletion of the claim began, in Unix seconds.", deleted),
];

fn info(claim: &PersistentVolumeClaim, series: &mut Series<'_>) {
    let spec = or_empty(&claim.spec);
    let annotation = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLASS_ANNOTATION));
    series.info(&[
        ("storageclass", annotation.map_or(text(&spec.storage_class_name), String::as_str)),
        ("volumename", text(&spec.volume_name)),
        ("volumemode", text(&spec.volume_mode)),
    ]);
}

fn requests(claim: &PersistentVolumeClaim, series: &mut Series<'_>) {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let storage = resources.and_then(|resources| resources.requests.as_ref()?.get("storage"));
    if let Some(bytes) = storage.and_then(whole) {
        series.value(bytes);
    }
}
