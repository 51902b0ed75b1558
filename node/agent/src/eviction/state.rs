//! Which thresholds are met and which conditions hold, from one round to the next. Pure: observations and the time
//! come in. The rules are the kubelet's (`synchronize` of its eviction manager): a soft threshold counts as met after its grace
//! period, a threshold that was met stays so until the minimum reclaim is free as well, and a condition holds until it was not
//! observed for a whole transition period.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::signal::{Condition, Pressure, Signal};
use super::threshold::{ThresholdKey, Thresholds};

/// The amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

/// The observations. A signal that could not be read is missing, and its threshold is not met.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

/// The result of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) pressure: Pressure,
    /// The threshold to act upon.
    pub(crate) met: Option<Met>,
}

/// A threshold that is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) key: ThresholdKey,
    /// What should be available.
    pub(crate) quantity: u64,
    /// What is available.
    pub(crate) available: u64,
}

/// What one round passes on to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The thresholds whose grace period is over and that are not resolved.
    unresolved: BTreeSet<ThresholdKey>,
    /// Since when each threshold has been observed.
    observed_since: BTreeMap<ThresholdKey, Instant>,
    /// When each condition was last observed.
    last_observed: BTreeMap<Condition, Instant>,
}

impl State {
    /// Handles a round's observations.
    pub(crate) fn look(&mut self, thresholds: &Thresholds, observed: &Observations, period: Duration, now: Instant) -> Verdict {
        let is_observed = |key: ThresholdKey| lacks(thresholds, observed, key, self.unresolved.contains(&key));
        let short: BTreeMap<ThresholdKey, Duration> = thresholds.keys().filter(|(key, _)| is_observed(*key)).collect();
        self.observed_since.retain(|key, _| short.contains_key(key));
        for key in short.keys() {
            self.observed_since.entry(*key).or_insert(now);
            self.last_observed.insert(key.signal.condition(), now);
        }
        let lasts = |key: &ThresholdKey, grace: Duration| self.observed_since.get(key).is_some_and(|since| now - *since >= grace);
        self.unresolved = short.into_iter().filter(|(key, grace)| lasts(key, *grace)).map(|(key, _)| key).collect();
        self.last_observed.retain(|_, at| now.duration_since(*at) < period || *at == now);
        Verdict { pressure: self.last_observed.keys().copied().collect(), met: self.first(thresholds, observed) }
    }

    fn first(&self, thresholds: &Thresholds, observed: &Observations) -> Option<Met> {
        let key = *self.unresolved.first()?;
        let Observation { available, capacity } = *observed.get(&key.signal)?;
        Some(Met { key, quantity: thresholds.least(key, capacity)?, available })
    }

    /// Whether, by a later observation, nothing of what was met is short any more, the minimum reclaim included.
    pub(crate) fn is_resolved(&self, thresholds: &Thresholds, observed: &Observations) -> bool {
        !self.unresolved.iter().any(|key| lacks(thresholds, observed, *key, true))
    }
}

fn lacks(thresholds: &Thresholds, observed: &Observations, key: ThresholdKey, with_reclaim: bool) -> bool {
    let wanted = |all: u64| if with_reclaim { thresholds.resolved(key, all) } else { thresholds.least(key, all) };
    observed.get(&key.signal).is_some_and(|observation| wanted(observation.capacity).is_some_and(|wanted| observation.available < wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(300);

    fn observed(all: &[(Signal, u64)]) -> Observations {
        all.iter().map(|(signal, available)| (*signal, Observation { available: *available, capacity: 1_000 })).collect()
    }

    fn thresholds(hard: &str, reclaim: &str) -> Thresholds {
        hard.parse::<Thresholds>().expect("thresholds").with_minimum_reclaim(reclaim.parse().expect("amounts"))
    }

    #[test]
    fn thresholds_are_met_in_the_order_of_their_signals() {
        let all = thresholds("memory.available<100,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,pid.available<10", "");
        let none = Pressure::default();
        let disk = Pressure { disk: true, ..none };
        for (observed, pressure, met) in [
            (observed(&[(Signal::MemoryAvailable, 100), (Signal::NodeFsAvailable, 100)]), none, None),
            (observed(&[(Signal::NodeFsAvailable, 99)]), disk, Some((Signal::NodeFsAvailable, 100, 99))),
            (
                observed(&[(Signal::NodeFsAvailable, 149), (Signal::ImageFsAvailable, 149)]),
                disk,
                Some((Signal::ImageFsAvailable, 150, 149)),
            ),
            (observed(&[(Signal::NodeFsInodesFree, 3)]), disk, Some((Signal::NodeFsInodesFree, 50, 3))),
            (
                observed(&[(Signal::NodeFsAvailable, 0), (Signal::MemoryAvailable, 99)]),
                Pressure { memory: true, disk: true, pids: false },
                Some((Signal::MemoryAvailable, 100, 99)),
            ),
            (observed(&[(Signal::PidAvailable, 9)]), Pressure { pids: true, ..none }, Some((Signal::PidAvailable, 10, 9))),
            // A signal that could not be read is not short.
            (observed(&[]), none, None),
        ] {
            let verdict = State::default().look(&all, &observed, PERIOD, Instant::now());
            let met = met.map(|(signal, quantity, available)| Met { key: ThresholdKey { is_soft: false, signal }, quantity, available });
            assert_eq!(verdict, Verdict { pressure, met }, "{observed:?}");
        }
    }

    #[test]
    fn a_condition_outlasts_its_cause_by_the_transition_period() {
        let (all, began) = (thresholds("nodefs.available<100", ""), Instant::now());
        let mut state = State::default();
        let mut at = |seconds: u64, available: u64| {
            let verdict =
                state.look(&all, &observed(&[(Signal::NodeFsAvailable, available)]), PERIOD, began + Duration::from_secs(seconds));
            (verdict.pressure.disk, verdict.met.is_some())
        };
        assert_eq!(at(0, 500), (false, false));
        assert_eq!(at(10, 99), (true, true));
        assert_eq!(at(20, 500), (true, false), "nobody is evicted any more, the condition stays");
        assert_eq!(at(200, 50), (true, true));
        assert_eq!(at(499, 500), (true, false));
        assert_eq!(at(500, 500), (false, false));
    }

    #[test]
    fn without_a_transition_period_a_condition_ends_with_its_cause() {
        let (all, began) = (thresholds("nodefs.available<100", ""), Instant::now());
        let mut state = State::default();
        let short = observed(&[(Signal::NodeFsAvailable, 99)]);
        assert!(state.look(&all, &short, Duration::ZERO, began).pressure.disk);
        let enough = observed(&[(Signal::NodeFsAvailable, 100)]);
        assert!(!state.look(&all, &enough, Duration::ZERO, began + Duration::from_secs(1)).pressure.disk);
    }

    #[test]
    fn a_threshold_that_was_met_wants_the_minimum_reclaim_too() {
        let all = thresholds("nodefs.available<100", "nodefs.available=50");
        let mut state = State::default();
        let mut met = |available: u64| {
            state.look(&all, &observed(&[(Signal::NodeFsAvailable, available)]), PERIOD, Instant::now()).met.map(|met| met.available)
        };
        assert_eq!(met(120), None, "not met yet");
        assert_eq!(met(99), Some(99));
        assert_eq!(met(149), Some(149));
        assert_eq!(met(150), None);
        assert_eq!(met(149), None, "it is resolved");
        assert_eq!(met(99), Some(99));
        assert!(!state.is_resolved(&all, &observed(&[(Signal::NodeFsAvailable, 149)])));
        assert!(state.is_resolved(&all, &observed(&[(Signal::NodeFsAvailable, 150)])));
    }

    #[test]
    fn a_soft_threshold_is_met_after_its_grace_period_and_a_hard_one_comes_first() {
        let all = thresholds("nodefs.available<100", "nodefs.available=50");
        let soft = ("nodefs.available<300,memory.available<300".parse(), "nodefs.available=60s,memory.available=90s".parse());
        let all = all.with_soft(soft.0.expect("amounts"), &soft.1.expect("periods")).expect("thresholds");
        let (mut state, began) = (State::default(), Instant::now());
        let mut at = |seconds: u64, disk: u64, memory: u64| {
            let observed = observed(&[(Signal::NodeFsAvailable, disk), (Signal::MemoryAvailable, memory)]);
            let verdict = state.look(&all, &observed, Duration::ZERO, began + Duration::from_secs(seconds));
            (verdict.pressure.names().join(" "), verdict.met.map(|met| (met.key.is_soft, met.key.signal.name())))
        };
        let (memory, disk) = ((true, "memory.available"), (true, "nodefs.available"));
        assert_eq!(at(0, 300, 300), (String::new(), None));
        assert_eq!(at(10, 299, 300), ("DiskPressure".to_owned(), None), "the node says so at once");
        assert_eq!(at(69, 299, 300).1, None);
        assert_eq!(at(70, 299, 300).1, Some(disk));
        assert_eq!(at(71, 340, 300).1, Some(disk), "less than the minimum reclaim");
        assert_eq!(at(72, 350, 300), (String::new(), None));
        assert_eq!(at(73, 299, 299).1, None, "the grace period begins anew");
        assert_eq!(at(133, 299, 299).1, Some(disk));
        assert_eq!(at(163, 299, 299).1, Some(memory), "memory comes first");
        assert_eq!(at(164, 99, 299).1, Some((false, "nodefs.available")), "what is urgent comes before all");
    }
}
