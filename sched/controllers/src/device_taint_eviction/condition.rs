//! What a DeviceTaintRule's condition `EvictionInProgress` says.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::plan::NO_EXECUTE;
use crate::meta;

const EVICTION_IN_PROGRESS: &str = "EvictionInProgress";
/// The shortest time between two changes of the condition, upstream's.
pub const PERIOD: Duration = Duration::from_secs(10);

/// What is counted for a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pods that leave because of the rule, or that would leave if its effect was `NoExecute`.
    pub pods: usize,
    /// The namespaces of these Pods.
    pub namespaces: usize,
    /// Devices in slices that the rule selects. Counted for rules without an effect.
    pub published: usize,
    /// Allocated devices that the rule selects. Counted for rules without an effect.
    pub allocated: usize,
    /// Pods that were evicted because of the rule since the controller started.
    pub evicted: u64,
}

/// The condition as the rule has it.
fn present(rule: &DeviceTaintRule) -> Option<&Condition> {
    let conditions = rule.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == EVICTION_IN_PROGRESS)
}

/// How long the condition stays as it is. `None`: it may change now.
pub fn stays_for(rule: &DeviceTaintRule, now: Timestamp) -> Option<Duration> {
    let condition = present(rule).filter(|condition| condition.observed_generation == rule.metadata.generation)?;
    // The clock may have been set back: the condition never stays for longer than the period.
    let since = Duration::try_from(now.duration_since(condition.last_transition_time.0)).unwrap_or_default();
    PERIOD.checked_sub(since).filter(|left| !left.is_zero())
}

/// The condition that the rule must get; `None` if it has it.
pub fn wanted(rule: &DeviceTaintRule, tally: &Tally, now: Timestamp) -> Option<Condition> {
    let (status, reason, mut message) = match rule.spec.taint.effect.as_str() {
        NO_EXECUTE if tally.pods > 0 => {
            let needs = if tally.pods == 1 { "1 pod needs".to_owned() } else { format!("{} pods need", tally.pods) };
            ("True", "PodsPendingEviction", format!("{needs} to be evicted in {}.", namespaces(tally)))
        }
        NO_EXECUTE if tally.evicted > 0 => ("False", "Completed", String::new()),
        NO_EXECUTE => ("False", "NotStarted", String::new()),
        "None" => ("False", "NoEffect", simulated(tally)),
        _ => ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if tally.evicted > 0 {
        let space = if message.is_empty() { "" } else { " " };
        message = format!("{message}{space}{} evicted since starting the controller.", counted(tally.evicted, "pod"));
    }
    let condition = Condition {
        type_: EVICTION_IN_PROGRESS.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: rule.metadata.generation,
        last_transition_time: meta::whole_seconds(now),
    };
    let is_same =
        |present: &Condition| Condition { last_transition_time: present.last_transition_time.clone(), ..condition.clone() } == *present;
    (!present(rule).is_some_and(is_same)).then_some(condition)
}

fn simulated(tally: &Tally) -> String {
    let (published, allocated) = (tally.published as u64, tally.allocated as u64);
    format!(
        "{} selected. {} selected. {} would be evicted in {} if the effect was NoExecute. This information will not be updated again. \
         Recreate the DeviceTaintRule to trigger an update.",
        counted(published, "published device"),
        counted(allocated, "allocated device"),
        counted(tally.pods as u64, "pod"),
        namespaces(tally),
    )
}

fn namespaces(tally: &Tally) -> String {
    if tally.namespaces == 1 { "1 namespace".to_owned() } else { format!("{} different namespaces", tally.namespaces) }
}

fn counted(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000 + second).expect("in range")
    }

    fn rule(effect: &str, conditions: Value) -> DeviceTaintRule {
        let rule = json!({
            "metadata": {"name": "r", "generation": 2},
            "spec": {"taint": {"key": "k", "effect": effect}},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(rule).expect("a rule")
    }

    #[test]
    fn the_condition_counts_as_upstreams() {
        let tally = |pods, namespaces, evicted| Tally { pods, namespaces, evicted, published: 1, allocated: 0 };
        let dry = "1 published device selected. 0 allocated devices selected. 2 pods would be evicted in 1 namespace if the effect was \
                   NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
        let cases = [
            ("NoExecute", tally(0, 0, 0), "False NotStarted "),
            ("NoExecute", tally(1, 1, 0), "True PodsPendingEviction 1 pod needs to be evicted in 1 namespace."),
            (
                "NoExecute",
                tally(3, 2, 1),
                "True PodsPendingEviction 3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the \
                 controller.",
            ),
            ("NoExecute", tally(0, 0, 2), "False Completed 2 pods evicted since starting the controller."),
            ("NoSchedule", tally(0, 0, 0), "False OtherEffect Eviction only happens for the NoExecute effect."),
            ("Later", tally(0, 0, 0), "False OtherEffect Eviction only happens for the NoExecute effect."),
            ("None", tally(2, 1, 0), &format!("False NoEffect {dry}")),
        ];
        for (effect, tally, wanted) in cases {
            let condition = super::wanted(&rule(effect, json!([])), &tally, at(0)).expect("a change");
            assert_eq!(format!("{} {} {}", condition.status, condition.reason, condition.message), wanted);
            assert_eq!((condition.observed_generation, condition.last_transition_time.0), (Some(2), at(0)));
            let other = Condition { type_: "Other".to_owned(), ..condition.clone() };
            let written = rule(effect, json!([other, condition]));
            assert_eq!(super::wanted(&written, &tally, at(60)), None, "{effect}");
        }
    }

    #[test]
    fn a_condition_of_this_generation_stays_for_a_while() {
        let written = |generation: i64| {
            let mut written = rule("NoExecute", json!([]));
            written.metadata.generation = Some(generation);
            let condition = super::wanted(&written, &Tally::default(), at(0)).expect("a change");
            rule("NoExecute", json!([condition]))
        };
        let seconds = |rule: &DeviceTaintRule, second| stays_for(rule, at(second)).map(|time| time.as_secs());
        assert_eq!(seconds(&rule("NoExecute", json!([])), 0), None);
        assert_eq!(seconds(&written(1), 0), None);
        assert_eq!(seconds(&written(2), 0), Some(10));
        assert_eq!(seconds(&written(2), 4), Some(6));
        assert_eq!(seconds(&written(2), 10), None);
        assert_eq!(seconds(&written(2), -3600), Some(10), "the clock was set back");
    }
}
