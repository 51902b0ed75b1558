//! Guests for the tests, from WAT: nothing to install.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::components::component;

/// Bytes of a module.
pub fn module(name: &str) -> Vec<u8> {
    assemble(&source(name))
}

/// Bytes of a module that ends with a code.
pub fn exit_with(code: u8) -> Vec<u8> {
    assemble(&source("exit").replace("CODE)", &format!("{code})")).replace("with CODE", ""))
}

/// Bytes of a command component that looks up a name.
pub fn resolve(name: &str) -> Vec<u8> {
    let world = "package test:resolve;\nworld resolve {\n  import wasi:sockets/instance-network@0.2.12;\n  import wasi:sockets/ip-name-lookup@0.2.12;\n  import wasi:io/poll@0.2.12;\n  import wasi:cli/exit@0.2.12;\n  export wasi:cli/run@0.2.12;\n}\n";
    let text = source("resolve").replace("\"NAME\"", &format!("{name:?}")).replace("const LEN", &format!("const {}", name.len()));
    component(assemble(&text), world)
}

/// Writes bytes as the image store would: a file and its digest.
pub fn store(dir: &Path, bytes: &[u8]) -> (PathBuf, String) {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = dir.join(format!("{hash}.wasm"));
    std::fs::write(&path, bytes).unwrap();
    (path, format!("sha256:{hash}"))
}

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/guests/{name}.wat"));
    std::fs::read_to_string(path).unwrap()
}

fn assemble(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}
