//! Upstream's flags `--eviction-hard` and `--eviction-soft` (`signal<quantity` or `signal<percent%`, joined by commas),
//! `--eviction-minimum-reclaim` (`signal=quantity`) and `--eviction-soft-grace-period` (`signal=duration`). As upstream, a signal that a
//! flag does not name has no threshold, and `0%` and `100%` mean no threshold either.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use api_model::quantity;

use super::signal::Signal;
use crate::duration;

/// How much of something.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Units(u64),
    Percent(f64),
}

impl Amount {
    /// The quantity in units, out of a total.
    fn units_of(self, all: u64) -> u64 {
        match self {
            Self::Units(units) => units,
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a size")]
            Self::Percent(percent) => (all as f64 * percent / 100.0) as u64,
        }
    }
}

/// Why a flag cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// There is no `<` or no `=`.
    #[error("{text:?}: expected {form}")]
    Form {
        /// The text of the flag.
        text: String,
        /// The form that it should have.
        form: &'static str,
    },
    /// No signal has this name.
    #[error(
        "unknown signal {0:?}: known are memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available"
    )]
    Signal(String),
    /// The value before the percent sign is no number.
    #[error("{0:?} is no percentage")]
    Percentage(String),
    /// The share is less than nothing or more than all.
    #[error("{0:?} is not between 0% and 100%")]
    Share(String),
    /// The value is no quantity.
    #[error("{0:?} is no quantity")]
    Quantity(String),
    /// The value is negative, or zero where that means nothing.
    #[error("eviction threshold {signal} must be positive: {text}")]
    NotPositive {
        /// The signal.
        signal: &'static str,
        /// The text of the flag.
        text: String,
    },
    /// A grace period is no duration, or none in which anything can happen.
    #[error("invalid eviction grace period specified: {0:?}, must be a positive duration such as 1m30s")]
    GracePeriod(String),
    /// A soft threshold has no grace period.
    #[error("grace period must be specified for the soft eviction threshold {0} (--eviction-soft-grace-period)")]
    NoGracePeriod(&'static str),
}

/// The thresholds of each resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    hard: BTreeMap<Signal, Amount>,
    soft: BTreeMap<Signal, (Amount, Duration)>,
    reclaim: MinimumReclaim,
}

/// Which threshold: hard ones come first, and memory before all other signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ThresholdKey {
    /// A Pod is evicted only after a grace period, and has time to end.
    pub(crate) is_soft: bool,
    pub(crate) signal: Signal,
}

/// The amounts of `--eviction-soft`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SoftAmounts(BTreeMap<Signal, Amount>);

/// How long each soft threshold must be met before a Pod is evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoftGracePeriods(BTreeMap<Signal, Duration>);

/// How much more than the threshold is freed once a threshold was met.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MinimumReclaim(BTreeMap<Signal, Amount>);

impl Default for Thresholds {
    /// Upstream's on Linux.
    fn default() -> Self {
        let hard = [
            (Signal::MemoryAvailable, Amount::Units(100 << 20)),
            (Signal::NodeFsAvailable, Amount::Percent(10.0)),
            (Signal::NodeFsInodesFree, Amount::Percent(5.0)),
            (Signal::ImageFsAvailable, Amount::Percent(15.0)),
            (Signal::ImageFsInodesFree, Amount::Percent(5.0)),
        ];
        Self { hard: hard.into(), soft: BTreeMap::new(), reclaim: MinimumReclaim::default() }
    }
}

impl Thresholds {
    /// The same thresholds; each is resolved only when so much more is free.
    #[must_use]
    pub fn with_minimum_reclaim(self, reclaim: MinimumReclaim) -> Self {
        Self { reclaim, ..self }
    }

    /// The same thresholds with soft ones.
    ///
    /// # Errors
    /// When a soft threshold has no grace period.
    pub fn with_soft(self, amounts: SoftAmounts, periods: &SoftGracePeriods) -> Result<Self, ThresholdError> {
        let with_period = |(signal, amount): (Signal, Amount)| {
            let period = periods.0.get(&signal).ok_or(ThresholdError::NoGracePeriod(signal.name()))?;
            Ok((signal, (amount, *period)))
        };
        let soft = amounts.0.into_iter().map(with_period).collect::<Result<_, _>>()?;
        Ok(Self { soft, ..self })
    }

    /// All thresholds, each with the time for which it must be met before a Pod is evicted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (ThresholdKey, Duration)> + use<'_> {
        let hard = self.hard.keys().map(|signal| (ThresholdKey { is_soft: false, signal: *signal }, Duration::ZERO));
        let soft = self.soft.iter().map(|(signal, (_, period))| (ThresholdKey { is_soft: true, signal: *signal }, *period));
        hard.chain(soft)
    }

    /// The least that must be available of a signal, out of a total.
    pub(crate) fn least(&self, key: ThresholdKey, all: u64) -> Option<u64> {
        let amount = if key.is_soft { self.soft.get(&key.signal).map(|(amount, _)| amount) } else { self.hard.get(&key.signal) };
        amount.map(|amount| amount.units_of(all))
    }

    /// What must be available before a threshold that was met counts as resolved.
    pub(crate) fn resolved(&self, key: ThresholdKey, all: u64) -> Option<u64> {
        let more = self.reclaim.0.get(&key.signal).map_or(0, |amount| amount.units_of(all));
        self.least(key, all).map(|least| least.saturating_add(more))
    }

    /// What must be available of a signal before Pods are evicted at once.
    pub(crate) fn hard(&self, signal: Signal, all: u64) -> Option<u64> {
        self.least(ThresholdKey { is_soft: false, signal }, all)
    }

    /// Bytes of the node's file system that Pods do not get.
    pub fn disk_reserved(&self, all: u64) -> u64 {
        self.hard(Signal::NodeFsAvailable, all).unwrap_or(0)
    }

    /// Bytes of the images' file system that images do not get.
    pub fn image_disk_reserved(&self, all: u64) -> u64 {
        self.hard(Signal::ImageFsAvailable, all).unwrap_or(0).max(self.disk_reserved(all))
    }
}

impl FromStr for Thresholds {
    type Err = ThresholdError;

    /// The hard ones.
    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        Ok(Self { hard: amounts(text)?, soft: BTreeMap::new(), reclaim: MinimumReclaim::default() })
    }
}

impl FromStr for SoftAmounts {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        amounts(text).map(Self)
    }
}

impl FromStr for SoftGracePeriods {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let period = |(signal, text): (Signal, &str)| {
            let period = duration::parse(text).filter(|period| !period.is_zero());
            Ok((signal, period.ok_or_else(|| ThresholdError::GracePeriod(text.to_owned()))?))
        };
        statements(text, '=', "signal=duration")?.into_iter().map(period).collect::<Result<_, _>>().map(Self)
    }
}

/// The amounts below which a threshold is met.
fn amounts(text: &str) -> Result<BTreeMap<Signal, Amount>, ThresholdError> {
    let mut amounts = BTreeMap::new();
    for (signal, text) in statements(text, '<', "signal<quantity or signal<percent%")? {
        match amount(signal, text)? {
            Amount::Units(0) => return Err(ThresholdError::NotPositive { signal: signal.name(), text: text.to_owned() }),
            Amount::Percent(percent) if percent <= 0.0 || percent >= 100.0 => {}
            amount => drop(amounts.insert(signal, amount)),
        }
    }
    Ok(amounts)
}

impl FromStr for MinimumReclaim {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let with_amount = |(signal, text)| Ok((signal, amount(signal, text)?));
        statements(text, '=', "signal=quantity or signal=percent%")?.into_iter().map(with_amount).collect::<Result<_, _>>().map(Self)
    }
}

/// The signals of a flag, with the value of each as it is written.
fn statements<'a>(text: &'a str, operator: char, form: &'static str) -> Result<Vec<(Signal, &'a str)>, ThresholdError> {
    let one = |text: &'_ str| ThresholdError::Form { text: text.to_owned(), form };
    let all = text.split(',').map(str::trim).filter(|one| !one.is_empty());
    all.map(|statement| {
        let (name, value) = statement.split_once(operator).ok_or_else(|| one(statement))?;
        let signal = Signal::ALL.into_iter().find(|signal| signal.name() == name);
        let signal = signal.ok_or_else(|| ThresholdError::Signal(name.to_owned()))?;
        Ok((signal, value))
    })
    .collect()
}

fn amount(signal: Signal, text: &str) -> Result<Amount, ThresholdError> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| ThresholdError::Percentage(text.to_owned()))?;
        let fits = (0.0..=100.0).contains(&percent);
        return if fits { Ok(Amount::Percent(percent)) } else { Err(ThresholdError::Share(text.to_owned())) };
    }
    let value = quantity::value(text).map_err(|_| ThresholdError::Quantity(text.to_owned()))?;
    u64::try_from(value).map(Amount::Units).map_err(|_| ThresholdError::NotPositive { signal: signal.name(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read() {
        let read: Thresholds =
            "memory.available<1Gi, nodefs.available<5%,nodefs.inodesFree<0%,pid.available<100%".parse().expect("thresholds");
        assert_eq!(read.hard(Signal::MemoryAvailable, 8 << 30), Some(1 << 30));
        assert_eq!(read.hard(Signal::NodeFsAvailable, 1_000), Some(50));
        for unnamed in [Signal::ImageFsAvailable, Signal::NodeFsInodesFree, Signal::PidAvailable] {
            assert_eq!(read.hard(unnamed, 1_000), None, "{unnamed:?}");
        }
        assert_eq!((read.disk_reserved(1_000), read.image_disk_reserved(1_000)), (50, 50));
        assert_eq!("".parse::<Thresholds>().expect("none").disk_reserved(1_000), 0);
        assert_eq!((Thresholds::default().disk_reserved(1_000), Thresholds::default().image_disk_reserved(1_000)), (100, 150));
    }

    #[test]
    fn more_is_freed_than_the_threshold() {
        let reclaim = "nodefs.available=5%,memory.available=0Mi".parse().expect("amounts");
        let read: Thresholds = "nodefs.available<10%,memory.available<1Gi".parse().expect("thresholds");
        let read = read.with_minimum_reclaim(reclaim);
        let resolved = |signal, all| read.resolved(ThresholdKey { is_soft: false, signal }, all);
        assert_eq!(resolved(Signal::NodeFsAvailable, 1_000), Some(150));
        assert_eq!(resolved(Signal::MemoryAvailable, 8 << 30), Some(1 << 30));
        assert_eq!(resolved(Signal::PidAvailable, 1_000), None);
    }

    #[test]
    fn a_soft_threshold_has_a_grace_period() {
        let hard: Thresholds = "nodefs.available<10%".parse().expect("thresholds");
        let soft = |amounts: &str, periods: &str| {
            hard.clone().with_soft(amounts.parse()?, &periods.parse()?).map(|all| all.keys().collect::<Vec<_>>())
        };
        let key = |is_soft, signal| ThresholdKey { is_soft, signal };
        let (first, zero) = (key(false, Signal::NodeFsAvailable), Duration::ZERO);
        let with_soft = [(first, zero), (key(true, Signal::MemoryAvailable), Duration::from_secs(90))];
        assert_eq!(soft("memory.available<1Gi", "memory.available=1m30s,nodefs.available=2m"), Ok(with_soft.to_vec()));
        assert_eq!(soft("", "memory.available=1m"), Ok(vec![(first, zero)]));
        for (amounts, periods, part) in [
            ("memory.available<1Gi", "", "grace period must be specified for the soft eviction threshold memory.available"),
            ("memory.available<1Gi", "memory.available=0s", "invalid eviction grace period specified: \"0s\""),
            ("memory.available<1Gi", "memory.available=-1m", "invalid eviction grace period specified: \"-1m\""),
            ("memory.available<1Gi", "1m30s", "\"1m30s\": expected signal=duration"),
            ("memory.available<1Gi", "memory.available=x", "invalid eviction grace period specified: \"x\""),
            ("memory.available<0", "memory.available=1m", "eviction threshold memory.available must be positive: 0"),
            ("memory<1Gi", "memory=1m", "unknown signal \"memory\""),
        ] {
            let error = soft(amounts, periods).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, part) in [
            ("nodefs.available", "expected signal<quantity"),
            ("nodefs.inodes<5%", "unknown signal \"nodefs.inodes\""),
            ("nodefs.available<5x", "\"5x\" is no quantity"),
            ("nodefs.available<x%", "\"x%\" is no percentage"),
            ("nodefs.available<105%", "not between"),
            ("nodefs.available<0", "eviction threshold nodefs.available must be positive: 0"),
            ("pid.available<-1", "eviction threshold pid.available must be positive: -1"),
        ] {
            let error = text.parse::<Thresholds>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = "nodefs.available<1".parse::<MinimumReclaim>().expect_err("no equals sign").to_string();
        assert!(error.contains("expected signal=quantity"), "{error}");
    }
}
