//! Sets of CPUs as the kernel lists them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// No machine has CPUs with higher numbers; a range of a list is expanded.
const CPU_MAX: u32 = 65_535;

/// CPUs, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// A text that is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a list of CPUs such as 0-3,8")]
pub struct CpuSetError {
    text: String,
}

impl CpuSet {
    /// The number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    pub(crate) fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// The CPUs of either.
    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        self.0.union(&other.0).copied().collect()
    }

    /// The CPUs of this set that the other one does not have.
    #[must_use]
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.0.difference(&other.0).copied().collect()
    }

    /// The CPUs of both.
    #[must_use]
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.0.intersection(&other.0).copied().collect()
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let error = || CpuSetError { text: text.to_owned() };
        // Rust's numbers may have a sign.
        let number = |digits: &str| {
            let cpu = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u32>().ok()).flatten();
            cpu.filter(|cpu| *cpu <= CPU_MAX).ok_or_else(error)
        };
        let mut cpus = BTreeSet::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(error());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let texts = ranges.into_iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
        f.write_str(&texts.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernels() {
        for (text, count, written) in [
            ("", 0, ""),
            ("0", 1, "0"),
            ("0-3,8", 5, "0-3,8"),
            ("8,3,2,0-1", 5, "0-3,8"),
            ("0-1,1-2", 3, "0-2"),
            ("0,2,4", 3, "0,2,4"),
            ("65535", 1, "65535"),
        ] {
            let set: CpuSet = text.parse().expect("a list");
            assert_eq!((set.len(), set.to_string().as_str()), (count, written), "{text}");
        }
        for text in [" ", ",", "0,", "-1", "1-", "3-1", "0-4294967295", "65536", "+1", "0x1", "1.3", "a", "0 - 1", "0-1-2", "٣"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn sets_are_combined() {
        let set = |text: &str| text.parse::<CpuSet>().expect("a list");
        assert_eq!(set("0-2").union(&set("2-4")), set("0-4"));
        assert_eq!(set("0-2").difference(&set("2-4")), set("0-1"));
        assert_eq!(set("0-2").intersection(&set("2-4")), set("2"));
        assert!(set("1").is_subset(&set("0-1")) && !set("1-2").is_subset(&set("0-1")));
        assert!(set("0-2").overlaps(&set("2-4")) && !set("0-1").overlaps(&set("2-4")));
    }
}
