//! The checks of a ScaledObject in upstream's order, and the autoscaler that follows from it.

use std::sync::Arc;

use api_client::informer::ObjectKey;
use api_model::message::Message;
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, HorizontalPodAutoscaler, MetricSpec};
use kube::api::DeleteParams;

use super::annotations::{Pauses, paused_replicas};
use super::{Draft, ScaledObjects, Stop, autoscaler, rules};
use crate::failure::Failure;
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::{self, ScaledObjectSpec};
use crate::keda::status::{FALSE, PAUSED, TRUE, TargetKind};
use crate::keda::triggers::{self, Trigger};
use crate::note::{normal, warning};
use crate::podautoscaler::target::{NoScale, Target};
use crate::{meta, writes};

const TARGET: &str = "ScaledObject doesn't have correct scaleTargetRef specification";
const BOUNDS: &str = "ScaledObject doesn't have correct Idle/Min/Max Replica Counts specification";
const TRIGGERS: &str = "ScaledObject doesn't have correct triggers specification";
const AUTOSCALER: &str = "failed to ensure HPA is correctly created for ScaledObject";
/// For what upstream's admission webhook rejects.
const ADMISSION: &str = "ScaledObject is not valid";
const PAUSED_COUNT: &str = "failed to scale target to paused replica count";
const PAUSED_MESSAGE: &str = "ScaledObject is paused";
const UNPAUSED_MESSAGE: &str = "pause annotation removed for ScaledObject";

/// The result of the checks.
pub enum Checked {
    /// The object is paused as a whole.
    Paused,
    /// The object is correct.
    Scaling(Box<Scaling>),
}

/// What the scaling of a correct object needs.
pub struct Scaling {
    /// The target with its replicas.
    pub target: Target,
    /// The triggers, in their order.
    pub triggers: Vec<Arc<Trigger>>,
}

fn problem(part: &'static str) -> impl Fn(Message) -> Stop {
    move |why| Stop::Problem(part, why)
}

impl ScaledObjects {
    /// Checks an object. Brings its autoscaler in line, or deletes it while the object is paused.
    pub(super) async fn check(
        &self,
        key: &ObjectKey,
        object: &ScaledObject,
        spec: &ScaledObjectSpec,
        draft: &mut Draft,
    ) -> Result<Checked, Stop> {
        let pauses = Pauses::of(&object.metadata);
        if pauses.all {
            self.pause(key, object, spec, draft).await?;
            return Ok(Checked::Paused);
        }
        if pauses.scale_in || pauses.scale_out {
            draft.paused();
        } else if draft.status.conditions.is(PAUSED, TRUE) {
            draft.status.conditions.set(PAUSED, FALSE, "ScaledObjectUnpaused", UNPAUSED_MESSAGE);
            draft.notes.push(normal("ScaledObjectUnpaused", UNPAUSED_MESSAGE));
            draft.status.paused_replica_count = None;
        }
        if spec.scale_target_ref.name.is_empty() {
            return Err(Stop::Problem(TARGET, "ScaledObject.spec.scaleTargetRef.name is missing".into()));
        }
        rules::check_names(&key.name, &autoscaler::name(&key.name, spec)).map_err(problem(ADMISSION))?;
        let (kind, target) = self.target(key, spec, draft).await?;
        rules::check_bounds(spec).map_err(problem(BOUNDS))?;
        spec::check_triggers(&spec.triggers).map_err(problem(TRIGGERS))?;
        rules::check_fallback(spec).and_then(|()| rules::check_scale_to_zero(spec)).map_err(problem(ADMISSION))?;
        rules::check_rivals(object, spec, &kind, &self.objects.in_namespace(&key.namespace)).map_err(problem(ADMISSION))?;
        rules::check_autoscalers(object, spec, &kind, &self.autoscalers.in_namespace(&key.namespace)).map_err(problem(ADMISSION))?;
        let (types, authentications) = spec::types(&spec.triggers);
        (draft.status.triggers_types, draft.status.authentications_types) = (Some(types), Some(authentications));
        let triggers = triggers::build_all(&self.client, &key.namespace, &spec.triggers).await.map_err(|why| {
            draft.notes.push(warning("KEDAScalerFailed", why.to_string()));
            Stop::Problem(AUTOSCALER, why)
        })?;
        let (metrics, [externals, resources]) = autoscaler::metrics(&key.name, &triggers).map_err(problem(AUTOSCALER))?;
        (draft.status.external_metric_names, draft.status.resource_metric_names) = (externals, resources);
        self.ensure_autoscaler(key, object, spec, &kind, metrics, draft).await?;
        Ok(Checked::Scaling(Box::new(Scaling { target, triggers })))
    }

    /// The target; what it was before the first scaling goes into the status.
    async fn target(&self, key: &ObjectKey, spec: &ScaledObjectSpec, draft: &mut Draft) -> Result<(TargetKind, Target), Stop> {
        let (group, version, kind) = rules::target_kind(&spec.scale_target_ref).map_err(problem(TARGET))?;
        let is_kind = |one: &crate::discovery::Resource| one.group == group && one.version == version && one.kind == kind;
        let Some(resource) = self.resources.find(is_kind).await? else {
            let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
            let why = format!("no matches for kind {kind:?} in version {api_version:?}");
            draft.notes.push(warning("ScaledObjectUpdateFailed", why.clone()));
            return Err(Stop::Problem(TARGET, why.into()));
        };
        let kind = TargetKind { group, version, kind, resource: resource.plural.clone() };
        let name = spec.scale_target_ref.name.clone();
        let reference = CrossVersionObjectReference { api_version: Some(kind.api_version()), kind: kind.kind.clone(), name };
        let target = match Target::get(&self.client, &self.resources, &key.namespace, &reference).await {
            Ok(target) => target,
            Err(NoScale::Request(failure)) if !failure.is_not_found() => return Err(failure.into()),
            Err(why) => {
                let note =
                    if resource.has_scale { "Target resource doesn't exist" } else { "Target resource doesn't expose /scale subresource" };
                draft.notes.push(warning("ScaledObjectCheckFailed", note));
                return Err(Stop::Problem(TARGET, why.to_string().into()));
            }
        };
        draft.status.scale_target_kind = kind.text();
        draft.status.scale_target_gvkr = Some(kind.clone());
        draft.status.original_replica_count.get_or_insert(target.replicas().spec);
        Ok((kind, target))
    }

    async fn ensure_autoscaler(
        &self,
        key: &ObjectKey,
        object: &ScaledObject,
        spec: &ScaledObjectSpec,
        kind: &TargetKind,
        metrics: Vec<MetricSpec>,
        draft: &mut Draft,
    ) -> Result<(), Stop> {
        let wanted = autoscaler::wanted(object, spec, kind, metrics);
        let name = meta::name(&wanted.metadata).to_owned();
        if !draft.status.hpa_name.is_empty() && draft.status.hpa_name != name {
            self.delete_autoscaler(&ObjectKey::new(&key.namespace, &draft.status.hpa_name), object).await?;
        }
        let patch = autoscaler::patch(&wanted);
        let written = match self.autoscalers.get(&ObjectKey::new(&key.namespace, &name)) {
            None => Some(writes::create(&self.client, &wanted).await.map_err(refused)?),
            Some(stored) => {
                rules::may_own(object, &stored).map_err(problem(AUTOSCALER))?;
                let is_applied = self.applied.lock().get(key) == Some(&patch);
                match is_applied && autoscaler::has(&stored, &patch) {
                    true => None,
                    false => Some(writes::patch(&self.client, stored.as_ref(), patch.clone()).await.map_err(refused)?),
                }
            }
        };
        self.applied.lock().insert(key.clone(), patch);
        if let Some(written) = written {
            writes::delivered(&self.autoscalers, &written).await?;
        }
        draft.status.hpa_name = name;
        Ok(())
    }

    /// Deletes an autoscaler of this object.
    pub(super) async fn delete_autoscaler(&self, name: &ObjectKey, object: &ScaledObject) -> Result<(), Failure> {
        let stored = self.autoscalers.get(name);
        let own = |one: &Arc<HorizontalPodAutoscaler>| meta::controller_uid(&one.metadata) == meta::uid(&object.metadata);
        match stored.filter(own) {
            Some(stored) => writes::delete(&self.client, stored.as_ref(), DeleteParams::default()).await,
            None => Ok(()),
        }
    }

    /// Deletes the autoscaler, and gives the target the replicas of the annotation.
    async fn pause(&self, key: &ObjectKey, object: &ScaledObject, spec: &ScaledObjectSpec, draft: &mut Draft) -> Result<(), Stop> {
        draft.paused();
        let name = Some(draft.status.hpa_name.clone()).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| autoscaler::name(&key.name, spec));
        self.delete_autoscaler(&ObjectKey::new(&key.namespace, name), object).await?;
        let count = paused_replicas(&object.metadata).map_err(problem(PAUSED_COUNT))?;
        if let Some(count) = count {
            let (_, mut target) = self.target(key, spec, draft).await?;
            if target.replicas().spec != count {
                target.rescale(count).await?;
            }
        }
        draft.status.paused_replica_count = count;
        Ok(())
    }
}

/// What the server rejects is a problem of the object; all other failures are tried again.
fn refused(failure: Failure) -> Stop {
    match failure.code() {
        Some(400 | 403 | 422) => Stop::Problem(AUTOSCALER, failure.message().into()),
        _ => Stop::Failure(failure),
    }
}

impl Draft {
    fn paused(&mut self) {
        if !self.status.conditions.is(PAUSED, TRUE) {
            self.notes.push(normal("ScaledObjectPaused", PAUSED_MESSAGE));
        }
        self.status.conditions.set(PAUSED, TRUE, "ScaledObjectPaused", PAUSED_MESSAGE);
    }
}
