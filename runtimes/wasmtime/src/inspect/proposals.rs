//! The proposals that a valid module needs: those without which it would not be valid.

use wasmparser::{Validator, WasmFeatures};

/// Proposals that today's compilers use.
const COMMON: [(&str, WasmFeatures); 6] = [
    ("bulk-memory-operations", WasmFeatures::BULK_MEMORY),
    ("multi-value", WasmFeatures::MULTI_VALUE),
    ("nontrapping-float-to-int-conversions", WasmFeatures::SATURATING_FLOAT_TO_INT),
    ("reference-types", WasmFeatures::REFERENCE_TYPES),
    ("sign-extension-ops", WasmFeatures::SIGN_EXTENSION),
    ("simd", WasmFeatures::SIMD),
];

/// Proposals that few modules use: one look tells that a module uses none of them.
const RARE: [(&str, WasmFeatures); 14] = [
    ("component-model-async", WasmFeatures::CM_ASYNC),
    ("custom-page-sizes", WasmFeatures::CUSTOM_PAGE_SIZES),
    ("exception-handling", WasmFeatures::EXCEPTIONS),
    ("exception-handling (legacy)", WasmFeatures::LEGACY_EXCEPTIONS),
    ("extended-const", WasmFeatures::EXTENDED_CONST),
    ("function-references", WasmFeatures::FUNCTION_REFERENCES),
    ("gc", WasmFeatures::GC),
    ("memory64", WasmFeatures::MEMORY64),
    ("multi-memory", WasmFeatures::MULTI_MEMORY),
    ("relaxed-simd", WasmFeatures::RELAXED_SIMD),
    ("stack-switching", WasmFeatures::STACK_SWITCHING),
    ("tail-call", WasmFeatures::TAIL_CALL),
    ("threads", WasmFeatures::THREADS),
    ("wide-arithmetic", WasmFeatures::WIDE_ARITHMETIC),
];

/// The proposals of a module that is valid with all of them, in the order of their names.
pub(super) fn of(bytes: &[u8]) -> Vec<&'static str> {
    let needs = |features: WasmFeatures| {
        let others = WasmFeatures::all().difference(features);
        Validator::new_with_features(others).validate_all(bytes).is_err()
    };
    let rare = RARE.iter().fold(WasmFeatures::empty(), |all, (_, feature)| all.union(*feature));
    let rare = if needs(rare) { &RARE[..] } else { &[] };
    let mut names: Vec<&str> = COMMON.iter().chain(rare).filter(|(_, feature)| needs(*feature)).map(|(name, _)| *name).collect();
    names.sort_unstable();
    names
}
