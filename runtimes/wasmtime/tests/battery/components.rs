//! Components from WAT: nothing to install. The stories of the whole project use these guests too.

use std::path::PathBuf;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where the guest of [`http`] begins to handle a request.
const BEGINS: &str = "(call $path (local.get $request) (i32.const 0))\n";

/// Bytes of the `wasi:http/proxy` component.
pub fn http() -> Vec<u8> {
    http_with_pages(1)
}

/// The same with a memory that begins with so many pages.
pub fn http_with_pages(pages: u32) -> Vec<u8> {
    let text =
        include_str!("../guests/http.wat").replace("(memory (export \"memory\") 1)", &format!("(memory (export \"memory\") {pages})"));
    proxy(&text, "http/types@0.2.12 io/streams@0.2.12")
}

/// The same, which answers with the number of requests that its instance has handled. For `/grow` its memory grows by 4 MiB, or it traps;
/// for `/half` it does not end its answer.
pub fn counts_own_requests() -> Vec<u8> {
    const FINISHES: &str = "(call $finish (local.get $content) (i32.const 0) (i32.const 0) (i32.const 64))";
    let path_is = |word: &str| format!("(i32.eq (i32.load (i32.load (i32.const 4))) (i32.const {word}))");
    let grows =
        format!("(if {} (then (if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then unreachable))))", path_is("0x6f72672f"));
    let digit = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (i32.store8 (i32.const 1024) (i32.add (i32.const 48) (global.get $count)))";
    let changes = [
        ("(global $free", "(global $count (mut i32) (i32.const 0)) (global $free".to_owned()),
        (BEGINS, format!("{BEGINS} {grows} {digit}")),
        ("(i32.const 1024) (i32.const 15)", "(i32.const 1024) (i32.const 1)".to_owned()),
        (FINISHES, format!("(if (i32.eqz {}) (then {FINISHES}))", path_is("0x6c61682f"))),
    ];
    proxy(&changed(include_str!("../guests/http.wat"), &changes), "http/types@0.2.12 io/streams@0.2.12")
}

/// The same, which writes `hello` to its stdout at each request and does not end the line.
pub fn writes_half_a_line() -> Vec<u8> {
    let writes = "(local.set $output (call $stdout))
        (call $write (local.get $output) (i32.const 1024) (i32.const 5) (i32.const 128))
        (call $drop-stream (local.get $output))\n";
    let changes = [
        ("(memory (export", "(import \"wasi:cli/stdout@0.2.12\" \"get-stdout\" (func $stdout (result i32))) (memory (export".to_owned()),
        (BEGINS, format!("{BEGINS} {writes}")),
    ];
    proxy(&changed(include_str!("../guests/http.wat"), &changes), "http/types@0.2.12 io/streams@0.2.12 cli/stdout@0.2.12")
}

/// Bytes of a command component that uses wasi:config, wasi:keyvalue in two drafts, and wasi:logging.
pub fn interfaces() -> Vec<u8> {
    interfaces_of(include_str!("../guests/interfaces.wat"))
}

/// The same for a store whose cursors are no keys: it lists all keys instead of those behind one.
pub fn interfaces_without_cursor() -> Vec<u8> {
    let changes = [
        ("(call $keys2 (local.get $bucket2) (i32.const 1)", "(call $keys2 (local.get $bucket2) (i32.const 0)"),
        (
            "(i32.eq (i32.load (i32.const 8)) (i32.const 1))) (i32.const 17)",
            "(i32.eq (i32.load (i32.const 8)) (i32.const 2))) (i32.const 17)",
        ),
    ];
    interfaces_of(&changed(include_str!("../guests/interfaces.wat"), &changes))
}

fn interfaces_of(text: &str) -> Vec<u8> {
    let imports = "config/store@0.2.0-rc.1 logging/logging@0.1.0-draft keyvalue/store@0.2.0-draft keyvalue/atomics@0.2.0-draft \
        keyvalue/batch@0.2.0-draft keyvalue/store@0.2.0-draft2 keyvalue/atomics@0.2.0-draft2";
    command(&wat::parse_str(text).unwrap(), imports)
}

/// Bytes of two command components, of WASI 0.2 and 0.3, that end with 0 if their container has the variable `COLOUR=green` alone, the args
/// `run --fast` and the working directory `/data`.
pub fn environments() -> [Vec<u8>; 2] {
    const CALLBACK: &str = "(func (export \"[callback][async-lift]wasi:cli/run@0.3.0#run\") (param i32 i32 i32) (result i32) unreachable)";
    let core = |version: &str, initial_cwd: &str, run: &str, callback: &str| {
        let text = include_str!("../guests/environment.wat").replace("VERSION", version).replace("INITIAL-CWD", initial_cwd);
        wat::parse_str(text.replace("RUN", run).replace("(;callback;)", callback)).unwrap()
    };
    [
        command(&core("0.2.12", "initial-cwd", "wasi:cli/run@0.2.12#run", ""), "cli/environment@0.2.12"),
        async_command(
            &core("0.3.0", "get-initial-cwd", "[async-lift]wasi:cli/run@0.3.0#run", CALLBACK),
            "cli/environment@0.3.0 cli/exit@0.3.0",
        ),
    ]
}

/// Bytes of a `wasi:http/proxy` component that counts its requests in wasi:keyvalue, and answers with the number or the error.
pub fn counter() -> Vec<u8> {
    let imports = "http/types@0.2.12 io/streams@0.2.12 keyvalue/store@0.2.0-draft keyvalue/atomics@0.2.0-draft";
    proxy(include_str!("../guests/counter.wat"), imports)
}

/// Bytes of a `wasi:http/proxy` component that answers with the body and the trailers of its request.
pub fn trailers() -> Vec<u8> {
    proxy(include_str!("../guests/trailers.wat"), "http/types@0.2.12 io/streams@0.2.12 io/poll@0.2.12")
}

/// Bytes of a `wasi:http/proxy` component that speaks gRPC: the method `Check` of the health service, and methods that return what they get.
pub fn grpc() -> Vec<u8> {
    proxy(include_str!("../guests/grpc.wat"), "http/types@0.2.12 io/streams@0.2.12")
}

/// How a guest reaches a server.
#[derive(Clone, Copy)]
pub enum Way {
    Tcp,
    /// A UDP socket has a remote address.
    ConnectedUdp,
    /// Each datagram has its address.
    Udp,
}

/// Bytes of a command component of WASI 0.2 that sends to a port of 127.0.0.1 and waits for an answer.
pub fn sockets(way: Way, port: u16) -> Vec<u8> {
    let of_sockets = ["instance-network", "tcp-create-socket", "tcp", "udp-create-socket", "udp"];
    let imports: String = of_sockets.map(|name| format!("sockets/{name}@0.2.12 ")).concat();
    command(&towards(include_str!("../guests/sockets.wat"), way, port), &format!("{imports} io/streams@0.2.12 io/poll@0.2.12"))
}

/// The same for datagrams of WASI 0.3.
pub fn async_datagrams(way: Way, port: u16) -> Vec<u8> {
    async_command(&towards(include_str!("../guests/async-datagrams.wat"), way, port), "cli/exit@0.3.0 sockets/types@0.3.0")
}

fn towards(text: &str, way: Way, port: u16) -> Vec<u8> {
    let text = text.replace("const WAY", &format!("const {}", way as u8)).replace("const PORT", &format!("const {port}"));
    wat::parse_str(text).unwrap()
}

/// Bytes of a command component of WASI 0.3 that reads a file of its first directory, connects to 127.0.0.1:7000, and makes a file.
pub fn async_world() -> Vec<u8> {
    let core = wat::parse_str(include_str!("../guests/async-world.wat")).unwrap();
    async_command(&core, "cli/stdout@0.3.0 cli/exit@0.3.0 filesystem/preopens@0.3.0 filesystem/types@0.3.0 sockets/types@0.3.0")
}

/// A guest with changes, each of a text that it has.
fn changed(text: &str, changes: &[(&str, impl AsRef<str>)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (old, new)| {
        assert!(text.contains(*old), "{old}");
        text.replacen(*old, new.as_ref(), 1)
    })
}

/// A `wasi:http/proxy` component of a core module, which imports these interfaces below `wasi:`.
fn proxy(text: &str, imports: &str) -> Vec<u8> {
    component(wat::parse_str(text).unwrap(), &world(imports, "http/incoming-handler@0.2.12"))
}

/// A command component of a core module, which imports these interfaces below `wasi:` and `wasi:cli/exit`.
pub fn command(core: &[u8], imports: &str) -> Vec<u8> {
    component(core.to_vec(), &world(&format!("cli/exit@0.2.12 {imports}"), "cli/run@0.2.12"))
}

/// A world of interfaces below `wasi:`, with the packages that are no part of WASI 0.2.
fn world(imports: &str, export: &str) -> String {
    let imports: String = imports.split_whitespace().map(|name| format!("  import wasi:{name};\n")).collect();
    format!("package test:guest;\n{}\nworld guest {{\n{imports}  export wasi:{export};\n}}\n", include_str!("../guests/packages.wit"))
}

/// Bytes of a `wasi:http` component of WASI 0.3.
pub fn service() -> Vec<u8> {
    let core = wat::parse_str(include_str!("../guests/service.wat")).unwrap();
    component_of("src/p3/wit", core, &world("http/types@0.3.0 clocks/monotonic-clock@0.3.0", "http/handler@0.3.0"))
}

/// A command component of WASI 0.3 of a core module, which imports these interfaces below `wasi:`.
pub fn async_command(core: &[u8], imports: &str) -> Vec<u8> {
    component_of("src/p3/wit", core.to_vec(), &world(imports, "cli/run@0.3.0"))
}

/// Makes a component of WASI 0.2 of a core module with the canonical names.
pub fn component(core: Vec<u8>, world: &str) -> Vec<u8> {
    component_of("wit", core, world)
}

/// The same with the WIT files of this directory of wasmtime-wasi-http.
fn component_of(wit: &str, mut core: Vec<u8>, world: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    resolve.push_dir(package_dir().join(wit)).unwrap();
    let package = resolve.push_str("world.wit", world).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&core).unwrap().validate(true).encode().unwrap()
}

/// The sources of wasmtime-wasi-http, which have the WIT files of WASI. A build downloads the packages of its own platform only, and
/// must not request more.
fn package_dir() -> PathBuf {
    let fetched = ["--offline", "--filter-platform", "host-tuple"].map(str::to_owned);
    let metadata = cargo_metadata::MetadataCommand::new().other_options(fetched).exec().unwrap();
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "wasmtime-wasi-http").unwrap();
    package.manifest_path.parent().unwrap().into()
}
