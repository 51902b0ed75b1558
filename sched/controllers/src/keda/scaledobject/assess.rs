//! What the triggers of a ScaledObject say together: upstream's `getScaledObjectState`, without requests.

use api_model::message::Message;

use super::fallback::{self, Present};
use crate::keda::spec::ScaledObjectSpec;
use crate::keda::status::{Activity, ScaledObjectStatus};
use crate::keda::triggers::{Sample, Trigger};

/// What was read of one trigger.
pub struct Reading<'a> {
    /// The trigger.
    pub trigger: &'a Trigger,
    /// The value, or why there is none.
    pub result: Result<Sample, Message>,
}

/// What the triggers say together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct State {
    /// At least one is active.
    pub is_active: bool,
    /// At least one failed.
    pub is_error: bool,
    /// At least one failed so often that the fallback counts.
    pub is_fallback: bool,
    /// The metrics of the active ones.
    pub active: Vec<String>,
    /// Why triggers failed.
    pub problems: Vec<Message>,
}

/// Judges the readings, and counts failures and activity in the status.
pub fn assess(spec: &ScaledObjectSpec, readings: &[Reading<'_>], present: Present, status: &mut ScaledObjectStatus) -> State {
    let mut state = State::default();
    let mut activity = std::collections::BTreeMap::new();
    for Reading { trigger, result } in readings {
        let Some(metric) = trigger.external_name() else { continue };
        fallback::count(spec, status, metric, result.is_err());
        let is_active = match result {
            Ok(sample) => sample.is_active,
            Err(problem) => {
                let fallback = fallback::of(spec, status, metric).zip(trigger.target());
                let counts = fallback.and_then(|(fallback, target)| fallback::value(fallback, present, target)).is_some();
                if !counts {
                    state.problems.push(problem.clone());
                }
                state.is_fallback |= counts;
                state.is_error |= !counts;
                counts
            }
        };
        state.is_active |= is_active;
        state.active.extend(is_active.then(|| metric.to_owned()));
        activity.insert(metric.to_owned(), Activity { is_active });
    }
    // The autoscaler alone reads CPU and memory: without another trigger the target is always active.
    let of_resources = spec.triggers.iter().filter(|trigger| matches!(trigger.type_.as_str(), "cpu" | "memory")).count();
    if spec.triggers.len() <= of_resources && !state.is_error {
        state.is_active = true;
    }
    status.triggers_activity = activity;
    status.health.retain(|metric, _| status.external_metric_names.contains(metric));
    state
}
