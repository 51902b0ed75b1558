//! What machine code depends on beside its module: an engine's settings. An engine is made to find it out, so it is remembered.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use runtimes_contract::{RuntimeError, WasmProposal};

use super::fingerprint_of;
use crate::compile::{Optimization, Purpose, Question};

/// Enough for every set of the proposals that there are.
const ENTRIES_MAX: usize = 32;

/// The fingerprints of one purpose.
pub(super) struct Fingerprints {
    purpose: Purpose,
    entries: Mutex<BTreeMap<(Optimization, BTreeSet<WasmProposal>), String>>,
}

impl Fingerprints {
    /// # Errors
    /// When this CPU cannot run WebAssembly.
    pub(super) fn new(purpose: Purpose) -> Result<Self, RuntimeError> {
        let fingerprints = Self { purpose, entries: Mutex::default() };
        for optimization in [Optimization::None, Optimization::Full] {
            fingerprints.get(optimization, &BTreeSet::new())?;
        }
        Ok(fingerprints)
    }

    /// # Errors
    /// When this machine cannot run code with the proposals.
    pub(super) fn get(&self, optimization: Optimization, proposals: &BTreeSet<WasmProposal>) -> Result<String, RuntimeError> {
        let key = (optimization, proposals.clone());
        if let Some(fingerprint) = self.entries.lock().get(&key) {
            return Ok(fingerprint.clone());
        }
        let fingerprint = fingerprint_of(&Question { purpose: self.purpose, optimization, proposals: proposals.clone() })?;
        let mut entries = self.entries.lock();
        if entries.len() < ENTRIES_MAX {
            entries.insert(key, fingerprint.clone());
        }
        Ok(fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_proposals_has_its_own_and_all_are_remembered() {
        let fingerprints = Fingerprints::new(Purpose::Container).unwrap();
        let mut all = BTreeSet::new();
        for set in 0..1_u32 << WasmProposal::ALL.len() {
            let proposals: BTreeSet<_> =
                (0_u32..).zip(WasmProposal::ALL).filter(|(bit, _)| (set >> bit) & 1 == 1).map(|(_, one)| one).collect();
            for optimization in [Optimization::None, Optimization::Full] {
                let fingerprint = fingerprints.get(optimization, &proposals).unwrap();
                let question = Question { purpose: Purpose::Container, optimization, proposals: proposals.clone() };
                assert_eq!(fingerprint, fingerprint_of(&question).unwrap());
                all.insert(fingerprint);
            }
        }
        let sets = 2 << WasmProposal::ALL.len();
        assert_eq!((all.len(), fingerprints.entries.lock().len()), (sets, sets));
    }
}
