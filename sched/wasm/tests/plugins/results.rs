//! Plugins that do what they should.

use std::time::{Duration, Instant};

use sched_framework::{ExternalPoints, Normalization, Permit, PermitCandidate, Scope, Status};

use crate::guests::{Guest, NODE_SCOPE, PERMIT_PAIRS, POD_SCOPE, REJECT_BY_NAME, REVERSED, SCORE_LABELS};
use crate::harness::{Running, node, pod, spec};

#[tokio::test]
async fn scores_are_normalized_as_the_plugin_says() {
    let nodes = [node("a", 1), node("b", 4), node("c", 0)];
    for (init, wanted) in [(NODE_SCOPE, [1, 4, 0]), (POD_SCOPE, [1, 4, 0]), (REVERSED, [75, 0, 100])] {
        let guest = Guest { init, score: Some(SCORE_LABELS), ..Guest::default() };
        let running = Running::start(&guest.component(), spec()).await;
        assert_eq!(running.scores(&pod("p"), &nodes), Ok(wanted.to_vec()), "{init}");
        assert_eq!(running.filter(&pod("p"), &nodes[0]), Ok(Status::Success), "it has no filter");
    }
}

#[tokio::test]
async fn only_a_plugin_of_scope_pod_gets_what_tells_pods_apart() {
    for (init, scope, wanted) in [(NODE_SCOPE, Scope::Node, ""), (POD_SCOPE, Scope::Cluster, "web")] {
        let guest = Guest { init, filter: Some(REJECT_BY_NAME), ..Guest::default() };
        let running = Running::start(&guest.component(), spec()).await;
        assert_eq!(running.filter(&pod("web"), &node("a", 1)), Ok(Status::Unschedulable(vec![wanted.into()])));
        assert_eq!((running.plugin.scope(), running.plugin.normalization()), (scope, Normalization::None));
        assert_eq!(running.scores(&pod("web"), &[node("a", 1)]), Ok(vec![0]), "it has no score");
    }
}

#[tokio::test]
async fn candidates_are_decided_together() {
    let guest = Guest { permit: Some(PERMIT_PAIRS), ..Guest::default() };
    let running = Running::start(&guest.component(), spec()).await;
    let (one, node) = (pod("p"), node("n", 0));
    let candidate = PermitCandidate { pod: &one, node: &node, waited: Duration::from_secs(3) };
    running.plugin.begin_cycle();
    assert_eq!(running.plugin.permit(&[candidate]), [Permit::Wait(Duration::from_secs(7))]);
    assert_eq!(running.plugin.permit(&[candidate, candidate]), [Permit::Allow, Permit::Allow]);
    assert_eq!(running.plugin.permit(&[]), []);
}

#[tokio::test]
async fn a_plugin_that_is_enabled_by_name_must_implement_the_extension_point() {
    let guest = Guest { score: Some(SCORE_LABELS), ..Guest::default() }.component();
    let required = ExternalPoints { filter: true, ..ExternalPoints::default() };
    let running = Running::start(&guest, sched_framework::ExternalPluginSpec { required, ..spec() }).await;
    let error = running.filter(&pod("p"), &node("a", 1)).unwrap_err();
    assert!(error.contains("it does not export skiff:scheduler/filter@0.1.0, at whose extension point the profile enables it"), "{error}");
}

#[tokio::test]
async fn standard_libraries_find_a_wasi_that_is_always_the_same() {
    let more = "(import \"wasi:random/random@0.2.6\" \"get-random-u64\" (func $random (result i64)))
        (import \"wasi:sockets/tcp@0.2.6\" \"connect\" (func $connect (result i32)))
        (import \"wasi:cli/stderr@0.2.6\" \"get-stderr\" (func $stderr (result i32)))
        (import \"wasi:io/streams@0.2.6\" \"[method]output-stream.flush\" (func $flush (param i32) (result i32)))";
    let world =
        "import wasi:random/random@0.2.6;\nimport wasi:sockets/tcp@0.2.6;\nimport wasi:cli/stderr@0.2.6;\nimport wasi:io/streams@0.2.6;";
    // The score is 1 when two random numbers are equal, and the stream of errors takes what it gets.
    let score = "(i32.store (i32.const 32) (i32.const 64)) (i32.store (i32.const 36) (i32.const 1))
        (if (call $flush (call $stderr)) (then (unreachable)))
        (i64.store (i32.const 64) (i64.extend_i32_u (i64.eq (call $random) (call $random)))) (i32.const 32)";
    let filter = "(drop (call $connect)) (unreachable)";
    let guest = Guest { score: Some(score), filter: Some(filter), more, world, ..Guest::default() };
    let running = Running::start(&guest.component(), spec()).await;
    assert_eq!(running.scores(&pod("p"), &[node("a", 1)]), Ok(vec![1]));
    let error = running.filter(&pod("p"), &node("a", 1)).unwrap_err();
    assert!(error.contains("wasi:sockets/tcp@0.2.6"), "{error}");
}

/// Prints what calls cost: run it with `--no-capture` and a release build.
#[tokio::test]
async fn a_call_costs_microseconds() {
    let guest = Guest { score: Some(SCORE_LABELS), ..Guest::default() };
    let running = Running::start(&guest.component(), spec()).await;
    let (one, nodes): (_, Vec<_>) = (pod("p"), (0..5_000).map(|n| node(&n.to_string(), 10)).collect());
    running.plugin.begin_cycle();
    let started = Instant::now();
    let state = sched_framework::CycleState::default();
    let scores: Vec<_> = nodes.iter().take(1_000).map(|node| running.plugin.score(&state, &one, node)).collect();
    println!("node by node: {:?} a node", started.elapsed() / 1_000);
    assert_eq!((running.plugin.failure(), scores), (None, vec![Some(10); 1_000]));
    let guest = Guest { init: POD_SCOPE, score: Some(SCORE_LABELS), ..Guest::default() };
    let running = Running::start(&guest.component(), sched_framework::ExternalPluginSpec { fuel: 100_000_000, ..spec() }).await;
    let started = Instant::now();
    assert_eq!(running.scores(&one, &nodes), Ok(vec![10; 5_000]));
    println!("in one call: {:?} a node", started.elapsed() / 5_000);
}
