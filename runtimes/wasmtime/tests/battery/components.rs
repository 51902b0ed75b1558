//! Components from WAT: nothing to install. The stories of the whole project use these guests too.

use std::path::PathBuf;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Bytes of the `wasi:http/proxy` component.
pub fn http() -> Vec<u8> {
    let world = "package test:web;\nworld web {\n  import wasi:http/types@0.2.12;\n  import wasi:io/streams@0.2.12;\n  export wasi:http/incoming-handler@0.2.12;\n}\n";
    component(wat::parse_str(include_str!("../guests/http.wat")).unwrap(), world)
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

/// The WIT files of WASI 0.2 that are part of wasmtime-wasi-http. A build downloads the packages of its own platform only, and
/// must not request more.
fn wit_dir() -> PathBuf {
    let fetched = ["--offline", "--filter-platform", "host-tuple"].map(str::to_owned);
    let metadata = cargo_metadata::MetadataCommand::new().other_options(fetched).exec().unwrap();
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "wasmtime-wasi-http").unwrap();
    package.manifest_path.parent().unwrap().join("wit").into()
}
