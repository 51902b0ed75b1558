//! How the scores of a plugin are scaled, so that those of all plugins can be added.

/// The highest score of a node: upstream's `MaxNodeScore`.
pub const SCORE_MAX: i64 = 100;

/// How the raw scores of a plugin become numbers from 0 to [`SCORE_MAX`]: upstream's `NormalizeScore`. What depends on other
/// nodes is their lowest and highest score alone, so that the score of one node can change without those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    /// The raw scores are such numbers already.
    None,
    /// The highest raw score becomes [`SCORE_MAX`], 0 stays 0: upstream's `DefaultNormalizeScore`.
    Highest,
    /// The highest raw score becomes 0, and 0 becomes [`SCORE_MAX`].
    HighestReversed,
    /// The lowest raw score, which may be negative, becomes 0, and the highest one [`SCORE_MAX`].
    Range,
    /// The lowest raw score becomes [`SCORE_MAX`], and one of n times the lowest less in proportion.
    Emptiest,
}

/// The lowest and the highest raw score of the feasible nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreRange {
    /// The lowest.
    pub lowest: i64,
    /// The highest.
    pub highest: i64,
}

impl ScoreRange {
    /// The range of the scores; `None` without scores.
    pub fn new(scores: impl IntoIterator<Item = i64>) -> Option<Self> {
        scores.into_iter().fold(None, |range, score| Some(Self::widened(range, score)))
    }

    fn widened(range: Option<Self>, score: i64) -> Self {
        let Self { lowest, highest } = range.unwrap_or(Self { lowest: score, highest: score });
        Self { lowest: lowest.min(score), highest: highest.max(score) }
    }

    /// Whether the range may be another one without this score.
    pub fn ends_at(&self, score: i64) -> bool {
        self.lowest != self.highest && (score == self.lowest || score == self.highest)
    }

    /// Whether the score is in the range.
    pub fn contains(&self, score: i64) -> bool {
        (self.lowest..=self.highest).contains(&score)
    }
}

impl Normalization {
    /// The scaled score. A node without a raw score has 0.
    pub fn scaled(self, score: Option<i64>, range: Option<ScoreRange>) -> i64 {
        let (Some(score), Some(ScoreRange { lowest, highest })) = (score, range) else { return 0 };
        match self {
            Self::None => score,
            Self::Highest if highest == 0 => 0,
            Self::Highest => SCORE_MAX * score / highest,
            Self::HighestReversed if highest == 0 => SCORE_MAX,
            Self::HighestReversed => SCORE_MAX - SCORE_MAX * score / highest,
            Self::Range if highest == lowest => 0,
            Self::Range => SCORE_MAX * (score - lowest) / (highest - lowest),
            Self::Emptiest if highest == 0 => SCORE_MAX,
            Self::Emptiest => SCORE_MAX * (highest + lowest - score) / highest,
        }
    }

    /// The scaled scores of all feasible nodes.
    pub fn scale(self, scores: &[Option<i64>]) -> Vec<i64> {
        let range = ScoreRange::new(scores.iter().copied().flatten());
        scores.iter().map(|score| self.scaled(*score, range)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_scaled_as_upstream_does() {
        for (normalization, raw, wanted) in [
            (Normalization::None, [Some(5), Some(90), None], [5, 90, 0]),
            (Normalization::Highest, [Some(5), Some(10), Some(0)], [50, 100, 0]),
            (Normalization::Highest, [Some(0), Some(0), Some(0)], [0, 0, 0]),
            (Normalization::HighestReversed, [Some(1), Some(4), Some(0)], [75, 0, 100]),
            (Normalization::HighestReversed, [Some(0), Some(0), Some(0)], [100, 100, 100]),
            (Normalization::Range, [Some(-10), Some(10), Some(0)], [0, 100, 50]),
            (Normalization::Range, [Some(7), Some(7), Some(7)], [0, 0, 0]),
            (Normalization::Emptiest, [Some(2), Some(4), None], [100, 50, 0]),
            (Normalization::Emptiest, [Some(0), Some(0), None], [100, 100, 0]),
        ] {
            assert_eq!(normalization.scale(&raw), wanted, "{normalization:?} {raw:?}");
        }
    }
}
