//! What a ScaledObject must be, in upstream's words: the checks of its controller and of its admission webhook, without requests.

use api_client::informer::ObjectKey;
use api_model::message::Message;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;

use super::LABEL_LEN_MAX;
use super::annotations::{self, OWNERSHIP, TRANSFER};
use super::autoscaler;
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::{ScaleTarget, ScaledObjectSpec};
use crate::keda::status::TargetKind;
use crate::meta;

/// The kinds of `apps/v1` and Deployments are what a reference means that names nothing else.
pub fn target_kind(target: &ScaleTarget) -> Result<(String, String, String), Message> {
    let kind = if target.kind.is_empty() { "Deployment" } else { &target.kind };
    let api_version = if target.api_version.is_empty() { "apps/v1" } else { &target.api_version };
    let (group, version) = match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", *version),
        [group, version] => (*group, *version),
        _ => return Err(format!("unexpected GroupVersion string: {api_version}").into()),
    };
    Ok((group.to_owned(), version.to_owned(), kind.to_owned()))
}

/// The bounds of the replicas.
pub fn check_bounds(spec: &ScaledObjectSpec) -> Result<(), Message> {
    let min = if spec.min_replica_count.is_some() { spec.autoscaler_min() } else { 0 };
    let max = spec.max();
    if min > max {
        return Err(format!("MinReplicaCount={min} must be less than MaxReplicaCount={max}").into());
    }
    match spec.idle_replica_count {
        Some(idle) if idle >= min => Err(format!("IdleReplicaCount={idle} must be less than MinReplicaCount={min}").into()),
        _ => Ok(()),
    }
}

/// The fallback, and the formula, which this version does not compute.
pub fn check_fallback(spec: &ScaledObjectSpec) -> Result<(), Message> {
    if spec.has_modifiers() {
        return Err("error validating formula in ScalingModifiers: scalingModifiers is not supported".into());
    }
    let Some(fallback) = &spec.fallback else { return Ok(()) };
    let (threshold, replicas) = (fallback.failure_threshold, fallback.replicas);
    if threshold < 0 || replicas < 0 {
        return Err(format!("FailureThreshold={threshold} & Replicas={replicas} must both be greater than or equal to 0").into());
    }
    if fallback.behavior == "scalingModifiers" {
        return Err("scalingModifiers fallback behavior requires scalingModifiers.formula to be defined".into());
    }
    if spec.triggers.iter().all(|trigger| matches!(trigger.type_.as_str(), "cpu" | "memory")) {
        let text = "at least one trigger (that is not cpu or memory) has to have the `AverageValue` type for the fallback to be enabled";
        return Err(text.into());
    }
    Ok(())
}

/// The lengths of names that become labels.
pub fn check_names(name: &str, autoscaler: &str) -> Result<(), Message> {
    let (len, max) = (name.len(), LABEL_LEN_MAX);
    if len > max {
        let label = crate::keda::SCALED_OBJECT_NAME;
        return Err(format!(
            "scaledobject name {name:?} is {len} characters long; must be no more than {max} characters because it is used as the {label:?} \
             label value"
        )
        .into());
    }
    let len = autoscaler.len();
    if len > max {
        return Err(format!(
            "HPA name {autoscaler:?} derived from scaledobject is {len} characters long; must be no more than {max} characters; set \
             spec.advanced.horizontalPodAutoscalerConfig.name to a shorter name or shorten the scaledobject name"
        )
        .into());
    }
    Ok(())
}

/// A workload with CPU and memory as its only triggers never comes back from zero.
pub fn check_scale_to_zero(spec: &ScaledObjectSpec) -> Result<(), Message> {
    let has_resources_alone = spec.triggers.iter().all(|trigger| matches!(trigger.type_.as_str(), "cpu" | "memory"));
    if has_resources_alone && spec.min() == 0 {
        return Err("scaledobject has only cpu/memory triggers AND minReplica is 0 (scale to zero doesn't work in this case)".into());
    }
    Ok(())
}

/// No other ScaledObject has the same workload or the same autoscaler. The older one has the right; of two of the same age, the first
/// by name.
pub fn check_rivals(
    object: &ScaledObject,
    spec: &ScaledObjectSpec,
    kind: &TargetKind,
    others: &[impl AsRef<ScaledObject>],
) -> Result<(), Message> {
    let age = |object: &ScaledObject| {
        (meta::instant(object.metadata.creation_timestamp.as_ref()).unwrap_or_default(), meta::name(&object.metadata).to_owned())
    };
    let own = autoscaler::name(meta::name(&object.metadata), spec);
    let elder = others.iter().map(AsRef::as_ref).filter(|other| other.metadata.uid != object.metadata.uid && age(other) < age(object));
    for other in elder {
        let Ok(theirs) = serde_json::from_value::<ScaledObjectSpec>(other.spec.clone()) else { continue };
        let (workload, name) = (&theirs.scale_target_ref.name, meta::name(&other.metadata));
        let is_same_kind =
            target_kind(&theirs.scale_target_ref).is_ok_and(|(group, _, of_kind)| group == kind.group && of_kind == kind.kind);
        if is_same_kind && *workload == spec.scale_target_ref.name {
            return Err(already_managed(workload, kind, &format!("ScaledObject '{name}'")));
        }
        if autoscaler::name(name, &theirs) == own {
            return Err(format!("the HPA '{own}' is already managed by the ScaledObject '{name}'").into());
        }
    }
    Ok(())
}

/// No autoscaler of somebody else scales the workload, unless it is to become the ScaledObject's.
pub fn check_autoscalers(
    object: &ScaledObject,
    spec: &ScaledObjectSpec,
    kind: &TargetKind,
    autoscalers: &[impl AsRef<HorizontalPodAutoscaler>],
) -> Result<(), Message> {
    let workload = &spec.scale_target_ref.name;
    for one in autoscalers.iter().map(AsRef::as_ref) {
        let (target, name) = (&one.spec.scale_target_ref, meta::name(&one.metadata));
        let group = target.api_version.as_deref().unwrap_or_default().rsplit_once('/').map_or("", |(group, _)| group);
        let scales = target.name == *workload && target.kind == kind.kind && group == kind.group;
        let owned = one.metadata.owner_references.iter().flatten().any(|owner| owner.uid == meta::uid(&object.metadata));
        if !scales || owned || meta::annotation(&one.metadata, OWNERSHIP) == Some("false") {
            continue;
        }
        if !annotations::is_true(&object.metadata, TRANSFER) {
            return Err(already_managed(workload, kind, &format!("hpa '{name}'")));
        }
        if spec.autoscaler().is_none_or(|config| config.name != name) {
            let kind = kind.text();
            return Err(format!(
                "the existing hpa '{name}' for workload '{workload}' of type '{kind}' must be specified by name in advanced settings to \
                 enable ownership transfer"
            )
            .into());
        }
    }
    Ok(())
}

fn already_managed(workload: &str, kind: &TargetKind, by: &str) -> Message {
    format!("the workload '{workload}' of type '{}' is already managed by the {by}", kind.text()).into()
}

/// Whether an autoscaler may become the ScaledObject's: it is, or the user wants it, or it is nobody's and scales the same workload.
pub fn may_own(object: &ScaledObject, autoscaler: &HorizontalPodAutoscaler) -> Result<(), Message> {
    let owned = meta::controller_uid(&autoscaler.metadata) == meta::uid(&object.metadata);
    if owned || annotations::is_true(&object.metadata, TRANSFER) {
        return Ok(());
    }
    let key = ObjectKey::from(&autoscaler.metadata);
    Err(format!("horizontalpodautoscalers.autoscaling {:?} already exists", key.name).into())
}
