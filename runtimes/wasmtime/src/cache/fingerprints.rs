//! What machine code depends on beside its module: an engine's settings. An engine is made to find it out, so it is remembered.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use runtimes_contract::RuntimeError;

use super::fingerprint_of;
use crate::compile::{Optimization, Purpose, Question};
use crate::settings::CodeSettings;

/// Enough for every set of the proposals that there are, with and without fuel.
const ENTRIES_MAX: usize = 64;

/// The fingerprints of one purpose.
pub(super) struct Fingerprints {
    purpose: Purpose,
    entries: Mutex<BTreeMap<(Optimization, CodeSettings), String>>,
}

impl Fingerprints {
    /// # Errors
    /// When this CPU cannot run WebAssembly.
    pub(super) fn new(purpose: Purpose) -> Result<Self, RuntimeError> {
        let fingerprints = Self { purpose, entries: Mutex::default() };
        for optimization in [Optimization::None, Optimization::Full] {
            fingerprints.get(optimization, &CodeSettings::default())?;
        }
        Ok(fingerprints)
    }

    /// # Errors
    /// When this machine cannot run code with the settings.
    pub(super) fn get(&self, optimization: Optimization, settings: &CodeSettings) -> Result<String, RuntimeError> {
        let key = (optimization, settings.clone());
        if let Some(fingerprint) = self.entries.lock().get(&key) {
            return Ok(fingerprint.clone());
        }
        let fingerprint = fingerprint_of(&Question { purpose: self.purpose, optimization, settings: settings.clone() })?;
        let mut entries = self.entries.lock();
        if entries.len() < ENTRIES_MAX {
            entries.insert(key, fingerprint.clone());
        }
        Ok(fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use runtimes_contract::WasmProposal;

    use super::*;

    #[test]
    fn each_combination_of_settings_has_its_own_and_all_are_remembered() {
        let fingerprints = Fingerprints::new(Purpose::Container).unwrap();
        let mut all = BTreeSet::new();
        for set in 0..1_u32 << WasmProposal::ALL.len() {
            let proposals: BTreeSet<_> =
                (0_u32..).zip(WasmProposal::ALL).filter(|(bit, _)| (set >> bit) & 1 == 1).map(|(_, one)| one).collect();
            for has_fuel in [false, true] {
                let settings = CodeSettings { proposals: proposals.clone(), has_fuel };
                for optimization in [Optimization::None, Optimization::Full] {
                    let fingerprint = fingerprints.get(optimization, &settings).unwrap();
                    let question = Question { purpose: Purpose::Container, optimization, settings: settings.clone() };
                    assert_eq!(fingerprint, fingerprint_of(&question).unwrap());
                    all.insert(fingerprint);
                }
            }
        }
        let combinations = 4 << WasmProposal::ALL.len();
        assert_eq!((all.len(), fingerprints.entries.lock().len()), (combinations, combinations));
    }
}
