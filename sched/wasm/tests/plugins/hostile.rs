//! Plugins that do what they should not. Each failure has a message that names the cause, and costs a bounded time.

use std::time::{Duration, Instant};

use sched_framework::{ExternalPluginSpec, FailurePolicy, Status};

use crate::guests::{BOMB, FILL, Guest, REJECT_BY_NAME, SCORE_LABELS, SPIN, encode};
use crate::harness::{Running, node, pod, spec};

/// The longest time of a case, on a busy machine, but for compiling.
const CASE_MAX: Duration = Duration::from_secs(10);

/// The message with which a cycle fails.
async fn failure(bytes: &[u8], spec: ExternalPluginSpec) -> String {
    let running = Running::start(bytes, spec).await;
    let started = Instant::now();
    let error = match running.filter(&pod("p"), &node("a", 1)) {
        Ok(_) => running.scores(&pod("p"), &[node("a", 1), node("b", 2)]).expect_err("it fails"),
        Err(error) => error,
    };
    assert!(started.elapsed() < CASE_MAX, "{error}: {:?}", started.elapsed());
    error
}

fn filtering(filter: &str) -> Vec<u8> {
    Guest { filter: Some(filter), ..Guest::default() }.component()
}

#[tokio::test]
async fn endless_loops_and_memory_bombs_end() {
    let error = failure(&filtering(SPIN), spec()).await;
    assert_eq!(error, "running Filter plugin \"Tested\": filter: it used up its fuel of 1000000");
    let patient = ExternalPluginSpec { fuel: u64::MAX / 64, timeout: Duration::from_millis(300), ..spec() };
    let error = failure(&filtering(SPIN), patient.clone()).await;
    assert_eq!(error, "running Filter plugin \"Tested\": filter: it ran for more than 300ms in a scheduling cycle");
    let error = failure(&filtering(FILL), patient).await;
    assert!(error.contains("it ran for more than 300ms"), "{error}");
    let error = failure(&filtering(BOMB), spec()).await;
    assert!(error.contains("filter: it wanted more than 67108864 bytes of memory"), "{error}");
}

#[tokio::test]
async fn all_calls_of_a_cycle_share_its_time() {
    let guest = Guest { filter: Some(REJECT_BY_NAME), ..Guest::default() };
    let quick = ExternalPluginSpec { timeout: Duration::from_millis(100), ..spec() };
    let running = Running::start(&guest.component(), quick).await;
    let (state, one, on) = (sched_framework::CycleState::default(), pod("p"), node("a", 100));
    let exhaust = || {
        running.plugin.begin_cycle();
        let started = Instant::now();
        while running.plugin.failure().is_none() && started.elapsed() < CASE_MAX {
            running.plugin.filter(&state, &one, &on);
        }
        let failure = running.plugin.failure().unwrap_or_default();
        assert!(failure.contains("it ran for more than 100ms in a scheduling cycle"), "{failure}");
    };
    exhaust();
    assert!(matches!(running.filter(&one, &on), Ok(Status::Unschedulable(_))), "the next cycle has time again");
    exhaust();
    exhaust();
    running.plugin.begin_cycle();
    assert!(running.plugin.failure().is_some(), "after two failures in a row it pauses");
}

#[tokio::test]
async fn malformed_results_are_failures() {
    // (pointer and length of the result, what the message says)
    let returning = |at: i64, len: i64| {
        filtering(&format!("(i32.store (i32.const 32) (i32.const {at})) (i32.store (i32.const 36) (i32.const {len})) (i32.const 32)"))
    };
    assert!(failure(&returning(64, 0), spec()).await.contains("filter: it returned 0 results for 1"));
    assert!(failure(&returning(64, 3), spec()).await.contains("filter: it returned 3 results for 1"));
    for (at, len) in [(64, 0x7fff_ffff_i64), (0x7fff_0000, 1), (3, 1)] {
        let error = failure(&returning(at, len), spec()).await;
        assert!(error.contains("running Filter plugin \"Tested\": filter: "), "{at} {len}: {error}");
    }
    // A verdict with 20 reasons, each the same megabyte of memory: more than a result may have, less than wasmtime's own limit.
    let reasons = "(local $i i32) (drop (memory.grow (i32.const 32)))
        (i32.store (i32.const 32) (i32.const 64)) (i32.store (i32.const 36) (i32.const 1))
        (i32.store (i32.const 64) (i32.const 1)) (i32.store (i32.const 68) (i32.const 8192)) (i32.store (i32.const 72) (i32.const 20))
        (block $done (loop $next
          (br_if $done (i32.eq (local.get $i) (i32.const 20)))
          (i32.store offset=8192 (i32.mul (local.get $i) (i32.const 8)) (i32.const 65536))
          (i32.store offset=8196 (i32.mul (local.get $i) (i32.const 8)) (i32.const 1048576))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br $next)))
        (i32.const 32)";
    let error = failure(&filtering(reasons), spec()).await;
    assert!(error.contains("fuel"), "{error}");
    // Labels have no more than 100 as score without normalization.
    let scored = Guest {
        score: Some(
            "(i32.store (i32.const 32) (i32.const 64)) (i32.store (i32.const 36) (i32.const 1))
        (i64.store (i32.const 64) (i64.const 101)) (i32.const 32)",
        ),
        ..Guest::default()
    };
    let error = failure(&scored.component(), spec()).await;
    assert!(error.contains("plugin \"Tested\" returns an invalid score 101, it should in the range of [0, 100]"), "{error}");
}

#[tokio::test]
async fn what_is_no_plugin_is_not_loaded_and_says_why() {
    let guest = || Guest { score: Some(SCORE_LABELS), ..Guest::default() };
    let refused = "(i32.store8 (i32.const 16) (i32.const 1)) (i32.store (i32.const 20) (i32.const 256))
        (i32.store (i32.const 24) (i32.const 11)) (i32.const 16)";
    let secrets = "(import \"other:things/secrets@1.0.0\" \"read\" (func $read (result i32)))";
    let importing = Guest { more: secrets, world: "import other:things/secrets@1.0.0;", ..guest() };
    let nothing = "package test:guest;\nworld guest { import skiff:scheduler/host@0.1.0; }";
    for (bytes, wanted) in [
        (b"MZ\x90\0".to_vec(), "not a WebAssembly binary"),
        (b"\0asm\x01\0\0\0".to_vec(), "a core WebAssembly module, not a component"),
        (b"\0asm\x0d\0\x01\0\xff\xff".to_vec(), "invalid WebAssembly"),
        (importing.component(), "it imports other:things/secrets@1.0.0, which plugins are not given"),
        (encode(wat::parse_str("(module)").unwrap(), nothing), "it does not export skiff:scheduler/plugin@0.1.0"),
        (Guest::default().component(), "it does not export skiff:scheduler/filter, /score or /permit@0.1.0, one of which it needs"),
        (Guest { init: "(unreachable)", ..guest() }.component(), "init: wasm trap: wasm `unreachable` instruction executed"),
        (Guest { init: SPIN, ..guest() }.component(), "init: it used up its fuel of 20000000"),
        (Guest { init: refused, ..guest() }.component(), "init: out of luck"),
        (Guest { more: "(func $trap (unreachable)) (start $trap)", ..guest() }.component(), "start: wasm trap"),
    ] {
        let error = failure(&bytes, spec()).await;
        assert!(error.starts_with("loading plugin \"Tested\": ") && error.contains(wanted), "{wanted}: {error}");
    }
    let small = ExternalPluginSpec { memory_bytes: 1 << 10, ..spec() };
    let error = failure(&guest().component(), small).await;
    assert!(error.contains("memory"), "{error}");
}

#[tokio::test]
async fn a_failure_that_is_ignored_changes_nothing() {
    let ignoring = || ExternalPluginSpec { failure_policy: FailurePolicy::Ignore, ..spec() };
    for bytes in [filtering("(unreachable)"), filtering(SPIN), b"MZ".to_vec()] {
        let running = Running::start(&bytes, ignoring()).await;
        for _ in 0..3 {
            assert_eq!(running.filter(&pod("p"), &node("a", 1)), Ok(Status::Success));
            assert_eq!(running.scores(&pod("p"), &[node("a", 1)]), Ok(vec![0]));
        }
    }
}
