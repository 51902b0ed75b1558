//! Guests for the tests, from WAT: nothing to install.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::components::{command, component};

/// Bytes of a module.
pub fn module(name: &str) -> Vec<u8> {
    assemble(&source(name))
}

/// Bytes of a module that makes a file in one of the directories that it is shown.
pub fn creating(directory: &str, path: &str) -> Vec<u8> {
    let text = source("create-file").replace("PATH_LEN", &path.len().to_string()).replace("\"PATH\"", &format!("{path:?}"));
    let index = usize::from(directory.len() > 1);
    let letter = directory.as_bytes().get(index).copied().unwrap_or(0);
    let text = text.replace("LETTER_AT", &(16 + index).to_string());
    assemble(&text.replace("DIRECTORY_LEN", &directory.len().to_string()).replace("DIRECTORY_LETTER", &letter.to_string()))
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

/// Bytes of a command component that sends a request to an authority.
pub fn fetch(authority: &str) -> Vec<u8> {
    let text = source("fetch").replace("\"NAME\"", &format!("{authority:?}")).replace("const LEN", &format!("const {}", authority.len()));
    command(&assemble(&text), "http/types@0.2.12 http/outgoing-handler@0.2.12 io/poll@0.2.12")
}

/// Bytes of a command component that fills wasi:keyvalue and then wants a value so many times.
pub fn hoarder(copies: u32) -> Vec<u8> {
    let text = source("hoarder").replace("COPIES)", &format!("{copies})"));
    command(&assemble(&text), "keyvalue/store@0.2.0-draft keyvalue/batch@0.2.0-draft")
}

/// Bytes of a command component of this version of wasi:cli, whose `run` has this body and returns this (0 is ok). It can call `$exit`
/// (0 is ok) and, where the version has it, `$exit-with-code`.
pub fn exiting(version: &str, body: &str, returned: u32) -> Vec<u8> {
    let function = if body.contains("$exit-with-code") { "exit-with-code" } else { "exit" };
    let core = format!(
        r#"(module (import "wasi:cli/exit@{version}" "{function}" (func ${function} (param i32)))
             (func (export "wasi:cli/run@{version}#run") (result i32) {body} (i32.const {returned})))"#
    );
    // The packages of WASI are those of one version; others are declared here.
    let (exit, run) = ("exit: func(status: result); exit-with-code: func(status-code: u8);", "run: func() -> result;");
    let package = format!("package wasi:cli@{version} {{ interface exit {{ {exit} }} interface run {{ {run} }} }}\n");
    let package = if version == "0.2.12" { "" } else { &package };
    component(
        assemble(&core),
        &format!("package test:exits;\n{package}world exits {{ import wasi:cli/exit@{version}; export wasi:cli/run@{version}; }}\n"),
    )
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
