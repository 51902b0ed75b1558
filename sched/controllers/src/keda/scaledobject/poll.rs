//! One look at the triggers of a ScaledObject, and what follows for its target.

use api_client::informer::ObjectKey;
use jiff::Timestamp;

use super::annotations::Pauses;
use super::assess::{Reading, State, assess};
use super::check::Scaling;
use super::decide::{Scale, Snapshot};
use super::fallback::{self, Present};
use super::{Draft, READY_MESSAGE, READY_REASON, ScaledObjects, Stop};
use crate::external::Latest;
use crate::keda::kinds::ScaledObject;
use crate::keda::spec::ScaledObjectSpec;
use crate::keda::status::{FALLBACK, FALSE, HPA_ACTIVE, READY, ScaledObjectStatus, TRUE};
use crate::keda::triggers;
use crate::meta;
use crate::note::{normal, warning};
use crate::podautoscaler::target::Target;

impl ScaledObjects {
    /// Reads the triggers, and scales the target between zero and one.
    pub(super) async fn poll(
        &self,
        key: &ObjectKey,
        object: &ScaledObject,
        spec: &ScaledObjectSpec,
        scaling: &mut Scaling,
        draft: &mut Draft,
        now: Timestamp,
    ) -> Result<(), Stop> {
        let Scaling { target, triggers } = scaling;
        let results = triggers::read_all(triggers, &self.sources, now).await;
        let readings: Vec<Reading<'_>> = triggers.iter().zip(results).map(|(trigger, result)| Reading { trigger, result }).collect();
        let present = present(target, self, key);
        let state = assess(spec, &readings, present, &mut draft.status);
        let latest = readings.iter().filter_map(|reading| latest(reading, spec, present, &draft.status));
        self.latest.put(key, now, latest.collect());
        draft.judge(spec, &state);
        let created = meta::instant(object.metadata.creation_timestamp.as_ref()).unwrap_or(now);
        let snapshot = Snapshot { spec, pauses: Pauses::of(&object.metadata), created, replicas: present.replicas, now };
        let scale = snapshot.decide(&state, &mut draft.status);
        if !state.is_error {
            draft.recovered();
        }
        self.scale(key, &snapshot, scale, &state, target, draft).await;
        self.mirror_health(key, draft);
        Ok(())
    }

    async fn scale(&self, key: &ObjectKey, snapshot: &Snapshot<'_>, scale: Scale, state: &State, target: &mut Target, draft: &mut Draft) {
        let to = match scale {
            Scale::Stay => return,
            Scale::Activate(to) | Scale::Deactivate(to) | Scale::Minimum(to) => to,
        };
        let (from, name) = (snapshot.replicas, &snapshot.spec.scale_target_ref.name);
        let what = format!("{} {}/{name} from {from} to {to}", draft.status.scale_target_kind, key.namespace);
        let written = target.rescale(to).await;
        if let Err(failure) = &written {
            tracing::warn!(scaled_object = %key, error = failure.chain(), "target not scaled");
        }
        match (scale, written) {
            (Scale::Activate(_), Ok(())) => {
                let by = match snapshot.pauses.forces_activation {
                    true => "caused by forced activation annotation".to_owned(),
                    false => format!("triggered by {}", state.active.join(";")),
                };
                draft.notes.push(normal("KEDAScaleTargetActivated", format!("Scaled {what}, {by}")));
                draft.status.last_active_time = Some(meta::whole_seconds(snapshot.now));
            }
            (Scale::Activate(_), Err(_)) => draft.notes.push(warning("KEDAScaleTargetActivationFailed", format!("Failed to scale {what}"))),
            (Scale::Deactivate(_), Ok(())) => draft.notes.push(normal("KEDAScaleTargetDeactivated", format!("Deactivated {what}"))),
            (Scale::Deactivate(_), Err(_)) => {
                draft.notes.push(warning("KEDAScaleTargetDeactivationFailed", format!("Failed to deactivate {what}")));
            }
            (Scale::Stay | Scale::Minimum(_), _) => {}
        }
    }

    /// Mirrors the autoscaler's condition `ScalingActive`.
    fn mirror_health(&self, key: &ObjectKey, draft: &mut Draft) {
        let autoscaler = self.autoscalers.get(&ObjectKey::new(&key.namespace, &draft.status.hpa_name));
        let conditions = autoscaler.as_ref().and_then(|one| one.status.as_ref()?.conditions.as_ref());
        let Some(condition) = conditions.into_iter().flatten().find(|condition| condition.type_ == "ScalingActive") else { return };
        let message = condition.message.clone().unwrap_or_default();
        let conditions = &mut draft.status.conditions;
        match (condition.status.as_str(), condition.reason.as_deref().unwrap_or_default()) {
            ("True", _) => conditions.set(HPA_ACTIVE, TRUE, "HPAActive", "HPA is actively scaling"),
            // At zero replicas, the autoscaler does not work.
            (_, "ScalingDisabled") => conditions.set(HPA_ACTIVE, TRUE, "ScalingDisabled", message),
            (_, reason) => {
                let reason = if reason.is_empty() { "HPAMetricsUnavailable" } else { reason };
                conditions.set(HPA_ACTIVE, FALSE, reason, format!("HPA is not actively scaling: {message}"));
            }
        }
    }
}

/// The value of a trigger for those who ask before the next look. `status` has counted the failures of this look.
pub(super) fn latest(
    reading: &Reading<'_>,
    spec: &ScaledObjectSpec,
    present: Present,
    status: &ScaledObjectStatus,
) -> Option<(String, Latest)> {
    let metric = reading.trigger.external_name()?;
    let read = reading.result.as_ref().ok().map(|sample| sample.milli);
    let fallback = || fallback::value(fallback::of(spec, status, metric)?, present, reading.trigger.target()?);
    Some((metric.to_owned(), Latest { read, served: read.or_else(fallback) }))
}

/// The target's replicas; those that are ready among its Pods.
fn present(target: &Target, controller: &ScaledObjects, key: &ObjectKey) -> Present {
    let ready = controller.sources.ready(&key.namespace, target.selector());
    Present { replicas: target.replicas().spec, ready }
}

impl Draft {
    /// No trigger fails any more. As upstream, without an event.
    pub(super) fn recovered(&mut self) {
        if !self.status.conditions.is(READY, TRUE) {
            self.status.conditions.set(READY, TRUE, READY_REASON, READY_MESSAGE);
        }
    }

    /// The events of failures, and the condition and the events of the fallback.
    fn judge(&mut self, spec: &ScaledObjectSpec, state: &State) {
        self.notes.extend(state.problems.iter().map(|problem| warning("KEDAScalerFailed", problem.to_string())));
        if spec.fallback.is_none() {
            return;
        }
        match (self.status.conditions.is(FALLBACK, TRUE), state.is_fallback) {
            (false, true) => self.notes.push(normal("ScaledObjectFallbackActivated", "ScaledObject fallback is active")),
            (true, false) => self.notes.push(normal("ScaledObjectFallbackDeactivated", "ScaledObject fallback is no longer active")),
            _ => {}
        }
        let (status, reason, message) = match state.is_fallback {
            true => (TRUE, "FallbackExists", "At least one trigger is falling back on this scaled object"),
            false => (FALSE, "NoFallbackFound", "No fallbacks are active on this scaled object"),
        };
        self.status.conditions.set(FALLBACK, status, reason, message);
    }
}
