//! The status that a pass writes, and the events that it records, as the pass composes them.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};

use crate::meta;
use crate::note::{Note, normal, warning};

/// Whether the controller can read and write the target's scale.
pub const ABLE_TO_SCALE: &str = "AbleToScale";
/// Whether the metrics propose a number of replicas.
pub const SCALING_ACTIVE: &str = "ScalingActive";
/// Whether a limit changes the proposal.
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// Whether this controller set the target's replicas to zero.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Says {
    /// `True` rather than `False`.
    pub is_true: bool,
    /// Upstream's reason.
    pub reason: &'static str,
    /// Upstream's message.
    pub message: &'static str,
}

/// The status and the events of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The status.
    pub status: HorizontalPodAutoscalerStatus,
    /// The events, in their order.
    pub notes: Vec<Note>,
    /// What was read of the metrics, for the status.
    pub metrics: Vec<MetricStatus>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Draft {
    /// The present status.
    pub fn new(autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let status = autoscaler.status.clone().unwrap_or_default();
        Self { status, notes: Vec::new(), metrics: Vec::new(), generation: autoscaler.metadata.generation, now }
    }

    /// Adds an event of type `Normal`.
    pub fn normal(&mut self, reason: &'static str, message: impl Into<String>) {
        self.notes.push(normal(reason, message));
    }

    /// Adds an event of type `Warning`.
    pub fn warning(&mut self, reason: &'static str, message: impl Into<String>) {
        self.notes.push(warning(reason, message));
    }

    /// Sets a condition. Its time changes with its status alone.
    pub fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: impl Into<String>) {
        let conditions = self.status.conditions.get_or_insert_default();
        let at = conditions.iter().position(|condition| condition.type_ == kind).unwrap_or_else(|| {
            conditions.push(HorizontalPodAutoscalerCondition { type_: kind.to_owned(), ..HorizontalPodAutoscalerCondition::default() });
            conditions.len() - 1
        });
        let Some(condition) = conditions.get_mut(at) else { return };
        let status = if is_true { "True" } else { "False" };
        if condition.status != status {
            condition.last_transition_time = Some(meta::whole_seconds(self.now));
        }
        status.clone_into(&mut condition.status);
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.into());
    }

    /// Sets a condition with a constant message.
    pub fn says(&mut self, kind: &str, Says { is_true, reason, message }: Says) {
        self.set(kind, is_true, reason, message);
    }

    /// Sets the numbers, and the metrics that were read. `is_rescaled` sets the time of the last change.
    pub fn count(&mut self, current: i32, desired: i32, is_rescaled: bool) {
        let metrics = std::mem::take(&mut self.metrics);
        // As upstream writes them: no zero, no empty list.
        self.status.current_replicas = Some(current).filter(|current| *current != 0);
        self.status.desired_replicas = desired;
        self.status.current_metrics = Some(metrics).filter(|metrics| !metrics.is_empty());
        self.status.observed_generation = self.generation;
        if is_rescaled {
            self.status.last_scale_time = Some(meta::whole_seconds(self.now));
        }
    }
}

/// Whether a condition of the autoscaler is true.
pub fn is_true(autoscaler: &HorizontalPodAutoscaler, kind: &str) -> bool {
    let conditions = autoscaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}
