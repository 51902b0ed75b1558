//! The strategies by which the use of a node's resources becomes a score (`NodeResourcesFit`).

use sched_framework::SCORE_MAX;

use super::resource_allocation::Amounts;
use crate::config::{ResourceSpec, ScoringStrategyType, UtilizationShapePoint};

/// The highest score of a point of a shape: upstream's `MaxCustomPriorityScore`.
const POINT_SCORE_MAX: i64 = 10;

/// A strategy with the resources that it looks at.
pub(super) struct ScoringStrategy {
    strategy: ScoringStrategyType,
    resources: Vec<ResourceSpec>,
}

impl ScoringStrategy {
    pub fn new(strategy: ScoringStrategyType, resources: &[ResourceSpec]) -> Self {
        Self { strategy, resources: resources.to_vec() }
    }

    /// The names of the resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(|resource| resource.name.as_str())
    }

    /// The weighted mean of the scores of the resources. A resource without amounts does not count.
    pub fn score(&self, amounts: impl Fn(&str) -> Option<Amounts>) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ResourceSpec { name, weight } in &self.resources {
            let score = amounts(name).and_then(|amounts| self.resource_score(amounts));
            if let Some(score) = score {
                sum += score * weight;
                weights += weight;
            }
        }
        match &self.strategy {
            _ if weights == 0 => 0,
            ScoringStrategyType::RequestedToCapacityRatio(_) => (2 * sum + weights) / (2 * weights),
            ScoringStrategyType::LeastAllocated | ScoringStrategyType::MostAllocated => sum / weights,
        }
    }

    /// The score of one resource; `None` when it does not count.
    fn resource_score(&self, Amounts { allocatable, requested }: Amounts) -> Option<i64> {
        match &self.strategy {
            ScoringStrategyType::LeastAllocated => Some(share(allocatable.saturating_sub(requested), allocatable)),
            ScoringStrategyType::MostAllocated => Some(share(requested, allocatable)),
            ScoringStrategyType::RequestedToCapacityRatio(shape) => {
                Some(score_at(share(requested, allocatable), shape)).filter(|score| *score > 0)
            }
        }
    }
}

/// The share in per cent, from 0 to 100.
fn share(part: i64, whole: i64) -> i64 {
    let part = i128::from(part.clamp(0, whole));
    i64::try_from(part * i128::from(SCORE_MAX) / i128::from(whole)).unwrap_or(SCORE_MAX)
}

/// The score of a resource that is used to so many per cent: straight lines join the points (upstream's `BuildBrokenLinearFunction`).
fn score_at(utilization: i64, shape: &[UtilizationShapePoint]) -> i64 {
    let scaled = |point: &UtilizationShapePoint| (i64::from(point.utilization), i64::from(point.score) * (SCORE_MAX / POINT_SCORE_MAX));
    let mut before: Option<(i64, i64)> = None;
    for (at, score) in shape.iter().map(scaled) {
        if utilization <= at {
            let Some((from, start)) = before else { return score };
            return start + (score - start) * (utilization - from) / (at - from);
        }
        before = Some((at, score));
    }
    before.map_or(0, |(_, score)| score)
}

#[cfg(test)]
mod tests;
