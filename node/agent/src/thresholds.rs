//! When a node is under pressure: upstream's `--eviction-hard`, read from `signal<quantity` or
//! `signal<percent%`, joined by commas. As upstream, a signal that is not named is not looked at.

use std::str::FromStr;

use api_model::quantity;

/// How little of something is too little.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    Units(u64),
    Percent(f64),
}

impl Amount {
    /// In units, of so many in all.
    fn of(self, all: u64) -> u64 {
        match self {
            Self::Units(units) => units,
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a size")]
            Self::Percent(percent) => (all as f64 * percent / 100.0) as u64,
        }
    }
}

/// What must be left of each resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    memory: Option<Amount>,
    disk: Option<Amount>,
    pids: Option<Amount>,
}

impl Default for Thresholds {
    /// Upstream's on Linux.
    fn default() -> Self {
        Self { memory: Some(Amount::Units(100 << 20)), disk: Some(Amount::Percent(10.0)), pids: None }
    }
}

impl Thresholds {
    /// Whether so few bytes of memory are too few.
    pub(crate) fn lacks_memory(&self, available: u64, all: u64) -> bool {
        self.memory.is_some_and(|least| available < least.of(all))
    }

    /// Whether so few bytes of disk are too few.
    pub(crate) fn lacks_disk(&self, available: u64, all: u64) -> bool {
        self.disk.is_some_and(|least| available < least.of(all))
    }

    /// Whether so few process ids are too few.
    pub(crate) fn lacks_pids(&self, available: u64, all: u64) -> bool {
        self.pids.is_some_and(|least| available < least.of(all))
    }

    /// Bytes of disk that are kept from Pods.
    pub fn disk_kept(&self, all: u64) -> u64 {
        self.disk.map_or(0, |least| least.of(all))
    }
}

impl FromStr for Thresholds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut thresholds = Self { memory: None, disk: None, pids: None };
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let (signal, amount) = one.split_once('<').ok_or_else(|| format!("{one:?}: expected signal<quantity or signal<percent%"))?;
            let place = match signal {
                "memory.available" => &mut thresholds.memory,
                // Images and Pods share one disk, the data directory's.
                "nodefs.available" | "imagefs.available" => &mut thresholds.disk,
                "pid.available" => &mut thresholds.pids,
                _ => {
                    return Err(format!(
                        "unknown signal {signal:?}: known are memory.available, nodefs.available, imagefs.available, pid.available"
                    ));
                }
            };
            *place = Some(self::amount(amount)?);
        }
        Ok(thresholds)
    }
}

fn amount(text: &str) -> Result<Amount, String> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| format!("{text:?} is no percentage"))?;
        return if (0.0..=100.0).contains(&percent) {
            Ok(Amount::Percent(percent))
        } else {
            Err(format!("{text:?} is not between 0% and 100%"))
        };
    }
    let value = quantity::value(text).map_err(|_| format!("{text:?} is no quantity"))?;
    u64::try_from(value).map(Amount::Units).map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_and_compared() {
        let read: Thresholds = "memory.available<1Gi,nodefs.available<5%".parse().expect("thresholds");
        assert!(read.lacks_memory((1 << 30) - 1, 8 << 30) && !read.lacks_memory(1 << 30, 8 << 30));
        assert!(read.lacks_disk(49, 1_000) && !read.lacks_disk(50, 1_000));
        assert!(!read.lacks_pids(0, 1_000), "what is not named is not looked at");
        assert_eq!(read.disk_kept(1_000), 50);
        assert!(Thresholds::default().lacks_disk(99, 1_000));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, part) in [
            ("nodefs.available", "expected signal<quantity"),
            ("nodefs.inodes<5%", "unknown signal \"nodefs.inodes\""),
            ("nodefs.available<5x", "\"5x\" is no quantity"),
            ("nodefs.available<105%", "not between"),
        ] {
            let error = text.parse::<Thresholds>().expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
