//! Guests that run with code that was compiled without optimization, and then with their optimized code, in the real shim.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runtimes_battery::{Harness, Program, spec_of};
use runtimes_contract::{ContainerSpec, Content, Runtime};

use crate::harness::Wasmtime;

/// The program with a section that nothing reads, which makes its module large.
fn large(harness: &Wasmtime, id: &str, program: Program) -> ContainerSpec {
    let spec = spec_of(harness, id, program);
    let Content::Wasm { module, .. } = &spec.content else { panic!("a module") };
    let custom = [&b"\0\x80\x80\xd8\x04\x01x"[..], &vec![0; (600 << 14) - 2]].concat();
    let bytes = [std::fs::read(module).unwrap(), custom].concat();
    ContainerSpec { content: harness.content(&bytes), ..spec }
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
    let specs = specs.map(|mut spec| {
        spec.resources.memory_limit_bytes = Some(32 << 20);
        spec
    });
    let runtime = harness.runtime();
    let first = run(&runtime, &specs).await;
    assert_eq!(first.iter().map(|end| end.0).collect::<Vec<_>>(), [0, 7, 143, 3], "{first:?}");
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
