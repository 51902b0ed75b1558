//! Guests that run with code that was compiled without optimization, and then with their optimized code, in the real shim.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runtimes_battery::{Harness, Program, spec_of};
use runtimes_contract::{ContainerSpec, Content, Runtime};

use crate::harness::Wasmtime;

/// The program as a large module.
fn large(harness: &Wasmtime, id: &str, program: Program) -> ContainerSpec {
    let spec = spec_of(harness, id, program);
    let Content::Wasm { module, .. } = &spec.content else { panic!("a module") };
    with_bytes(harness, &spec, std::fs::read(module).unwrap())
}

/// The module has a section that nothing reads, which makes it large.
fn with_bytes(harness: &Wasmtime, spec: &ContainerSpec, module: Vec<u8>) -> ContainerSpec {
    let custom = [&b"\0\x80\x80\xd8\x04\x01x"[..], &vec![0; (600 << 14) - 2]].concat();
    ContainerSpec { content: harness.content(&[module, custom].concat()), ..spec.clone() }
}

/// A recursion that optimized code does in less than half a MiB of stack: 16,000 calls of a function with twelve variables.
fn recursive() -> Vec<u8> {
    let numbers = 0..12;
    let declared: String = numbers.clone().map(|number| format!("(local $v{number} i64)")).collect();
    let set = |number: usize| {
        let other = (number + 5) % 12;
        format!("(local.set $v{number} (i64.add (i64.extend_i32_u (local.get $n)) (i64.mul (local.get $v{other}) (i64.const {number}))))")
    };
    let set: String = numbers.clone().map(set).collect();
    let sum = numbers.fold("(i64.const 0)".to_owned(), |sum, number| format!("(i64.xor {sum} (local.get $v{number}))"));
    wat::parse_str(format!(
        "(module
            (func $sum (param $n i32) (result i64) {declared} {set}
                (if (result i64) (local.get $n)
                    (then (i64.add {sum} (i64.add (call $sum (i32.sub (local.get $n) (i32.const 1))) {sum})))
                    (else {sum})))
            (func (export \"_start\") (drop (call $sum (i32.const 16000)))))"
    ))
    .unwrap()
}

/// The compiled files.
fn codes(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir.join("cache")).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).count()
}

/// Prepares and runs each program; what it says and how it ends.
async fn run(runtime: &Arc<dyn Runtime>, specs: &[ContainerSpec]) -> Vec<(i32, Option<i32>, String)> {
    let mut ends = Vec::new();
    for spec in specs {
        let _ = std::fs::remove_file(&spec.log_path);
        runtime.prepare(spec, "tenant").await.unwrap();
        runtime.create(spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        if spec.id.0 == "spin" {
            runtime.signal(&spec.id, 15).await.unwrap();
        }
        let exit = tokio::time::timeout(Duration::from_secs(30), runtime.wait(&spec.id)).await.unwrap().unwrap();
        runtime.remove(&spec.id).await.unwrap();
        let log = std::fs::read_to_string(&spec.log_path).unwrap();
        let lines = log.lines().map(|line| line.splitn(4, ' ').skip(1).collect::<Vec<_>>().join(" "));
        ends.push((exit.code, exit.signal, lines.collect::<Vec<_>>().join("\n")));
    }
    ends
}

#[tokio::test]
async fn guests_do_the_same_with_both_kinds_of_code() {
    let harness = Wasmtime::new();
    let specs = [("hello", Program::Hello), ("exit", Program::ExitWith(7)), ("spin", Program::Spin), ("hog", Program::Hog)]
        .map(|(id, program)| large(&harness, id, program));
    let deep = with_bytes(&harness, &spec_of(&harness, "deep", Program::Hello), recursive());
    let specs: Vec<_> = specs.into_iter().chain([deep]).collect();
    let specs: Vec<_> = specs
        .into_iter()
        .map(|mut spec| {
            spec.resources.memory_limit_bytes = Some(32 << 20);
            spec
        })
        .collect();
    let runtime = harness.runtime();
    let first = run(&runtime, &specs).await;
    assert_eq!(first.iter().map(|end| end.0).collect::<Vec<_>>(), [0, 7, 143, 3, 0], "{first:?}");
    assert_eq!(codes(harness.dir()), specs.len(), "one code each");
    let wait = async {
        while codes(harness.dir()) < 2 * specs.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        waited = tokio::time::timeout(Duration::from_secs(60), wait) => waited.unwrap(),
        () = runtime.work_in_background() => unreachable!("it never ends"),
    }
    // Only the optimized code is left, so the next start uses it.
    for path in std::fs::read_dir(harness.dir().join("cache")).unwrap().map(|entry| entry.unwrap().path()) {
        let note = std::fs::read_to_string(path.with_extension("json")).unwrap();
        if note.contains("\"superseded_by\":\"") {
            let _ = std::fs::remove_file(path.with_extension("cwasm"));
        }
    }
    assert_eq!(codes(harness.dir()), specs.len());
    assert_eq!(run(&runtime, &specs).await, first);
    assert_eq!(codes(harness.dir()), specs.len(), "nothing was compiled");
}
