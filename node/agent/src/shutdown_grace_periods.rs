//! Which Pods end together when the node shuts down, and how long they have. Pure; the rules are the kubelet's.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use crate::duration;
use crate::priority::CRITICAL_PRIORITY;

/// The priority of a Pod that has none.
const NO_PRIORITY: i32 = 0;

/// Why flags cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShutdownGracePeriodError {
    /// There is no `=`, no priority or no duration.
    #[error("{0:?}: expected priority=duration, for example 0=20s,2000000000=10s")]
    Form(String),
    /// A priority has two durations.
    #[error("priority {0} is there twice")]
    Twice(i32),
    /// Less than a second is no time to end in.
    #[error("{0} must be either zero or at least 1s")]
    TooShort(&'static str),
    /// More for a part than for the whole.
    #[error("--shutdown-grace-period-critical-pods must not be longer than --shutdown-grace-period")]
    Critical,
    /// Two ways to say the same.
    #[error("cannot specify both --shutdown-grace-period-by-pod-priority and --shutdown-grace-period")]
    Both,
}

/// Upstream's `shutdownGracePeriodByPodPriority` as the value of a flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityGracePeriods(BTreeMap<i32, Duration>);

impl FromStr for PriorityGracePeriods {
    type Err = ShutdownGracePeriodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut periods = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let malformed = || ShutdownGracePeriodError::Form(part.to_owned());
            let (priority, duration) = part.split_once('=').ok_or_else(malformed)?;
            let priority = priority.trim().parse().map_err(|_| malformed())?;
            let duration = duration::parse(duration.trim()).ok_or_else(malformed)?;
            check("--shutdown-grace-period-by-pod-priority", duration)?;
            if periods.insert(priority, duration).is_some() {
                return Err(ShutdownGracePeriodError::Twice(priority));
            }
        }
        Ok(Self(periods))
    }
}

/// How long Pods have to end when the node shuts down, by the lowest priority of each group. Without any group a shutdown is
/// immediate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownGracePeriods(BTreeMap<i32, Duration>);

impl ShutdownGracePeriods {
    /// From the three settings of a kubelet: the whole time with the part of it that critical Pods have, or the time of each
    /// priority.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(all: Duration, critical: Duration, by_priority: PriorityGracePeriods) -> Result<Self, ShutdownGracePeriodError> {
        check("--shutdown-grace-period", all)?;
        check("--shutdown-grace-period-critical-pods", critical)?;
        if !by_priority.0.is_empty() {
            let is_alone = all.is_zero() && critical.is_zero();
            return if is_alone { Ok(Self(by_priority.0)) } else { Err(ShutdownGracePeriodError::Both) };
        }
        let others = all.checked_sub(critical).ok_or(ShutdownGracePeriodError::Critical)?;
        let periods = [(NO_PRIORITY, others), (CRITICAL_PRIORITY, critical)];
        Ok(Self(if all.is_zero() { BTreeMap::new() } else { periods.into() }))
    }

    /// Whether Pods get no time.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time of all groups together.
    pub(crate) fn total(&self) -> Duration {
        self.0.values().sum()
    }

    /// The groups in the order in which they end: the lowest priority of each, and its time.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (i32, Duration)> + use<'_> {
        self.0.iter().map(|(priority, period)| (*priority, *period))
    }

    /// The group of a Pod. Pods below the lowest priority are in the first group.
    pub(crate) fn group_of(&self, priority: Option<i32>) -> Option<i32> {
        let priority = priority.unwrap_or(NO_PRIORITY);
        self.0.range(..=priority).next_back().or_else(|| self.0.first_key_value()).map(|(lowest, _)| *lowest)
    }
}

fn check(flag: &'static str, period: Duration) -> Result<(), ShutdownGracePeriodError> {
    let is_long_enough = period.is_zero() || period >= Duration::from_secs(1);
    if is_long_enough { Ok(()) } else { Err(ShutdownGracePeriodError::TooShort(flag)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn flags_become_groups() {
        let groups = |all, critical, by_priority: &str| {
            let periods = ShutdownGracePeriods::new(all, critical, by_priority.parse()?)?;
            Ok::<_, ShutdownGracePeriodError>(periods.groups().map(|(priority, period)| (priority, period.as_secs())).collect::<Vec<_>>())
        };
        let (none, half) = (Duration::ZERO, Duration::from_millis(500));
        assert_eq!(groups(none, none, ""), Ok(vec![]));
        assert_eq!(groups(seconds(30), seconds(10), ""), Ok(vec![(0, 20), (2_000_000_000, 10)]));
        assert_eq!(groups(seconds(30), none, ""), Ok(vec![(0, 30), (2_000_000_000, 0)]));
        assert_eq!(groups(none, none, "100000=10s, 0=1m,-5=0"), Ok(vec![(-5, 0), (0, 60), (100_000, 10)]));
        for (all, critical, by_priority, error) in [
            (seconds(30), seconds(31), "", "--shutdown-grace-period-critical-pods must not be longer than --shutdown-grace-period"),
            (none, seconds(1), "", "--shutdown-grace-period-critical-pods must not be longer than --shutdown-grace-period"),
            (half, none, "", "--shutdown-grace-period must be either zero or at least 1s"),
            (seconds(30), half, "", "--shutdown-grace-period-critical-pods must be either zero or at least 1s"),
            (none, none, "0=0.5s", "--shutdown-grace-period-by-pod-priority must be either zero or at least 1s"),
            (seconds(30), none, "0=1s", "cannot specify both --shutdown-grace-period-by-pod-priority and --shutdown-grace-period"),
            (none, none, "0=1s,0=2s", "priority 0 is there twice"),
            (none, none, "5", "\"5\": expected priority=duration, for example 0=20s,2000000000=10s"),
            (none, none, "x=5s", "\"x=5s\": expected priority=duration, for example 0=20s,2000000000=10s"),
            (none, none, "0=-5s", "\"0=-5s\": expected priority=duration, for example 0=20s,2000000000=10s"),
            (none, none, "9000000000=5s", "\"9000000000=5s\": expected priority=duration, for example 0=20s,2000000000=10s"),
        ] {
            assert_eq!(groups(all, critical, by_priority).map_err(|error| error.to_string()), Err(error.to_owned()));
        }
    }

    #[test]
    fn a_pod_is_in_the_group_below_its_priority() {
        let periods = ShutdownGracePeriods::new(Duration::ZERO, Duration::ZERO, "10=1s,100=2s,1000=3s".parse().expect("periods"));
        let periods = periods.expect("periods");
        assert_eq!(periods.total(), seconds(6));
        let group = |priority| periods.group_of(Some(priority));
        let lowest = [group(-7), group(10), group(99), group(100), group(999), group(1_000), group(i32::MAX)];
        assert_eq!(lowest, [Some(10), Some(10), Some(10), Some(100), Some(100), Some(1_000), Some(1_000)]);
        assert_eq!(periods.group_of(None), Some(10));
        assert_eq!(ShutdownGracePeriods::default().group_of(None), None);
    }
}
