//! How many replicas a metric proposes: upstream's `ReplicaCalculator`.
//!
//! The proposal is the present number times the ratio of the metric to its target, unless the ratio is within the tolerance.
//! Pods without a metric and Pods that are not ready make a proposal smaller in both directions, and never reverse it.

mod pods;
mod requests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use thiserror::Error;

use super::metrics::{PodMetric, PodMetrics};
use crate::config::Autoscaling;
use crate::pods as pod_state;
use pods::Groups;

/// Why a metric that was read proposes nothing. The texts are upstream's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CalculatorError {
    /// The selector selects nothing.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// The same, where only ready Pods count.
    #[error("unable to calculate ready pods: no pods returned by selector while calculating replica count")]
    NoPodsToBeReady,
    /// No Pod that counts has a metric.
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoMetrics,
    /// No Pod with a metric has requests.
    #[error("no metrics returned matched known pods")]
    NoRequests,
    /// A container has no request for the resource.
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    MissingRequest {
        /// The resource.
        resource: String,
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
    /// A Pod with requests of its own has none for the resource.
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    MissingPodRequest {
        /// The resource.
        resource: String,
        /// The Pod.
        pod: String,
    },
    /// A Pod does not have the container.
    #[error("container {container} not found in Pod {pod}")]
    NoContainer {
        /// The container.
        container: String,
        /// The Pod.
        pod: String,
    },
}

/// How far a metric may be from its target without a proposal, as shares of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Below the target.
    pub scale_down: f64,
    /// Above the target.
    pub scale_up: f64,
}

impl Tolerances {
    fn contain(self, ratio: f64) -> bool {
        1.0 - self.scale_down <= ratio && ratio <= 1.0 + self.scale_up
    }
}

/// A proposal with the average on which it is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The proposed number of replicas.
    pub replicas: i32,
    /// The average of a Pod, in thousandths.
    pub average: i64,
    /// The average in percent of the requests; 0 where requests do not count.
    pub percent: i32,
}

/// What proposals depend on beside the metric.
pub struct Calculator<'a> {
    /// The Pods that the target's selector selects.
    pub pods: &'a [Arc<Pod>],
    /// The tolerances.
    pub tolerances: Tolerances,
    /// How long Pods take to start.
    pub settings: &'a Autoscaling,
    /// The time.
    pub now: Timestamp,
}

impl Calculator<'_> {
    /// For a target in percent of the Pods' requests: of a container, or of all of them.
    pub fn utilization(
        &self,
        current: i32,
        target: i32,
        mut metrics: PodMetrics,
        resource: &str,
        container: Option<&str>,
    ) -> Result<Usage, CalculatorError> {
        let groups = self.counted(&mut metrics, Some(resource))?;
        let requests = requests::of_pods(self.pods, container, resource)?;
        let totals = |metrics: &PodMetrics| {
            let with_request = metrics.iter().filter_map(|(name, metric)| Some((metric.value, requests.get(name.as_str())?)));
            with_request.fold((0_i64, 0_i64, 0_i64), |(used, requested, count), (value, request)| {
                (used.saturating_add(value), requested.saturating_add(*request), count + 1)
            })
        };
        let percent = |metrics: &PodMetrics| {
            let (used, requested, _) = totals(metrics);
            used.saturating_mul(100).checked_div(requested).ok_or(CalculatorError::NoRequests)
        };
        let ratio = |metrics: &PodMetrics| Ok(percent(metrics)? as f64 / f64::from(target));
        let (used, _, count) = totals(&metrics);
        let percent = i32::try_from(percent(&metrics)?).unwrap_or(i32::MAX);
        let average = used.checked_div(count).unwrap_or_default();
        // A Pod without the metric counts as one that uses its whole request, or the target where that is more.
        let full = i64::from(target.max(100));
        let assumed = |pod: &str| requests.get(pod).map_or(0, |request| request.saturating_mul(full) / 100);
        let replicas = self.replicas(current, &groups, metrics, ratio, assumed)?;
        Ok(Usage { replicas, average, percent })
    }

    /// For a target that is an average value of the Pods.
    pub fn average(&self, current: i32, target: i64, mut metrics: PodMetrics, resource: Option<&str>) -> Result<Usage, CalculatorError> {
        let groups = self.counted(&mut metrics, resource)?;
        let average = |metrics: &PodMetrics| {
            let total = metrics.values().fold(0_i64, |sum, metric| sum.saturating_add(metric.value));
            total.checked_div(i64::try_from(metrics.len()).unwrap_or(i64::MAX)).unwrap_or_default()
        };
        let ratio = |metrics: &PodMetrics| Ok(average(metrics) as f64 / target as f64);
        let usage = average(&metrics);
        let replicas = self.replicas(current, &groups, metrics, ratio, |_| target)?;
        Ok(Usage { replicas, average: usage, percent: 0 })
    }

    /// For a target value that is the same for any number of Pods. From 0 replicas it proposes the ratio itself.
    pub fn by_value(&self, current: i32, usage: i64, target: i64) -> Result<i32, CalculatorError> {
        let ratio = usage as f64 / target as f64;
        if current == 0 {
            return Ok(ceil(ratio));
        }
        if self.tolerances.contain(ratio) {
            return Ok(current);
        }
        if self.pods.is_empty() {
            return Err(CalculatorError::NoPodsToBeReady);
        }
        let ready = self.pods.iter().filter(|pod| pod_state::phase(pod) == "Running" && pod_state::is_ready(pod)).count();
        Ok(ceil(ratio * ready as f64))
    }

    /// For a target value of each Pod, of a metric that is measured for all of them together: the proposal, and the share of a
    /// Pod.
    pub fn by_share(&self, replicas: i32, usage: i64, target: i64) -> (i32, i64) {
        let ratio = usage as f64 / (target as f64 * f64::from(replicas));
        let proposal = if self.tolerances.contain(ratio) { replicas } else { ceil(usage as f64 / target as f64) };
        let share = match replicas {
            0 => 0,
            _ if usage == i64::MAX => usage,
            // `as` saturates.
            _ => (usage as f64 / f64::from(replicas)).ceil() as i64,
        };
        (proposal, share)
    }

    /// The groups of the Pods. Leaves only the metrics of Pods that are ready.
    fn counted(&self, metrics: &mut PodMetrics, resource: Option<&str>) -> Result<Groups<'_>, CalculatorError> {
        if self.pods.is_empty() {
            return Err(CalculatorError::NoPods);
        }
        let groups = Groups::new(self.pods, metrics, resource, self.settings, self.now);
        metrics.retain(|name, _| !groups.ignored.contains(name.as_str()) && !groups.unready.contains(name.as_str()));
        if metrics.is_empty() { Err(CalculatorError::NoMetrics) } else { Ok(groups) }
    }

    /// The proposal for the metrics of the ready Pods. `ratio` is the ratio of metrics to the target, `assumed` the metric of a
    /// Pod without one if the proposal is a smaller number.
    fn replicas(
        &self,
        current: i32,
        groups: &Groups<'_>,
        mut metrics: PodMetrics,
        ratio: impl Fn(&PodMetrics) -> Result<f64, CalculatorError>,
        assumed: impl Fn(&str) -> i64,
    ) -> Result<i32, CalculatorError> {
        let first = ratio(&metrics)?;
        let up_with_unready = !groups.unready.is_empty() && first > 1.0;
        if !up_with_unready && groups.missing.is_empty() {
            return Ok(if self.tolerances.contain(first) { current } else { ceil(first * groups.ready as f64) });
        }
        let mut assume = |pod: &str, value: i64| {
            let metric = PodMetric { timestamp: self.now, window: jiff::SignedDuration::ZERO, value };
            metrics.insert(pod.to_owned(), metric);
        };
        if first < 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, assumed(pod)));
        } else if first > 1.0 {
            groups.missing.iter().for_each(|pod| assume(pod, 0));
        }
        if up_with_unready {
            groups.unready.iter().for_each(|pod| assume(pod, 0));
        }
        let second = ratio(&metrics)?;
        let crosses_target = (first < 1.0 && second > 1.0) || (first > 1.0 && second < 1.0);
        if crosses_target || self.tolerances.contain(second) {
            return Ok(current);
        }
        let proposal = ceil(second * metrics.len() as f64);
        // During a rolling update there are more Pods than replicas.
        let is_against_ratio = (second < 1.0 && proposal > current) || (second > 1.0 && proposal < current);
        Ok(if is_against_ratio { current } else { proposal })
    }
}

/// Rounded up; `as` saturates.
fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}
