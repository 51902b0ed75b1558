//! Which Pods count for a metric: upstream's `groupPods`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::config::Autoscaling;
use crate::podautoscaler::metrics::{PodMetric, PodMetrics};
use crate::{meta, pods};

#[cfg(test)]
mod tests;

/// The names of Pods by what their metric means.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Groups<'a> {
    /// Number of Pods whose metric counts.
    pub ready: usize,
    /// Pods that do not work yet, so that their metric says nothing.
    pub unready: BTreeSet<&'a str>,
    /// Pods without a metric.
    pub missing: BTreeSet<&'a str>,
    /// Pods that have ended or are being deleted.
    pub ignored: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    /// Groups the Pods. A Pod that starts uses CPU although it does not work: only for the resource `cpu` readiness counts.
    pub fn new(pods: &'a [Arc<Pod>], metrics: &PodMetrics, resource: Option<&str>, settings: &Autoscaling, now: Timestamp) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let name = meta::name(&pod.metadata);
            if !pods::is_active(pod) {
                groups.ignored.insert(name);
            } else if pods::phase(pod) == "Pending" {
                groups.unready.insert(name);
            } else {
                match metrics.get(name) {
                    None => drop(groups.missing.insert(name)),
                    Some(metric) if resource == Some("cpu") && is_unready(pod, metric, settings, now) => {
                        groups.unready.insert(name);
                    }
                    Some(_) => groups.ready += 1,
                }
            }
        }
        groups
    }
}

/// Whether the CPU that a Pod used is that of its start.
fn is_unready(pod: &Pod, metric: &PodMetric, settings: &Autoscaling, now: Timestamp) -> bool {
    let started = meta::instant(pod.status.as_ref().and_then(|status| status.start_time.as_ref()));
    let (Some(started), Some(ready)) = (started, pods::condition(pod, "Ready")) else { return true };
    let is_false = ready.status == "False";
    let changed = meta::instant(ready.last_transition_time.as_ref()).unwrap_or(Timestamp::UNIX_EPOCH);
    if now.duration_since(started) < settings.cpu_initialization_period {
        // The window of the metric begins before the Pod was ready.
        return is_false || metric.timestamp.duration_since(changed) < metric.window;
    }
    // The Pod was never ready.
    is_false && changed.duration_since(started) < settings.initial_readiness_delay
}
