//! Counts the cost of one evaluation and ends it at its limit.

use crate::error::EvaluateError;

/// The cost of one evaluation so far, and its limit.
pub(crate) struct Meter {
    spent: u64,
    limit: u64,
}

impl Meter {
    /// A meter with a limit in units.
    pub(crate) fn new(limit: u64) -> Self {
        Self { spent: 0, limit }
    }

    /// The units spent so far.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// Adds a cost before its work is done.
    pub(crate) fn pay(&mut self, cost: u64) -> Result<(), EvaluateError> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent <= self.limit {
            return Ok(());
        }
        // Work that exceeds the limit is not done, so it does not count in full.
        self.spent = self.limit.saturating_add(1);
        Err(EvaluateError::CallCost)
    }

    /// The remaining units.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent)
    }

    /// Adds the cost of reading `len` characters.
    pub(crate) fn pay_text(&mut self, len: u64) -> Result<(), EvaluateError> {
        self.pay(len.div_ceil(10))
    }
}
