//! What follows from the state of the triggers for the replicas of the target and the conditions: upstream's `RequestScale`, without
//! requests.

use jiff::{SignedDuration, Timestamp};

use super::annotations::Pauses;
use super::assess::State;
use crate::keda::spec::ScaledObjectSpec;
use crate::keda::status::{ACTIVE, FALSE, PARTIAL_TRIGGER_ERROR, READY, ScaledObjectStatus, TRIGGER_ERROR, TRUE, UNKNOWN};
use crate::meta;

/// Upstream's default of `cooldownPeriod`.
const COOLDOWN_SECONDS: i32 = 300;

/// What a decision is about.
pub struct Snapshot<'a> {
    /// The spec.
    pub spec: &'a ScaledObjectSpec,
    /// The annotations.
    pub pauses: Pauses,
    /// When the ScaledObject was created.
    pub created: Timestamp,
    /// The target's replicas.
    pub replicas: i32,
    /// The time.
    pub now: Timestamp,
}

/// What happens to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Nothing.
    Stay,
    /// It comes back from zero, or from the idle replicas.
    Activate(i32),
    /// It gets the idle or the least replicas.
    Deactivate(i32),
    /// It gets the least replicas, below which somebody else has brought it.
    Minimum(i32),
}

impl Snapshot<'_> {
    /// Decides, and sets the conditions and the time of the last activity.
    pub fn decide(&self, state: &State, status: &mut ScaledObjectStatus) -> Scale {
        if state.is_active || self.pauses.forces_activation { self.active(state, status) } else { self.inactive(state, status) }
    }

    fn active(&self, state: &State, status: &mut ScaledObjectStatus) -> Scale {
        let why = match self.pauses.forces_activation {
            true => "Scaling is performed because activation is being forced by annotation",
            false => "Scaling is performed because triggers are active",
        };
        status.conditions.set(ACTIVE, TRUE, "ScalerActive", why);
        let is_idle = self.spec.idle_replica_count.is_some() && self.replicas < self.spec.min();
        if is_idle || self.replicas == 0 {
            return if self.pauses.scale_out { Scale::Stay } else { Scale::Activate(self.spec.autoscaler_min()) };
        }
        if state.is_error {
            let why = "Some triggers defined in ScaledObject are not working correctly";
            status.conditions.set(READY, UNKNOWN, PARTIAL_TRIGGER_ERROR, why);
        } else {
            status.last_active_time = Some(meta::whole_seconds(self.now));
        }
        Scale::Stay
    }

    fn inactive(&self, state: &State, status: &mut ScaledObjectStatus) -> Scale {
        let spec = self.spec;
        status.conditions.set(ACTIVE, FALSE, "ScalerNotActive", "Scaling is not performed because triggers are not active");
        match &spec.fallback {
            // At zero replicas the autoscaler would not scale to those of the fallback.
            Some(fallback) if state.is_error && fallback.replicas != 0 => return Scale::Stay,
            None if state.is_error => {
                status.conditions.set(READY, FALSE, TRIGGER_ERROR, "Triggers defined in ScaledObject are not working correctly");
                return Scale::Stay;
            }
            _ => {}
        }
        let is_above_idle = spec.idle_replica_count.is_some_and(|idle| self.replicas > idle);
        if is_above_idle || (self.replicas > 0 && spec.min() == 0) {
            return self.deactivate(status);
        }
        if spec.idle_replica_count.is_none() && self.replicas < spec.min() { Scale::Minimum(spec.min()) } else { Scale::Stay }
    }

    fn deactivate(&self, status: &mut ScaledObjectStatus) -> Scale {
        if self.pauses.scale_in {
            return Scale::Stay;
        }
        // As upstream: a target that was never active was scaled by somebody else, and does not cool down.
        let (since, seconds) = match meta::instant(status.last_active_time.as_ref()) {
            Some(last) => (last, self.spec.cooldown_period.unwrap_or(COOLDOWN_SECONDS)),
            None => (self.created, self.spec.initial_cooldown_period.unwrap_or_default()),
        };
        let is_over = since.checked_add(SignedDuration::from_secs(seconds.into())).is_ok_and(|end| end < self.now);
        if !is_over {
            status.conditions.set(ACTIVE, FALSE, "ScalerCooldown", "Scaler cooling down because triggers are not active");
            return Scale::Stay;
        }
        Scale::Deactivate(self.spec.idle_replica_count.unwrap_or_else(|| self.spec.min()))
    }
}
