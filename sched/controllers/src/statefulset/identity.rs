//! Who the Pods of a StatefulSet are: names with ordinals, the labels and host names that follow, the claims of each
//! ordinal, and whole Pods of a template.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::revisions::REVISION_LABEL;
use crate::{meta, pods};

/// The label with the Pod's name.
pub const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the Pod's ordinal.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The replicas of the spec.
pub fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

/// The first ordinal.
pub fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// The set's name and the ordinal in a Pod's name.
pub fn parent_and_ordinal(name: &str) -> Option<(&str, i32)> {
    let (parent, digits) = name.rsplit_once('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    (ordinal.to_string() == digits).then_some((parent, ordinal))
}

/// The ordinal of a Pod of the set; `None` for a Pod that is not named like one.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = parent_and_ordinal(meta::name(&pod.metadata))?;
    (parent == meta::name(&set.metadata)).then_some(ordinal)
}

/// Whether the set wants a Pod of that ordinal.
pub fn in_range(set: &StatefulSet, ordinal: i32) -> bool {
    ordinal >= start(set) && ordinal < start(set).saturating_add(replicas(set))
}

/// The name of a Pod.
pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", meta::name(&set.metadata))
}

fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec.volume_claim_templates.as_deref().unwrap_or_default()
}

fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}-{ordinal}", meta::name(&template.metadata), meta::name(&set.metadata))
}

/// The names of an ordinal's claims.
pub fn claim_names(set: &StatefulSet, ordinal: i32) -> Vec<String> {
    claim_templates(set).iter().map(|template| claim_name(set, template, ordinal)).collect()
}

/// The claims of an ordinal, as they are created.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(set, template, ordinal));
        claim.metadata.namespace = set.metadata.namespace.clone();
        let selected = set.spec.selector.match_labels.clone().unwrap_or_default();
        claim.metadata.labels.get_or_insert_default().extend(selected);
        claim.status = None;
        claim
    };
    claim_templates(set).iter().map(claim).collect()
}

/// The volumes of an ordinal's claims.
pub fn claim_volumes(set: &StatefulSet, ordinal: i32) -> Vec<Volume> {
    let volume = |template: &PersistentVolumeClaim| Volume {
        name: meta::name(&template.metadata).to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, template, ordinal),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    };
    claim_templates(set).iter().map(volume).collect()
}

/// The labels that identify a Pod.
pub fn labels(set: &StatefulSet, ordinal: i32) -> BTreeMap<String, String> {
    BTreeMap::from([(POD_NAME.to_owned(), pod_name(set, ordinal)), (POD_INDEX.to_owned(), ordinal.to_string())])
}

/// Whether a Pod has the label with its name.
pub fn identity_matches(pod: &Pod) -> bool {
    meta::label(&pod.metadata, POD_NAME) == Some(meta::name(&pod.metadata))
}

/// Whether a Pod's volumes are the claims of its ordinal.
pub fn storage_matches(set: &StatefulSet, pod: &Pod, ordinal: i32) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    claim_volumes(set, ordinal).iter().all(|wanted| {
        let claim = wanted.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
        let has = |volume: &Volume| volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str()) == claim;
        volumes.iter().any(|volume| volume.name == wanted.name && has(volume))
    })
}

/// The name of the revision that a Pod was created from.
pub fn revision(pod: &Pod) -> &str {
    meta::label(&pod.metadata, REVISION_LABEL).unwrap_or_default()
}

/// A Pod of `template`, which is that of `revision`.
pub fn pod(set: &StatefulSet, ordinal: i32, template: &PodTemplateSpec, revision: &str) -> Pod {
    let name = pod_name(set, ordinal);
    let from = template.metadata.clone().unwrap_or_default();
    let mut all_labels = from.labels.unwrap_or_default();
    all_labels.extend(labels(set, ordinal));
    all_labels.insert(REVISION_LABEL.to_owned(), revision.to_owned());
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.service_name.clone().filter(|service| !service.is_empty());
    let mut volumes = claim_volumes(set, ordinal);
    let own = spec.volumes.take().unwrap_or_default().into_iter();
    let own: Vec<Volume> = own.filter(|volume| volumes.iter().all(|claimed| claimed.name != volume.name)).collect();
    volumes.extend(own);
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            name: Some(name),
            namespace: set.metadata.namespace.clone(),
            labels: Some(all_labels),
            annotations: from.annotations,
            finalizers: from.finalizers,
            owner_references: Some(vec![meta::controller_reference(set)]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// Whether the Pod runs and is ready.
pub fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}
