//! Plugins that fail and start again, and images that change.

use sched_framework::{CycleState, ExternalPluginSpec, ExternalPoints, FailurePolicy, Status};

use crate::guests::{Guest, REJECT_BY_NAME, SCORE_LABELS};
use crate::harness::{Running, node, pod, spec};

/// Fails at each second call: its memory is new after a failure.
const EVERY_SECOND: &str = "(if (i32.load (i32.const 128)) (then (unreachable)))
    (i32.store (i32.const 128) (i32.const 1))
    (i32.store (i32.const 32) (i32.const 64)) (i32.store (i32.const 36) (i32.const 1)) (i32.const 32)";

#[tokio::test]
async fn a_failure_ends_the_instance_and_the_next_cycle_has_another_one() {
    let running = Running::start(&Guest { filter: Some(EVERY_SECOND), ..Guest::default() }.component(), spec()).await;
    let (state, one, on) = (CycleState::default(), pod("p"), node("a", 1));
    let first = running.plugin.begin_cycle();
    assert_eq!(running.plugin.begin_cycle(), first, "results stay valid");
    for _ in 0..3 {
        assert_eq!((running.plugin.filter(&state, &one, &on), running.plugin.failure()), (Status::Success, None));
        running.plugin.begin_cycle();
        assert_eq!(running.plugin.filter(&state, &one, &on), Status::Success, "a failed cycle has no result");
        let failure = running.plugin.failure().expect("the cycle fails");
        assert_eq!(failure, "running Filter plugin \"Tested\": filter: wasm trap: wasm `unreachable` instruction executed");
        assert_ne!(running.plugin.begin_cycle(), first, "results of the failed cycle are dropped");
        assert_eq!(running.plugin.failure(), None);
    }
}

#[tokio::test]
async fn a_plugin_that_always_fails_waits_longer_and_longer() {
    let running = Running::start(&Guest { filter: Some("(unreachable)"), ..Guest::default() }.component(), spec()).await;
    let (state, one, on) = (CycleState::default(), pod("p"), node("a", 1));
    let mut failed_at_once = 0;
    for _ in 0..20 {
        running.plugin.begin_cycle();
        failed_at_once += usize::from(running.plugin.failure().is_some());
        running.plugin.filter(&state, &one, &on);
        assert!(running.plugin.failure().is_some());
    }
    assert!(failed_at_once > 10, "most cycles fail without a call: {failed_at_once}");
}

#[tokio::test]
async fn a_new_version_is_used_from_the_next_cycle_on_and_a_broken_one_is_not() {
    let scoring = |init| Guest { init, score: Some(SCORE_LABELS), ..Guest::default() }.component();
    let running = Running::start(&scoring(crate::guests::NODE_SCOPE), spec()).await;
    let (one, nodes) = (pod("p"), [node("a", 1), node("b", 4)]);
    assert_eq!(running.scores(&one, &nodes), Ok(vec![1, 4]));
    let generation = running.plugin.begin_cycle();
    running.image.set(&scoring(crate::guests::REVERSED));
    running.changed().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![75, 0]));
    assert_ne!(running.plugin.begin_cycle(), generation);
    running.image.set(b"MZ");
    running.image.checked().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![75, 0]), "the version before stays in use");
    running.image.break_off();
    running.image.checked().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![75, 0]), "also while the registry does not answer");
    running.image.set(&Guest { filter: Some(REJECT_BY_NAME), ..Guest::default() }.component());
    running.changed().await;
    assert_eq!(running.filter(&one, &nodes[0]), Ok(Status::Unschedulable(vec!["".into()])));
    assert_eq!(running.scores(&one, &nodes), Ok(vec![0, 0]), "the new version has no score");
}

#[tokio::test]
async fn a_plugin_that_is_not_there_yet_is_used_when_it_comes() {
    let running = Running::start(b"not yet", spec()).await;
    let error = running.filter(&pod("p"), &node("a", 1)).unwrap_err();
    assert!(error.starts_with("loading plugin \"Tested\": the image tested:latest is no scheduler plugin: "), "{error}");
    running.image.set(&Guest { filter: Some(REJECT_BY_NAME), ..Guest::default() }.component());
    running.changed().await;
    assert_eq!(running.filter(&pod("p"), &node("a", 1)), Ok(Status::Unschedulable(vec!["".into()])));
}

#[tokio::test]
async fn a_new_declaration_is_used_from_the_next_cycle_on_and_one_that_does_not_load_is_not() {
    // Each version scores with what it got in `init`: the length of its arguments.
    let init = "(i32.store (i32.const 512) (local.get 1)) (i32.const 16)";
    let score = "(i32.store (i32.const 32) (call $alloc (i32.const 8))) (i32.store (i32.const 36) (i32.const 1))
        (i64.store (i32.load (i32.const 32)) (i64.extend_i32_u (i32.load (i32.const 512)))) (i32.const 32)";
    let running = Running::start(&Guest { init, score: Some(score), ..Guest::default() }.component(), spec()).await;
    let (one, nodes) = (pod("p"), [node("a", 1)]);
    assert_eq!(running.scores(&one, &nodes), Ok(vec![2]), "the arguments are {{}}");
    let generation = running.plugin.begin_cycle();
    let longer = ExternalPluginSpec { args: "{\"a\":1}".into(), ..spec() };
    running.declare(longer.clone());
    running.changed().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![7]));
    assert_ne!(running.plugin.begin_cycle(), generation, "earlier results do not hold");
    let required = ExternalPoints { filter: true, ..ExternalPoints::default() };
    running.declare(ExternalPluginSpec { required, failure_policy: FailurePolicy::Ignore, args: "{\"ab\":1}".into(), ..spec() });
    running.checked().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![7]), "the guest has no filter: the version before stays in use");
    running.declare(ExternalPluginSpec { memory_bytes: 1, failure_policy: FailurePolicy::Ignore, ..longer.clone() });
    running.checked().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![7]), "it does not start with so little memory");
    running.declare(longer);
    running.changed().await;
    assert_eq!(running.scores(&one, &nodes), Ok(vec![7]));
}
