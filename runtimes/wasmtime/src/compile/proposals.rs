//! Which proposals a module would need that are off: it is validated again with them.

use std::collections::BTreeSet;

use runtimes_contract::WasmProposal;
use wasmparser::{Validator, WasmFeatures};

use super::Complaint;

/// Each proposal that a setting switches on.
pub(super) fn all() -> BTreeSet<WasmProposal> {
    BTreeSet::from(WasmProposal::ALL)
}

/// What a valid file may use when these proposals are on.
pub(super) fn features(proposals: &BTreeSet<WasmProposal>) -> WasmFeatures {
    let mut features = WasmFeatures::WASM3 | WasmFeatures::GC_TYPES | WasmFeatures::COMPONENT_MODEL | WasmFeatures::CM_ASYNC;
    for proposal in WasmProposal::ALL {
        let flag = match proposal {
            WasmProposal::CustomPageSizes => WasmFeatures::CUSTOM_PAGE_SIZES,
            WasmProposal::StackSwitching => WasmFeatures::STACK_SWITCHING,
            WasmProposal::Threads => WasmFeatures::THREADS,
            WasmProposal::WideArithmetic => WasmFeatures::WIDE_ARITHMETIC,
        };
        features.set(flag, proposals.contains(&proposal));
    }
    features
}

/// A better reason for a module that the engine found invalid with these proposals, if a proposal is all that it lacks.
pub(super) fn explained(complaint: Complaint, bytes: &[u8], on: &BTreeSet<WasmProposal>) -> Complaint {
    if !matches!(complaint, Complaint::Invalid(_)) {
        return complaint;
    }
    let lacking = lacking(bytes, on);
    if lacking.is_empty() {
        return complaint;
    }
    // The whole list, so that it can be copied into the annotation.
    let names: Vec<_> = lacking.union(on).map(|proposal| proposal.name()).collect();
    Complaint::Off(names.join(","))
}

/// The proposals without which the module is not valid, and which are not on. None when it is not valid with all of them.
fn lacking(bytes: &[u8], on: &BTreeSet<WasmProposal>) -> BTreeSet<WasmProposal> {
    let all = all();
    if !is_valid(bytes, &all) {
        return BTreeSet::new();
    }
    let needs = |proposal: &&WasmProposal| {
        let mut others = all.clone();
        others.remove(*proposal);
        !is_valid(bytes, &others)
    };
    all.difference(on).filter(needs).copied().collect()
}

fn is_valid(bytes: &[u8], proposals: &BTreeSet<WasmProposal>) -> bool {
    Validator::new_with_features(features(proposals)).validate_all(bytes).is_ok()
}
