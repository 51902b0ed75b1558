//! No background task fails silently: these tests read the sources of every crate. They reject a task without an owner,
//! and an owned task that no test makes fail. The tables list the exceptions with their reasons.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tests::cluster::project;
use tests::tasks::{ELSEWHERE, OF_A_SHARED_STORE, OF_UP};

/// Calls that start a task or thread without a name and an owner. `api-tasks` has a replacement for each.
const BARE: &[&str] = &[
    "tokio::spawn(",
    "task::spawn(",
    "spawn_blocking(",
    "spawn_local(",
    "spawn_on(",
    "thread::spawn(",
    "thread::Builder",
    "thread::scope",
    "TaskTracker",
    "Handle::current(",
];

/// Sources that may use such calls, and why.
const MAY: &[(&str, &str)] = &[
    ("api/tasks/src/lib.rs", "where the names and owners come from"),
    ("api/cel/src/parse.rs", "a thread for its stack, joined at once"),
    ("node/agent/src/server/port_forward/dial.rs", "a thread that enters another namespace; its answer is awaited"),
    ("node/network/src/sandbox.rs", "a thread that enters another namespace, joined at once"),
    ("node/images/src/lib.rs", "removes a temporary directory, for whoever was dropped"),
    ("node/images/src/mapped.rs", "a thread with mounts of its own, joined at once; a panic is an error"),
    ("runtimes/host/src/blocking.rs", "its result is awaited, a panic is an error"),
    ("runtimes/shim/src/launch.rs", "a scoped thread, joined at once; the wait for a helper of an exec, in which nothing panics"),
    ("runtimes/host/src/mounts/empty.rs", "a scoped thread, joined at once"),
    ("runtimes/host/src/helper/start.rs", "its result is awaited, or it removes a dropped process' cgroup"),
    ("runtimes/shim/src/attach/client.rs", "one attached client, whose streams end with it"),
    ("runtimes/shim/src/exec.rs", "one exec; its result is awaited, a panic is an error"),
    ("runtimes/wasmtime/src/host/keyvalue/redis/connection.rs", "the event loop to which a connection belongs; begins nothing"),
    ("runtimes/wasmtime/src/host/keyvalue/redis/idle.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/outbound.rs", "its result is awaited, a panic is an error"),
    ("runtimes/wasmtime/src/runtime/program.rs", "one compilation, which goes on without its caller; a panic is the caller's error"),
    ("runtimes/wasmtime/src/shim/builtin.rs", "its result is awaited, a panic is an error"),
    ("runtimes/wasmtime/src/shim/further.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/shim/terminal.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/shim/ticker.rs", "a shim, which a panic ends"),
    ("sched/wasm/src/ticker.rs", "counts and sleeps: nothing in it panics"),
    ("runtimes/wasmtime/src/shim/attached.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/shim/connection.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/shim/instances.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/shim/serve.rs", "a shim, which a panic ends"),
    ("runtimes/wasmtime/src/shim/workers.rs", "a shim, which a panic ends"),
];

/// Sources that may hold tasks without a name in a `JoinSet`, and why.
const UNNAMED: &[(&str, &str)] = &[
    ("node/agent/src/server/port_forward/channels.rs", "one client's ports, joined by its request"),
    ("node/agent/src/server/port_forward/streams.rs", "one client's ports, joined by its request"),
    ("runtimes/wasmtime/src/shim/serve.rs", "a shim, which a panic ends"),
];

/// Sources whose calls do not contain the task's name as a literal, and where the name is.
const NAMED_ELSEWHERE: &[(&str, &str)] = &[
    ("api/server/src/audit/log.rs", "TASK"),
    ("node/agent/src/objects.rs", "the callers'"),
    ("sched/controllers/src/lib.rs", "the controllers' own names"),
];

/// Every source that is not a test, without the test module at its end.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for top in ["src", "api", "sched", "node", "dns", "runtimes"] {
        walk(&project().join(top), &mut found);
    }
    let root = project();
    let text = |path: PathBuf| {
        let name = path.strip_prefix(&root).expect("inside the project").display().to_string();
        let text = std::fs::read_to_string(&path).expect("a source");
        (name, without_tests(&text).to_owned())
    };
    found.into_iter().map(text).collect()
}

/// A source up to its inline test module.
fn without_tests(text: &str) -> &str {
    let marks = text.match_indices("#[cfg(test)]\nmod ");
    let mut begins = marks.filter(|(at, mark)| text[at + mark.len()..].lines().next().is_some_and(|line| line.ends_with('{')));
    begins.next().map_or(text, |(at, _)| &text[..at])
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of_tests =
            ["tests", "examples", "battery", "target"].contains(&name.as_str()) || ["tests.rs", "battery.rs"].contains(&name.as_str());
        if of_tests {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn is_listed(table: &[(&str, &str)], name: &str) -> bool {
    table.iter().any(|(listed, _)| *listed == name)
}

/// The text without comments, because a comment may contain the words that the tests search for.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn no_task_is_begun_without_an_owner() {
    let (mut used, mut bare_ones) = (BTreeSet::new(), Vec::new());
    for (name, text) in sources() {
        let text = code(&text);
        for bare in BARE.iter().filter(|bare| text.contains(**bare)) {
            used.insert(name.clone());
            bare_ones.extend((!is_listed(MAY, &name)).then(|| format!("{name}: {bare}")));
        }
        let is_set = text.contains("JoinSet") && !is_listed(UNNAMED, &name) && name != "api/tasks/src/lib.rs";
        for begun in text.split(".spawn(").skip(1).filter(|_| is_set) {
            let begun: String = begun.chars().take(80).collect();
            bare_ones.extend((!begun.trim_start().starts_with("api_tasks::named(")).then(|| format!("{name}: no name: {begun}")));
        }
    }
    assert!(bare_ones.is_empty(), "these begin tasks that nobody owns; api-tasks has a way for each: {bare_ones:#?}");
    let unused: Vec<_> = MAY.iter().filter(|(name, _)| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "need no exception: {unused:?}");
}

/// The task names in calls that start owned tasks.
fn owned(name: &str, text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for call in [".own(", ".own_thread("] {
        for begun in text.split(call).skip(1) {
            match begun.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                Some((task, _)) => drop(names.insert(task.to_owned())),
                None => assert!(is_listed(NAMED_ELSEWHERE, name), "{name}: the name of a task is to be read in the call"),
            }
        }
    }
    names
}

#[test]
fn every_owned_task_is_made_to_fail_by_a_test() {
    let mut listed: BTreeSet<String> = OF_UP.iter().chain(OF_A_SHARED_STORE).map(|&name| name.to_owned()).collect();
    listed.extend(ELSEWHERE.iter().map(|(name, _)| (*name).to_owned()));
    let sources = sources();
    for (name, text) in &sources {
        for task in owned(name, &code(text)) {
            assert!(listed.contains(&task), "{name}: no test makes {task} fail: list it in tests/support/tasks.rs");
        }
    }
    for task in &listed {
        let written = sources.iter().any(|(_, text)| text.contains(&format!("\"{task}\"")));
        assert!(written, "{task} is in tests/support/tasks.rs and nowhere else");
    }
}
