//! A large module: its first Pod starts with code that is compiled without optimization, and says what it waits for; its optimized
//! code comes later, and the next start uses it, also when the node was killed between. What modules are, and what of them is compiled,
//! `skiff image inspect` says.

use std::fs;
use std::path::{Path, PathBuf};

use tests::run::eventually;
use tests::{Cluster, Kubectl, cluster};

use crate::registry::{pod, says};

const NEVER_PULL: &str = "      imagePullPolicy: Never\n";
/// Far more than a module that is compiled with optimization at once.
const PADDING: usize = 10 << 20;

#[test]
fn a_large_module_starts_soon_and_is_optimized_for_its_next_start() {
    let mut cluster = Cluster::up();
    cluster.kubectl().until_usable("default");
    let work = tempfile::tempdir().expect("a directory");
    for number in 0..2_u8 {
        let file = work.path().join(format!("large{number}.wasm"));
        fs::write(&file, large(number)).expect("written");
        let output = cluster.skiff(&["image", "import", &format!("large{number}:v1"), &file.display().to_string()]).ok();
        assert!(output.contains("WebAssembly module, a WASI preview 1 program; it imports wasi_snapshot_preview1\n"), "{output}");
    }
    inspected(&cluster, "large0:v1", &["Kind:        WebAssembly module, a WASI preview 1 program\n", "Compiled:    not yet\n"]);
    let kubectl = cluster.kubectl();
    pod(&kubectl, "first", "wasmtime", "large0:v1", NEVER_PULL);
    says(&kubectl, "first", "Hello from WebAssembly!");
    has_events(&kubectl, "first", &["Compiling", "Compiled"]);
    has_size_and_times(&kubectl, large(0).len());
    let optimized = eventually("the module is optimized", || in_cache(&cluster, 2));

    inspected(&cluster, "large0:v1", &["Exports:     memory\n             _start\n", " kB, optimized, in "]);

    // The next start has the optimized code: without the other it compiles nothing.
    let quick = optimized.first().expect("the older one");
    fs::remove_file(quick).expect("removed");
    pod(&kubectl, "second", "wasmtime", "large0:v1", NEVER_PULL);
    says(&kubectl, "second", "Hello from WebAssembly!");
    has_events(&kubectl, "second", &[]);
    in_cache(&cluster, 1).expect("no other code");

    // The node is killed before the optimized code is there, or soon after; the next start goes on with what there is.
    pod(&kubectl, "third", "wasmtime", "large1:v1", NEVER_PULL);
    says(&kubectl, "third", "Hello from WebAssembly!");
    cluster.kill();
    cluster.start();
    let kubectl = cluster.kubectl();
    pod(&kubectl, "fourth", "wasmtime", "large1:v1", NEVER_PULL);
    says(&kubectl, "fourth", "Hello from WebAssembly!");
    has_events(&kubectl, "fourth", &[]);
    eventually("the module is optimized after the kill", || in_cache(&cluster, 3));
    modules_are_described(&cluster, &kubectl);
}

/// What `skiff image inspect` says of an image.
#[track_caller]
fn inspected(cluster: &Cluster, image: &str, wanted: &[&str]) {
    let output = cluster.skiff(&["image", "inspect", image]).ok();
    for wanted in wanted {
        assert!(output.contains(wanted), "{wanted}: {output}");
    }
}

/// Needs two proposals, of which the second is off by default. It has nothing that a container runs.
const PROPOSALS: &str = r#"(module
  (memory (export "shared") 1 1 shared)
  (func (export "add") (result v128) (drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1))) (v128.const i64x2 1 2)))"#;

/// A component, before and after its first start, and a module that needs proposals.
fn modules_are_described(cluster: &Cluster, kubectl: &Kubectl<'_>) {
    let len = fs::metadata(cluster::sample("web.wasm")).expect("a sample").len();
    let size = format!("Size:        {}.{} kB\n", len / 1_000, len % 1_000 / 100);
    let kind = "Kind:        WebAssembly component, a server (wasi:http/incoming-handler)\n";
    let names = ["Imports:     wasi:", "Exports:     wasi:http/incoming-handler@0.2."];
    inspected(cluster, "samples/web", &[&[kind, size.as_str(), "Compiled:    not yet\n"][..], &names].concat());
    pod(kubectl, "web", "wasmtime", "samples/web:latest", NEVER_PULL);
    kubectl.until_ready("web");
    has_events(kubectl, "web", &[]);
    let output = cluster.skiff(&["image", "inspect", "samples/web"]).ok();
    let compiled = output.lines().find_map(|line| line.strip_prefix("Compiled:")).and_then(|row| row.split_once(", optimized, in "));
    let (size, took) = compiled.unwrap_or_else(|| panic!("{output}"));
    let kilobytes = size.trim().strip_suffix(" kB").and_then(|number| number.parse::<f64>().ok());
    assert!(kilobytes.is_some_and(|number| number > 0.0), "{output}");
    assert!(milliseconds(took) > 0.0, "{output}");

    let work = tempfile::tempdir().expect("a directory");
    let file = work.path().join("proposals.wat");
    fs::write(&file, PROPOSALS).expect("written");
    let imported = cluster.skiff(&["image", "import", "proposals:v1", &file.display().to_string()]).ok();
    let kind = "WebAssembly module, nothing that a container runs";
    assert!(imported.contains(&format!("{kind}; it imports nothing\n")), "{imported}");
    let rows = ["Proposals:   simd, threads\n", "Compiled:    not yet\n", "Exports:     shared\n             add\n"];
    inspected(cluster, "proposals:v1", &[&[format!("Kind:        {kind}\n").as_str()][..], &rows].concat());
}

/// The events of the first Pod have the bytes of its module, and how long it took to compile them.
#[track_caller]
fn has_size_and_times(kubectl: &Kubectl<'_>, len: usize) {
    let message = |reason: &str| {
        kubectl.ok(&format!("get events --field-selector involvedObject.name=first,reason={reason} -o jsonpath={{.items[*].message}}"))
    };
    assert_eq!(message("Compiling"), format!("Compiling the WebAssembly module of image \"large0:v1\" ({len} bytes)"));
    let compiled = message("Compiled");
    let times = compiled.strip_prefix("Successfully compiled the WebAssembly module of image \"large0:v1\" in ");
    let times = times.and_then(|times| times.strip_suffix(" including waiting)")?.split_once(" ("));
    let (took, waited) = times.unwrap_or_else(|| panic!("{compiled}"));
    assert!(0.0 < milliseconds(took) && milliseconds(took) <= milliseconds(waited), "{compiled}");
}

/// The milliseconds of a time such as `812.345ms` or `4.112s`.
#[track_caller]
fn milliseconds(time: &str) -> f64 {
    let units = [("ms", 1.0), ("µs", 0.001), ("s", 1_000.0)];
    let found = units.iter().find_map(|(unit, factor)| Some(time.strip_suffix(unit)?.parse::<f64>().ok()? * factor));
    found.unwrap_or_else(|| panic!("{time}"))
}

/// The sample with a section that nothing reads.
fn large(number: u8) -> Vec<u8> {
    let mut bytes = fs::read(cluster::sample("hello.wasm")).expect("a sample");
    let content = [&[1, b'x'][..], &vec![number; PADDING]].concat();
    let mut len = content.len();
    bytes.push(0);
    while len > 0x7f {
        bytes.push(u8::try_from(len & 0x7f).expect("seven bits") | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).expect("seven bits"));
    [bytes, content].concat()
}

/// The compiled files, the oldest first, when there are so many.
fn in_cache(cluster: &Cluster, count: usize) -> Result<Vec<PathBuf>, String> {
    let files = fs::read_dir(cluster.data_dir().join("compiled")).expect("lists").map(|entry| entry.expect("an entry").path());
    let mut codes: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect();
    let age = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).expect("a time");
    codes.sort_by_key(|path| age(path));
    if codes.len() == count { Ok(codes) } else { Err(format!("{codes:?}")) }
}

/// Whether the Pod's events about compiling are these.
#[track_caller]
fn has_events(kubectl: &Kubectl<'_>, name: &str, reasons: &[&str]) {
    eventually(&format!("the events of {name}"), || {
        let events = kubectl.ok(&format!("get events --field-selector involvedObject.name={name} -o jsonpath={{.items[*].reason}}"));
        let is_started = events.split(' ').any(|reason| reason == "Started");
        let compiling: Vec<&str> = events.split(' ').filter(|reason| reason.starts_with("Compil")).collect();
        if is_started && compiling == reasons { Ok(()) } else { Err(events) }
    });
}
