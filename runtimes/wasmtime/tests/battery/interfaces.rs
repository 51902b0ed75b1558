//! Interfaces beside WASI 0.2's own: `wasi:config`, `wasi:keyvalue`, `wasi:logging`; and the exit codes of components.

use runtimes_battery::Harness;

use crate::components;
use crate::guests;
use crate::harness::Wasmtime;
use crate::http::{Network, web_of};
use crate::wasm::{run, spec};

#[tokio::test]
async fn the_exit_code_of_a_component_is_the_guests() {
    let harness = Wasmtime::new();
    for (version, body, returned, wanted) in [
        ("0.2.12", "(call $exit-with-code (i32.const 4))", 0, 4),
        ("0.2.12", "(call $exit-with-code (i32.const 255))", 0, 255),
        ("0.2.12", "(call $exit-with-code (i32.const 0))", 1, 0),
        // The function was unstable in these versions, and some toolchains used it.
        ("0.2.6", "(call $exit-with-code (i32.const 4))", 0, 4),
        ("0.2.0", "(call $exit (i32.const 1))", 0, 1),
        ("0.2.0", "(call $exit (i32.const 0))", 1, 0),
        ("0.2.12", "", 1, 1),
        ("0.2.12", "", 0, 0),
    ] {
        let (exit, log) = run(&harness, &spec(&harness, &guests::exiting(version, body, returned))).await;
        assert_eq!((exit.code, exit.signal, exit.message.as_str()), (wanted, None, ""), "{version} {body} {returned}: {log}");
    }
}

#[tokio::test]
async fn a_component_has_the_environment_the_args_and_the_working_directory_of_its_container() {
    let harness = Wasmtime::new();
    for component in components::environments() {
        let mut spec = spec(&harness, &component);
        spec.env = vec![("COLOUR".into(), "green".into())];
        spec.args = vec!["run".into(), "--fast".into()];
        spec.working_dir = "/data".into();
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!(exit.code, 0, "the step that went wrong; {log}");
    }
}

#[tokio::test]
async fn a_component_uses_config_keyvalue_and_logging() {
    let harness = Wasmtime::new();
    let mut spec = spec(&harness, &components::interfaces());
    spec.env = vec![("COLOUR".into(), "green\nand blue".into()), ("HOSTNAME".into(), "pod".into())];
    // Each container has a store of its own: the same steps again.
    for _ in 0..2 {
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!(exit.code, 0, "the step that went wrong; {log}");
        let lines: Vec<_> = log.lines().rev().take(2).map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(lines, ["stderr F [warn] keyvalue: keyvalue", "stderr F [info] config: green\\nand blue"]);
    }
}

#[tokio::test]
async fn a_guest_that_hoards_gets_errors_within_its_limit() {
    let harness = Wasmtime::new();
    // The store is full; one value 4,096 times would be 4 GiB.
    for (copies, limit_mib, wanted) in [(1, 32, 0), (4_096, 256, 134)] {
        let mut spec = spec(&harness, &guests::hoarder(copies));
        spec.resources.memory_limit_bytes = Some(limit_mib << 20);
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!((exit.code, exit.oom_killed), (wanted, false), "{copies} in {limit_mib} MiB: {exit:?} {log}");
        assert_eq!(exit.message.contains("unreachable"), wanted != 0, "the guest itself has no memory: {exit:?}");
    }
}

#[tokio::test]
async fn the_instances_of_a_server_share_a_store_that_ends_with_it() {
    let (harness, network) = (Wasmtime::new(), Network::new("counter"));
    let runtime = harness.runtime();
    for _ in 0..2 {
        let spec = web_of(&harness, &network, "counter", &components::counter());
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        for number in ["1", "2", "3"] {
            let answer = network.get("127.0.0.1:8080", "/").await.unwrap();
            // A chunk of one byte, and the last one.
            assert_eq!(answer.split("\r\n\r\n").nth(1), Some(&*format!("1\r\n{number}\r\n0")), "{answer}");
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}
