//! The bytes that all instances of one container may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget of the container.
pub struct Budget {
    bytes_max: usize,
    used: AtomicUsize,
}

impl Budget {
    /// An unused budget; `None` is unlimited.
    #[cfg(feature = "shim")]
    pub fn new(bytes_max: Option<usize>) -> Self {
        Self { bytes_max: bytes_max.unwrap_or(usize::MAX), used: AtomicUsize::new(0) }
    }

    /// All of its bytes.
    #[cfg(feature = "shim")]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The bytes that are taken.
    #[cfg(all(test, feature = "shim"))]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Takes bytes, if there are as many.
    pub fn take(&self, bytes: usize) -> bool {
        let enough = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enough).is_ok()
    }

    /// Returns bytes that were taken.
    pub fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }
}

/// Bytes of a budget that are returned when this is dropped.
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Takes bytes of a budget, if there are as many.
    pub fn new(budget: &Arc<Budget>, bytes: usize) -> Option<Self> {
        budget.take(bytes).then(|| Self { budget: budget.clone(), bytes })
    }

    /// Takes or returns the difference. Changes nothing when there are not as many bytes.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            if !self.budget.take(bytes - self.bytes) {
                return false;
            }
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// The bytes that it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(all(test, feature = "shim"))]
mod tests {
    use super::*;

    #[test]
    fn a_charge_returns_what_it_took() {
        let budget = Arc::new(Budget::new(Some(100)));
        let mut charge = Charge::new(&budget, 60).unwrap();
        assert!(Charge::new(&budget, 41).is_none());
        assert!(charge.resize(100) && !charge.resize(101));
        assert_eq!((charge.bytes(), budget.used()), (100, 100));
        assert!(charge.resize(10));
        assert_eq!(budget.used(), 10);
        drop(charge);
        assert_eq!(budget.used(), 0);
    }
}
