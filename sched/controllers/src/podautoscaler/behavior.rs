//! From the proposal of the metrics to the number of replicas that the target gets: stabilization, policies, limits. Upstream's
//! `normalizeDesiredReplicas` and `normalizeDesiredReplicasWithBehaviors`.

mod rules;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;

use super::conditions::Says;
use super::history::History;
use rules::{Direction, Rules};

/// Without `behavior`, replicas grow at most to this multiple of themselves in one pass.
const SCALE_UP_FACTOR: i32 = 2;
/// Without `behavior`, up to this number of replicas there is no such limit.
const SCALE_UP_MINIMUM: i32 = 4;

const READY: Says = Says { is_true: true, reason: "ReadyForNewScale", message: "recommended size matches current size" };
const UP_STABILIZED: Says = Says {
    is_true: true,
    reason: "ScaleUpStabilized",
    message: "recent recommendations were lower than current one, applying the lowest recent recommendation",
};
const DOWN_STABILIZED: Says = Says {
    is_true: true,
    reason: "ScaleDownStabilized",
    message: "recent recommendations were higher than current one, applying the highest recent recommendation",
};
const WITHIN_RANGE: Says =
    Says { is_true: false, reason: "DesiredWithinRange", message: "the desired count is within the acceptable range" };
const TOO_MANY: Says =
    Says { is_true: true, reason: "TooManyReplicas", message: "the desired replica count is more than the maximum replica count" };
const TOO_FEW: Says =
    Says { is_true: true, reason: "TooFewReplicas", message: "the desired replica count is less than the minimum replica count" };
const UP_LIMITED: Says =
    Says { is_true: true, reason: "ScaleUpLimit", message: "the desired replica count is increasing faster than the maximum scale rate" };
const DOWN_LIMITED: Says =
    Says { is_true: true, reason: "ScaleDownLimit", message: "the desired replica count is decreasing faster than the maximum scale rate" };

/// The present number of replicas and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The target's replicas.
    pub current: i32,
    /// `minReplicas`.
    pub min: i32,
    /// `maxReplicas`.
    pub max: i32,
}

/// The number of replicas that the target is to have, and what the conditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalized {
    /// The number.
    pub replicas: i32,
    /// `AbleToScale`.
    pub able: Says,
    /// `ScalingLimited`.
    pub limited: Says,
}

/// Stabilizes and limits a proposal, and adds it to the history. `downscale` is the stabilization window of autoscalers that name
/// none.
pub fn normalize(
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    history: &mut History,
    bounds: Bounds,
    proposal: i32,
    downscale: SignedDuration,
    now: Timestamp,
) -> Normalized {
    match behavior {
        None => by_default(history, bounds, proposal, downscale, now),
        Some(behavior) => {
            let up = Rules::new(Direction::Up, behavior.scale_up.as_ref(), downscale);
            let down = Rules::new(Direction::Down, behavior.scale_down.as_ref(), downscale);
            let (stabilized, able) = stabilize(history, bounds.current, proposal, &up, &down, now);
            let (replicas, limited) = limit(history, bounds, stabilized, &up, &down, now);
            Normalized { replicas, able, limited }
        }
    }
}

/// The longest period of the policies: for how long a change of the replicas matters.
pub fn longest_period(behavior: &HorizontalPodAutoscalerBehavior) -> SignedDuration {
    let rules = [(Direction::Up, &behavior.scale_up), (Direction::Down, &behavior.scale_down)];
    let periods = rules.map(|(direction, rules)| Rules::new(direction, rules.as_ref(), SignedDuration::ZERO).longest_period());
    periods.into_iter().max().unwrap_or_default()
}

fn by_default(history: &mut History, bounds: Bounds, proposal: i32, window: SignedDuration, now: Timestamp) -> Normalized {
    let recent = history.proposals(now).filter(|(age, _)| *age <= window).map(|(_, replicas)| replicas);
    let stabilized = recent.fold(proposal, i32::max);
    history.propose(proposal, window, now);
    let able = if stabilized == proposal { READY } else { DOWN_STABILIZED };
    let rate = bounds.current.saturating_mul(SCALE_UP_FACTOR).max(SCALE_UP_MINIMUM);
    let (most, too_many) = if bounds.max > rate { (rate, UP_LIMITED) } else { (bounds.max, TOO_MANY) };
    let (replicas, limited) = if stabilized < bounds.min {
        (bounds.min, TOO_FEW)
    } else if stabilized > most {
        (most, too_many)
    } else {
        (stabilized, WITHIN_RANGE)
    };
    Normalized { replicas, able, limited }
}

/// Moves from the present number only as far as all proposals of the direction's window agree.
fn stabilize(history: &mut History, current: i32, proposal: i32, up: &Rules<'_>, down: &Rules<'_>, now: Timestamp) -> (i32, Says) {
    let recent = |window| history.proposals(now).filter(move |(age, _)| *age < window).map(|(_, replicas)| replicas);
    let lowest = recent(up.window).fold(proposal, i32::min);
    let highest = recent(down.window).fold(proposal, i32::max);
    let stabilized = current.max(lowest).min(highest);
    history.propose(proposal, up.window.max(down.window), now);
    let able = match stabilized {
        same if same == proposal => READY,
        _ if proposal >= current => UP_STABILIZED,
        _ => DOWN_STABILIZED,
    };
    (stabilized, able)
}

/// Applies the policies of the direction, and the minimum or maximum.
fn limit(history: &History, bounds: Bounds, wanted: i32, up: &Rules<'_>, down: &Rules<'_>, now: Timestamp) -> (i32, Says) {
    let Bounds { current, min, max } = bounds;
    if wanted > current {
        // What was added in this period already stays.
        let rate = up.limit(history, current, now).max(current);
        let (most, says) = if max > rate { (rate, UP_LIMITED) } else { (max, TOO_MANY) };
        if wanted > most {
            return (most, says);
        }
    } else if wanted < current {
        let rate = down.limit(history, current, now).min(current);
        let (least, says) = if min < rate { (rate, DOWN_LIMITED) } else { (min, TOO_FEW) };
        if wanted < least {
            return (least, says);
        }
    }
    (wanted, WITHIN_RANGE)
}
