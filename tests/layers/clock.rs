//! The wall clock has one source in a process, so that a simulation can replace it. (Random numbers too: `rand` has one
//! door.)

use crate::source::{root, sources};

/// The directories whose code a simulation runs. Shims, the log and the tools of the binary use the machine's clock.
const SIMULATED: [&str; 4] = ["api", "sched", "node", "dns"];
const SOURCE: &str = "api/clock/";
const BYPASSES: [&str; 2] = ["Timestamp::now", "SystemTime::now"];

/// Whether a file has tests only.
fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs") || ["/tests/", "/battery", "/examples/"].iter().any(|dir| file.contains(dir))
}

#[test]
fn the_time_comes_from_api_clock() {
    let mut bypasses = Vec::new();
    for path in SIMULATED.iter().flat_map(|dir| sources(&root().join(dir))) {
        let file = path.strip_prefix(root()).expect("inside the project").display().to_string();
        if file.starts_with(SOURCE) || is_test(&file) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        bypasses.extend(BYPASSES.iter().filter(|bypass| code.contains(**bypass)).map(|bypass| format!("{file}: {bypass}")));
    }
    assert!(bypasses.is_empty(), "use api_clock::now: {bypasses:#?}");
}
