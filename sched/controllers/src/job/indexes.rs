//! Sets of completion indexes, as the status of a Job has them: `0,2-4,7`.

use std::fmt;

/// A set of indexes: ordered intervals with gaps between them. Its size depends on the number of gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Parses the text of a status or of a policy. Indexes from `completions` on are left out. A text of another form is the
    /// empty set.
    pub fn parse(text: &str, completions: i32) -> Self {
        let interval = |part: &str| -> Option<(i32, i32)> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let intervals: Option<Vec<_>> = text.split(',').filter(|part| !part.is_empty()).map(interval).collect();
        let within = intervals.unwrap_or_default().into_iter().map(|(first, last)| (first, last.min(completions.saturating_sub(1))));
        Self::from_intervals(within.filter(|(first, last)| *first >= 0 && first <= last).collect())
    }

    fn from_intervals(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::new();
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// The set with more indexes.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = i32>) -> Self {
        Self::from_intervals(self.0.iter().copied().chain(more.into_iter().map(|index| (index, index))).collect())
    }

    /// The set with those of another set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_intervals(self.0.iter().chain(&other.0).copied().collect())
    }

    /// The number of indexes.
    pub fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether an index is in the set.
    pub fn contains(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| index <= *last)
    }

    /// The number of indexes that both sets have.
    pub fn common(&self, other: &Self) -> i32 {
        self.total() + other.total() - self.union(other).total()
    }

    /// The indexes below `completions` that are not in the set, in order.
    pub fn missing(&self, completions: i32) -> impl Iterator<Item = i32> {
        let starts = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain(std::iter::once(completions));
        starts.zip(ends).flat_map(|(start, end)| start..end)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_and_written_as_upstream_writes_it() {
        let cases = [
            ("", 10, ""),
            ("0", 10, "0"),
            ("0,1", 10, "0,1"),
            ("0-1", 10, "0,1"),
            ("0,1,2,4,6,7,8", 10, "0-2,4,6-8"),
            ("3-20", 10, "3-9"),
            ("12", 10, ""),
            ("1-0", 10, ""),
            ("x", 10, ""),
            ("1,x", 10, ""),
            ("-4", 10, ""),
        ];
        for (text, completions, wanted) in cases {
            assert_eq!(Indexes::parse(text, completions).to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn sets_are_joined_counted_and_searched() {
        let set = Indexes::parse("1-3,7", 10);
        assert_eq!(set.with([5, 4, 7]).to_string(), "1-5,7");
        assert_eq!((set.total(), set.contains(2), set.contains(0), set.contains(5), set.contains(7)), (4, true, false, false, true));
        assert_eq!(set.missing(10).collect::<Vec<_>>(), [0, 4, 5, 6, 8, 9]);
        assert_eq!(Indexes::default().missing(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(Indexes::parse("0-4", 5).missing(5).count(), 0);
        assert_eq!(set.common(&Indexes::parse("2-8", 10)), 3);
    }
}
