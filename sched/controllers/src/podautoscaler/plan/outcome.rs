//! How a pass ends, in the words of upstream's conditions and events.

use api_client::informer::ObjectKey;
use api_model::selector::Selector;

use super::{Rescale, Snapshot};
use crate::podautoscaler::behavior;
use crate::podautoscaler::conditions::{ABLE_TO_SCALE, Draft, SCALED_TO_ZERO, SCALING_ACTIVE};
use crate::podautoscaler::history::History;
use crate::podautoscaler::target::NoScale;

const SCALE_READ: &str = "the HPA controller was able to get the target's current scale";
const DISABLED: &str = "scaling is disabled since the replica count of the target is zero";
const TO_ZERO: &str = "the HPA controller scaled the workload to zero";
const NOT_TO_ZERO: &str = "the HPA controller did not scale the workload to zero";

/// The target's scale could not be read.
pub fn no_scale(why: &NoScale, draft: &mut Draft) {
    let message = format!("the HPA controller was unable to get the target's current scale: {why}");
    draft.warning("FailedGetScale", why.to_string());
    draft.set(ABLE_TO_SCALE, false, "FailedGetScale", message);
}

/// The target's scale was read.
pub fn scale_read(draft: &mut Draft) {
    draft.set(ABLE_TO_SCALE, true, "SucceededGetScale", SCALE_READ);
}

/// The target is not scaled.
pub fn disabled(draft: &mut Draft) {
    draft.set(SCALING_ACTIVE, false, "ScalingDisabled", DISABLED);
}

impl Snapshot<'_> {
    /// The selector of the target's Pods, from its text.
    pub fn selector(&self, text: &str, draft: &mut Draft) -> Option<Selector> {
        if text.is_empty() {
            let message = "the HPA target's scale is missing a selector";
            self.unselected(("SelectorRequired", "selector is required"), ("InvalidSelector", message), draft);
            return None;
        }
        match Selector::parse(text) {
            Ok(selector) => Some(selector),
            Err(why) => {
                let message = format!("couldn't convert selector into a corresponding internal selector object: {why}");
                self.unselected(("InvalidSelector", &message), ("InvalidSelector", &message), draft);
                None
            }
        }
    }

    /// Several autoscalers scale the same Pods.
    pub fn ambiguous(&self, selector: &str, selecting: &[ObjectKey], draft: &mut Draft) {
        let keys: Vec<String> = selecting.iter().map(ObjectKey::to_string).collect();
        let message = format!("pods by selector {selector} are controlled by more than one HPA (e.g. [{}])", keys.join(" "));
        self.unselected(("AmbiguousSelector", &message), ("AmbiguousSelector", &message), draft);
    }

    fn unselected(&self, (event, why): (&'static str, &str), (reason, message): (&str, &str), draft: &mut Draft) {
        draft.warning(event, why);
        draft.set(SCALING_ACTIVE, false, reason, message);
        self.stop(draft);
        draft.warning("FailedComputeMetricsReplicas", why);
    }

    /// Writes the present replicas, and leaves the desired ones.
    pub(super) fn stop(&self, draft: &mut Draft) {
        draft.count(self.replicas.spec, draft.status.desired_replicas, false);
    }

    /// The target has the right number of replicas.
    pub fn stayed(&self, draft: &mut Draft) {
        draft.count(self.replicas.spec, self.replicas.spec, false);
    }

    /// The target's scale could not be written.
    pub fn not_rescaled(&self, Rescale { replicas, reason }: &Rescale, why: &str, draft: &mut Draft) {
        draft.warning("FailedRescale", format!("New size: {replicas}; reason: {reason}; error: {why}"));
        let message = format!("the HPA controller was unable to update the target scale: {why}");
        draft.set(ABLE_TO_SCALE, false, "FailedUpdateScale", message);
        self.stop(draft);
    }

    /// The target got another number of replicas.
    pub fn rescaled(&self, Rescale { replicas, reason }: &Rescale, history: &mut History, draft: &mut Draft) {
        let (current, replicas) = (self.replicas.spec, *replicas);
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        draft.set(ABLE_TO_SCALE, true, "SucceededRescale", message);
        draft.normal("SuccessfulRescale", format!("New size: {replicas}; reason: {reason}"));
        if let Some(behavior) = &self.autoscaler.spec.behavior {
            history.scale(current, replicas, behavior::longest_period(behavior), self.now);
        }
        let (reason, message) = match replicas {
            0 if self.min() == 0 && self.counts_without_pods() => ("ScaledToZero", TO_ZERO),
            _ => ("NotScaledToZero", NOT_TO_ZERO),
        };
        draft.set(SCALED_TO_ZERO, message == TO_ZERO, reason, message);
        draft.count(current, replicas, true);
    }
}
