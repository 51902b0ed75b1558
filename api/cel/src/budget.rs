//! The cost budget of several evaluations.

/// A cost budget that several evaluations share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// A budget of the given number of units.
    pub fn new(units: u64) -> Self {
        Self { left: units }
    }

    /// The remaining units.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Deducts a cost. False if the budget was too small; then it is empty.
    pub fn pay(&mut self, cost: u64) -> bool {
        let is_enough = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        is_enough
    }
}
