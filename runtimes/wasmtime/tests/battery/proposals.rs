//! WebAssembly's proposals: those that are on, those that a setting switches on, and what hostile guests do with them.

use std::time::Duration;

use runtimes_battery::Harness;
use runtimes_contract::{ContainerSpec, RuntimeError, WasmProposal};

use crate::components;
use crate::harness::Wasmtime;
use crate::http::{Network, web_of};
use crate::modules::{exceptions, garbage_collection, module, stack_switching, threads};
use crate::wasm::{run, spec as of};

fn with(mut spec: ContainerSpec, proposals: &[WasmProposal]) -> ContainerSpec {
    spec.proposals = proposals.iter().copied().collect();
    spec
}

#[tokio::test]
async fn stable_proposals_are_on() {
    let harness = Wasmtime::new();
    for (name, bytes) in [
        ("gc", garbage_collection()),
        ("exceptions", exceptions()),
        (
            "function references",
            module(
                "(type $number (func (result i32))) (func $answer (type $number) (i32.const 22)) (elem declare func $answer)",
                "(call $exit (call_ref $number (ref.func $answer)))",
            ),
        ),
        (
            "memory64",
            module("(memory $large i64 1)", "(i32.store $large (i64.const 8) (i32.const 22)) (call $exit (i32.load $large (i64.const 8)))"),
        ),
        ("tail calls", module("(func $tail (param i32) (return_call $exit (local.get 0)))", "(call $tail (i32.const 22))")),
    ] {
        let (exit, log) = run(&harness, &of(&harness, &bytes)).await;
        assert_eq!((exit.code, exit.message.as_str()), (22, ""), "{name}: {log}");
    }
}

/// A module for each proposal that a setting switches on; it ends with 22.
fn optional() -> [(WasmProposal, Vec<u8>); 4] {
    [
        (
            WasmProposal::CustomPageSizes,
            module("(memory $small 32 (pagesize 1))", "(call $exit (i32.sub (memory.size $small) (i32.const 10)))"),
        ),
        (WasmProposal::StackSwitching, stack_switching()),
        (WasmProposal::Threads, threads()),
        (
            WasmProposal::WideArithmetic,
            module("", "(i64.mul_wide_u (i64.const 0x200000000) (i64.const 0xb00000000)) (call $exit (i32.wrap_i64)) (unreachable)"),
        ),
    ]
}

#[tokio::test]
async fn other_proposals_are_named_until_a_setting_switches_them_on() {
    let harness = Wasmtime::new();
    let runtime = harness.runtime();
    for (proposal, bytes) in optional() {
        for others in [vec![], WasmProposal::ALL.into_iter().filter(|other| *other != proposal).collect()] {
            let error = runtime.create(&with(of(&harness, &bytes), &others)).await.unwrap_err();
            assert!(matches!(&error, RuntimeError::BadContent(_)), "{error:?}");
            // The list is what the annotation must be.
            let wanted = if others.is_empty() { vec![proposal] } else { WasmProposal::ALL.to_vec() };
            let wanted: Vec<_> = wanted.into_iter().map(WasmProposal::name).collect();
            let text = error.to_string();
            assert!(text.contains(&format!("uses {}, which is off", wanted.join(","))), "{proposal}: {text}");
        }
        for proposals in [&[proposal][..], &WasmProposal::ALL] {
            let (exit, log) = run(&harness, &with(of(&harness, &bytes), proposals)).await;
            assert_eq!((exit.code, exit.message.as_str()), (22, ""), "{proposal} of {proposals:?}: {log}");
        }
    }
    // A setting that a module does not need changes nothing for it, and a module that is invalid anyway is called that.
    let (exit, _) = run(&harness, &with(of(&harness, &garbage_collection()), &WasmProposal::ALL)).await;
    assert_eq!(exit.code, 22);
    let error = runtime.create(&of(&harness, b"\0asm\x01\0\0\0\x01\xff\xff\xff")).await.unwrap_err();
    assert!(error.to_string().contains("invalid WebAssembly"), "{error}");
}

#[tokio::test]
async fn a_server_may_use_proposals_too() {
    let (harness, network) = (Wasmtime::new(), Network::new("proposals"));
    let runtime = harness.runtime();
    for proposals in [&[WasmProposal::StackSwitching][..], &WasmProposal::ALL] {
        let spec = with(web_of(&harness, &network, "web", &components::http()), proposals);
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        for _ in 0..2 {
            assert!(network.get("127.0.0.1:8080", "/").await.unwrap().contains("hello"), "{proposals:?}");
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}

/// Keeps objects in a list until there is no memory.
const HOARD: &str = "(type $bytes (array (mut i8))) (type $list (struct (field (ref null $list)) (field (ref $bytes))))
    (global $all (mut (ref null $list)) (ref.null $list))";

#[tokio::test]
async fn a_heap_counts_as_the_containers_memory() {
    let harness = Wasmtime::new();
    for (name, body) in [
        (
            "many",
            "(loop $more (global.set $all (struct.new $list (global.get $all) (array.new_default $bytes (i32.const 4096)))) (br $more))",
        ),
        // A heap that did not exist counts beside a memory (and is twice as large as its objects); one of fifty mebibytes; one of four
        // gibibytes.
        (
            "both",
            "(if (i32.eq (memory.grow (i32.const 320)) (i32.const -1)) (then (call $exit (i32.const 1))))
             (global.set $all (struct.new $list (global.get $all) (array.new_default $bytes (i32.const 0x600000))))",
        ),
        ("one", "(global.set $all (struct.new $list (global.get $all) (array.new_default $bytes (i32.const 0x3000000))))"),
        ("huge", "(global.set $all (struct.new $list (global.get $all) (array.new_default $bytes (i32.const -1))))"),
    ] {
        let mut spec = of(&harness, &module(HOARD, body));
        spec.resources.memory_limit_bytes = Some(32 << 20);
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!((exit.code, exit.oom_killed), (134, false), "{name}: {exit:?} {log}");
        println!("{name}: {}", exit.message.lines().last().unwrap_or_default());
    }
    // Memories that were empty count as well.
    let body = "(if (i32.eq (memory.grow $one (i32.const 320)) (i32.const -1)) (then (call $exit (i32.const 1))))
        (if (i32.eq (memory.grow $two (i32.const 320)) (i32.const -1)) (then (call $exit (i32.const 22))))";
    let mut empty = of(&harness, &module("(memory $one 0) (memory $two 0)", body));
    empty.resources.memory_limit_bytes = Some(32 << 20);
    assert_eq!(run(&harness, &empty).await.0.code, 22);
    // What is not reachable any more is collected: ten times the limit passes through.
    let body = "(local $left i32) (local.set $left (i32.const 5000))
        (loop $more (drop (array.new_default $bytes (i32.const 65536)))
          (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1))))) (call $exit (i32.const 22))";
    let mut spec = of(&harness, &module(HOARD, body));
    spec.resources.memory_limit_bytes = Some(32 << 20);
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!((exit.code, exit.oom_killed), (22, false), "{exit:?} {log}");
}

/// What a container of 32 MiB can have at the least before it ends, or it ends for another cause.
const CONTINUATIONS: u32 = 16;
const PAGES: u32 = 64;

#[tokio::test]
async fn what_proposals_allow_costs_the_container_alone() {
    let harness = Wasmtime::new();
    // A guest writes a line when it has done so many rounds.
    let counter = |least: u32| {
        let line =
            r#"(data (i32.const 0) "\10\00\00\00\07\00\00\00") (data (i32.const 16) "enough\n") (global $rounds (mut i32) (i32.const 0))"#;
        format!(
            "{line} (func $count (global.set $rounds (i32.add (global.get $rounds) (i32.const 1)))
               (if (i32.eq (global.get $rounds) (i32.const {least}))
                 (then (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))))"
        )
    };
    let continuations = module(
        &format!(
            "{} (type $work (func)) (type $continuation (cont $work)) (tag $never)
             (func $idle (suspend $never)) (elem declare func $idle) (table $all 1 (ref null $continuation))",
            counter(CONTINUATIONS)
        ),
        "(loop $more (table.set $all (i32.const 0) (cont.new $continuation (ref.func $idle))) (call $count) (br $more))",
    );
    let shared = module(
        &format!("(memory $shared 1 65536 shared) {}", counter(PAGES)),
        "(local $at i32)
         (loop $more (local.set $at (memory.grow $shared (i32.const 1)))
           (if (i32.eq (local.get $at) (i32.const -1)) (then (call $exit (i32.const 7))))
           (i32.store $shared (i32.mul (local.get $at) (i32.const 65536)) (i32.const 1)) (call $count) (br $more))",
    );
    for (name, bytes) in [("continuations", continuations), ("shared memory", shared)] {
        let mut spec = with(of(&harness, &bytes), &WasmProposal::ALL);
        spec.resources.memory_limit_bytes = Some(32 << 20);
        let (exit, log) = run(&harness, &spec).await;
        println!("{name}: {} {:?} {} {}", exit.code, exit.signal, exit.oom_killed, exit.message.lines().last().unwrap_or_default());
        assert!(exit.code != 0, "{name}: {exit:?} {log}");
        assert!(log.contains("enough"), "{name}, which ended too early: {exit:?} {log}");
    }
    // A thread that waits for ever is not stopped politely.
    let waits = module("(memory $shared 1 1 shared)", "(drop (memory.atomic.wait32 $shared (i32.const 0) (i32.const 0) (i64.const -1)))");
    let spec = with(of(&harness, &waits), &[WasmProposal::Threads]);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    runtime.signal(&spec.id, 9).await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
    assert_eq!((exit.code, exit.signal), (137, Some(9)), "{exit:?}");
    runtime.remove(&spec.id).await.unwrap();
}
