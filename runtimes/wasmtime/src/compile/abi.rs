//! Which ABI a component needs. Pure; the bodies of functions are not looked at, so it takes little time.

use wasmparser::{Parser, Validator, WasmFeatures};

use crate::compile::proposals;
use crate::kind::{Abi, is_wasi_0_3};
use crate::outline::{Name, each_name};

/// The ABI of a file. One that is no valid component with either ABI counts as [`Abi::Sync`]: the compiler then says what is wrong.
pub(crate) fn abi_of(bytes: &[u8]) -> Abi {
    if !Parser::is_component(bytes) {
        return Abi::Sync;
    }
    let features = proposals::features(&proposals::all());
    if names_wasi_0_3(bytes) || (!has_valid_types(bytes, features.difference(WasmFeatures::CM_ASYNC)) && has_valid_types(bytes, features)) {
        Abi::Async
    } else {
        Abi::Sync
    }
}

/// Whether the component imports or exports an interface of WASI 0.3: not every one has a function with the async ABI.
fn names_wasi_0_3(bytes: &[u8]) -> bool {
    let mut is_named = false;
    let read = each_name(bytes, |name| {
        is_named |= matches!(name, Name::ComponentImport(name) | Name::ComponentExport(name) if is_wasi_0_3(name));
    });
    read.is_ok() && is_named
}

/// Whether all is valid but for the bodies of functions, which are not looked at.
fn has_valid_types(bytes: &[u8], features: WasmFeatures) -> bool {
    let mut validator = Validator::new_with_features(features);
    Parser::new(0).parse_all(bytes).all(|payload| payload.and_then(|payload| validator.payload(&payload).map(drop)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_uses_the_async_abi_or_wasi_0_3_needs_it() {
        let of = |text: &str| abi_of(&wat::parse_str(text).unwrap());
        for (text, wanted) in [
            ("(module)", Abi::Sync),
            ("(component)", Abi::Sync),
            (r#"(component (import "wasi:random/random@0.2.12" (instance (export "get-random-u64" (func (result u64))))))"#, Abi::Sync),
            (r#"(component (import "wasi:random/random@0.3.0" (instance (export "get-random-u64" (func (result u64))))))"#, Abi::Async),
            (r#"(component (import "other:random/random@0.3.0" (instance (export "get-random-u64" (func (result u64))))))"#, Abi::Sync),
            (r#"(component (import "a:b/c" (instance (export "go" (func async)))))"#, Abi::Async),
            (r#"(component (import "a:b/c" (instance (export "go" (func (result (stream u8)))))))"#, Abi::Async),
            (r#"(component (component (type (future u8))))"#, Abi::Async),
            // The body of a function counts for nothing.
            (r#"(component (core module (func (result i32) unreachable)))"#, Abi::Sync),
        ] {
            assert_eq!(of(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_broken_is_left_to_the_compiler() {
        let component =
            wat::parse_str(r#"(component (import "wasi:cli/run@0.3.0" (instance (export "run" (func async (result (result)))))))"#);
        let component = component.unwrap();
        for len in 0..component.len() {
            // Whatever the answer is, it is one.
            let _abi = abi_of(&component[..len]);
        }
        assert_eq!(abi_of(b"\0asm\x0d\0\x01\0\xff"), Abi::Sync);
        assert_eq!(abi_of(b"MZ"), Abi::Sync);
    }
}
