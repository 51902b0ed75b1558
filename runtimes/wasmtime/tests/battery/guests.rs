//! Guests for the tests, from WAT: nothing to install.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Bytes of a module.
pub fn module(name: &str) -> Vec<u8> {
    assemble(&source(name))
}

/// Bytes of a module that ends with a code.
pub fn exit_with(code: u8) -> Vec<u8> {
    assemble(&source("exit").replace("CODE)", &format!("{code})")).replace("with CODE", ""))
}

/// Bytes of the `wasi:http/proxy` component.
pub fn http() -> Vec<u8> {
    let world = "package test:web;\nworld web {\n  import wasi:http/types@0.2.12;\n  import wasi:io/streams@0.2.12;\n  export wasi:http/incoming-handler@0.2.12;\n}\n";
    component(module("http"), world)
}

/// Bytes of a command component that looks up a name.
pub fn resolve(name: &str) -> Vec<u8> {
    let world = "package test:resolve;\nworld resolve {\n  import wasi:sockets/instance-network@0.2.12;\n  import wasi:sockets/ip-name-lookup@0.2.12;\n  import wasi:io/poll@0.2.12;\n  import wasi:cli/exit@0.2.12;\n  export wasi:cli/run@0.2.12;\n}\n";
    let text = source("resolve").replace("\"NAME\"", &format!("{name:?}")).replace("const LEN", &format!("const {}", name.len()));
    component(assemble(&text), world)
}

/// Makes a component of a core module with the canonical names.
pub fn component(mut core: Vec<u8>, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    resolve.push_dir(wit_dir()).unwrap();
    let package = resolve.push_str("world.wit", world).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&core).unwrap().validate(true).encode().unwrap()
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

/// The WIT files of WASI 0.2 that are part of wasmtime-wasi-http. A build downloads the packages of its own platform only, and
/// must not request more.
fn wit_dir() -> PathBuf {
    let fetched = ["--offline", "--filter-platform", "host-tuple"].map(str::to_owned);
    let metadata = cargo_metadata::MetadataCommand::new().other_options(fetched).exec().unwrap();
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "wasmtime-wasi-http").unwrap();
    package.manifest_path.parent().unwrap().join("wit").into()
}
