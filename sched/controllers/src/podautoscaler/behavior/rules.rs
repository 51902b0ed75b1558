//! The scaling rules of one direction, with their defaults, and the limit that their policies set.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules};

use crate::podautoscaler::history::History;

/// More or fewer replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// More.
    Up,
    /// Fewer.
    Down,
}

/// The rules of a direction.
#[derive(Debug)]
pub struct Rules<'a> {
    direction: Direction,
    /// The stabilization window.
    pub window: SignedDuration,
    select_policy: &'a str,
    policies: &'a [HPAScalingPolicy],
}

impl<'a> Rules<'a> {
    /// The rules of an autoscaler. The API server has set everything but the window of scale-downs.
    pub fn new(direction: Direction, rules: Option<&'a HPAScalingRules>, downscale: SignedDuration) -> Self {
        let window = rules.and_then(|rules| rules.stabilization_window_seconds).map(i64::from).map(SignedDuration::from_secs);
        Self {
            direction,
            window: window.unwrap_or(if direction == Direction::Up { SignedDuration::ZERO } else { downscale }),
            select_policy: rules.and_then(|rules| rules.select_policy.as_deref()).unwrap_or("Max"),
            policies: rules.and_then(|rules| rules.policies.as_deref()).unwrap_or_default(),
        }
    }

    /// The longest period of the policies.
    pub fn longest_period(&self) -> SignedDuration {
        self.policies.iter().map(period).max().unwrap_or_default()
    }

    /// The number of replicas that the policies allow: that of the policy with the greatest change, or with the least.
    pub fn limit(&self, history: &History, current: i32, now: Timestamp) -> i32 {
        let allowed = self.policies.iter().map(|policy| self.allowed(policy, history.at_start_of(period(policy), current, now)));
        let is_least_change = match self.select_policy {
            "Disabled" => return current,
            policy => policy == "Min",
        };
        // The least growth ends at the smallest number, the least shrinking at the largest.
        let limit = if (self.direction == Direction::Up) == is_least_change { allowed.min() } else { allowed.max() };
        limit.unwrap_or(current)
    }

    /// The number of replicas that one policy allows after it was `start`.
    fn allowed(&self, policy: &HPAScalingPolicy, start: i32) -> i32 {
        let is_percent = policy.type_ == "Percent";
        match self.direction {
            // Rounded up: otherwise a small number would never grow. `as` saturates.
            Direction::Up if is_percent => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            Direction::Up => start.saturating_add(policy.value),
            Direction::Down if is_percent => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            Direction::Down => start.saturating_sub(policy.value),
        }
    }
}

fn period(policy: &HPAScalingPolicy) -> SignedDuration {
    SignedDuration::from_secs(policy.period_seconds.into())
}
