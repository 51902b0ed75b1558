//! What the searches of one scheduling cycle share: it does not depend on the node, and is computed once.

use std::collections::HashMap;
use std::sync::Arc;

use sched_framework::{DraManager, PoolId};

use super::error::AllocationError;
use super::pools::PoolSummary;
use super::selectors::{Compiled, SelectorCache};

/// The bytes of selectors that a cycle compiles: some hundred milliseconds.
const SELECTOR_BYTES_MAX: usize = 256 << 10;
/// What the shortest selector counts: each one is parsed on a stack of its own.
const SELECTOR_BYTES_MIN: usize = 256;

/// The results of a cycle so far.
pub(crate) struct CycleCache {
    pools: HashMap<PoolId, Arc<PoolSummary>>,
    selectors: HashMap<String, Compiled>,
    /// The bytes of further selectors that the cycle may compile.
    selector_bytes: usize,
    /// The steps of the work on pools that the cycle has not paid for yet.
    steps: usize,
}

impl Default for CycleCache {
    fn default() -> Self {
        Self { pools: HashMap::new(), selectors: HashMap::new(), selector_bytes: SELECTOR_BYTES_MAX, steps: 0 }
    }
}

impl CycleCache {
    /// The summary of the pool.
    pub fn pool(&mut self, dra: &DraManager, id: &PoolId) -> Arc<PoolSummary> {
        if let Some(summary) = self.pools.get(id) {
            return Arc::clone(summary);
        }
        let (summary, steps) = PoolSummary::new(dra, id);
        self.steps = self.steps.saturating_add(steps);
        let summary = Arc::new(summary);
        self.pools.insert(id.clone(), Arc::clone(&summary));
        summary
    }

    /// The compiled selector. It costs the cycle the same whether an earlier cycle has compiled it or not, so that the result of a cycle
    /// does not depend on earlier ones.
    ///
    /// # Errors
    /// When the cycle may not compile as much.
    pub fn selector(&mut self, selectors: &SelectorCache, expression: &str) -> Result<Compiled, AllocationError> {
        if let Some(compiled) = self.selectors.get(expression) {
            return Ok(compiled.clone());
        }
        let cost = expression.len().max(SELECTOR_BYTES_MIN);
        self.selector_bytes = self.selector_bytes.checked_sub(cost).ok_or(AllocationError::TimedOut)?;
        let compiled = selectors.get_or_compile(expression);
        self.selectors.insert(expression.to_owned(), compiled.clone());
        Ok(compiled)
    }

    /// Takes the steps that the cycle has to pay for.
    pub fn take_steps(&mut self) -> usize {
        std::mem::take(&mut self.steps)
    }
}
