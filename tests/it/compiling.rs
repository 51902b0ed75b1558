//! A large module: its first Pod starts with code that is compiled without optimization, and says what it waits for; its optimized
//! code comes later, and the next start uses it, also when the node was killed between.

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
    inspected(&cluster, &["Kind:        WebAssembly module, a WASI preview 1 program\n", "Compiled:    not yet\n"]);
    let kubectl = cluster.kubectl();
    pod(&kubectl, "first", "wasmtime", "large0:v1", NEVER_PULL);
    says(&kubectl, "first", "Hello from WebAssembly!");
    has_events(&kubectl, "first", &["Compiling", "Compiled"]);
    let message = kubectl.ok("get events --field-selector involvedObject.name=first,reason=Compiled -o jsonpath={.items[*].message}");
    assert!(message.starts_with("Successfully compiled the WebAssembly module of image \"large0:v1\" in "), "{message}");
    assert!(message.ends_with(" including waiting)"), "{message}");
    let optimized = eventually("the module is optimized", || in_cache(&cluster, 2));

    inspected(&cluster, &["Exports:     memory\n             _start\n", " kB, optimized, in "]);

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
}

/// What `skiff image inspect` says of the first module.
#[track_caller]
fn inspected(cluster: &Cluster, wanted: &[&str]) {
    let output = cluster.skiff(&["image", "inspect", "large0:v1"]).ok();
    for wanted in wanted {
        assert!(output.contains(wanted), "{wanted}: {output}");
    }
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
