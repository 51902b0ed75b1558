//! What evaluations may still cost.

/// A sum of cost that several evaluations share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// A budget of so many units.
    pub fn new(units: u64) -> Self {
        Self { left: units }
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes the cost of something; false if there was not enough, after which nothing is left.
    pub fn pay(&mut self, cost: u64) -> bool {
        let is_enough = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        is_enough
    }
}
