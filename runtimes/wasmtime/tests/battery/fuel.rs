//! The fuel of guests whose container bounds it: of a program until its end, of a server for each request.

use runtimes_battery::{Harness, Program, spec_of};
use runtimes_contract::{ContainerSpec, ContainerState, FUEL_MAX, HttpSettings};

use crate::components;
use crate::exec::Sleeper;
use crate::guests;
use crate::harness::Wasmtime;
use crate::http::{Network, web_of};
use crate::wasi_0_3;
use crate::wasm::{run, spec as of};

const ADDRESS: &str = "127.0.0.1:8080";
const SPINS: &str = "(loop $again (br $again))";

/// The reason of a guest that had so much fuel.
fn reason(fuel: u64) -> String {
    format!("the guest used up its fuel of {fuel} (annotation wasm.skiff.internal/fuel)")
}

#[tokio::test]
async fn a_program_without_fuel_left_ends_and_one_without_the_setting_goes_on() {
    let harness = Wasmtime::new();
    let runtime = harness.runtime();
    let unbounded = spec_of(&harness, "unbounded", Program::Spin);
    runtime.create(&unbounded).await.unwrap();
    runtime.start(&unbounded.id).await.unwrap();
    // The same module again: its code is another one.
    for (name, bytes) in [
        ("module", guests::module("spin")),
        ("command", guests::exiting("0.2.12", SPINS, 0)),
        ("command of WASI 0.3", wasi_0_3::command(SPINS, 0)),
    ] {
        let spec = ContainerSpec { fuel: Some(1_000_000), ..of(&harness, &bytes) };
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!((exit.code, exit.signal), (134, None), "{name}: {exit:?} {log}");
        assert!(exit.message.starts_with(&reason(1_000_000)) && log.contains(&reason(1_000_000)), "{name}: {exit:?} {log}");
        std::fs::remove_file(&spec.log_path).unwrap();
    }
    let containers = runtime.list().await.unwrap();
    assert!(matches!(containers[0].state, ContainerState::Running { .. }), "{containers:?}");
    runtime.signal(&unbounded.id, 15).await.unwrap();
    assert_eq!(runtime.wait(&unbounded.id).await.unwrap().code, 143);
    runtime.remove(&unbounded.id).await.unwrap();
}

#[tokio::test]
async fn a_program_with_enough_fuel_runs_as_without_the_setting() {
    let harness = Wasmtime::new();
    for fuel in [1_000_000, FUEL_MAX] {
        let spec = ContainerSpec { fuel: Some(fuel), ..of(&harness, &guests::exit_with(7)) };
        let (exit, log) = run(&harness, &spec).await;
        assert_eq!((exit.code, exit.message.as_str()), (7, ""), "{fuel}: {log}");
    }
    // A signal still stops one that computes.
    let spec = ContainerSpec { fuel: Some(FUEL_MAX), ..of(&harness, &guests::module("spin")) };
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    runtime.signal(&spec.id, 15).await.unwrap();
    let exit = runtime.wait(&spec.id).await.unwrap();
    assert_eq!((exit.code, exit.signal), (143, Some(15)), "{exit:?}");
    runtime.remove(&spec.id).await.unwrap();
}

/// A server that executes fifty thousand instructions for each request, and more for `/spin`. Its answer begins with the number of
/// requests that its instance has handled.
fn computing() -> Vec<u8> {
    const BEGINS: &str = "(call $path (local.get $request) (i32.const 0))\n";
    let computes = "(global.set $count (i32.add (global.get $count) (i32.const 1)))
        (i32.store8 (i32.const 1024) (i32.add (i32.const 48) (global.get $count)))
        (local.set $answer (i32.const 10000))
        (loop $more (br_if $more (local.tee $answer (i32.sub (local.get $answer) (i32.const 1)))))";
    let mut text = include_str!("../guests/http.wat").to_owned();
    for (old, new) in
        [("(global $free", "(global $count (mut i32) (i32.const 0)) (global $free".to_owned()), (BEGINS, format!("{BEGINS} {computes}\n"))]
    {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, &new, 1);
    }
    let world = "package test:web;\nworld web {\n  import wasi:http/types@0.2.12;\n  import wasi:io/streams@0.2.12;\n  export wasi:http/incoming-handler@0.2.12;\n}\n";
    components::component(wat::parse_str(text).unwrap(), world)
}

#[tokio::test]
async fn each_request_has_fuel_of_its_own() {
    // Enough for one request, and not for two.
    const FUEL: u64 = 80_000;
    let (harness, network) = (Wasmtime::new(), Network::new("fuel"));
    let runtime = harness.runtime();
    for pooling in [true, false] {
        let mut spec = web_of(&harness, &network, &format!("web-{pooling}"), &computing());
        spec.fuel = Some(FUEL);
        spec.http = HttpSettings { instance_requests: Some(9), pooling: Some(pooling), ..HttpSettings::default() };
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        for (path, wanted) in [("/", Some(1)), ("/", Some(2)), ("/", Some(3)), ("/spin", None), ("/", Some(1))] {
            let answer = network.get(ADDRESS, path).await.unwrap();
            match wanted {
                Some(number) => assert!(answer.contains(&format!("{number}ello from wat\n")), "{pooling} {path}: {answer}"),
                None => assert!(answer.starts_with("HTTP/1.1 500 ") && !answer.contains("fuel"), "{pooling} {path}: {answer}"),
            }
        }
        let log = std::fs::read_to_string(&spec.log_path).unwrap();
        assert_eq!(log.matches(&format!("stderr F request failed: {}", reason(FUEL))).count(), 1, "{log}");
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn each_request_of_a_server_of_wasi_0_3_has_fuel_of_its_own() {
    const FUEL: u64 = 100_000;
    let (harness, network) = (Wasmtime::new(), Network::new("fuel3"));
    let runtime = harness.runtime();
    let mut spec = web_of(&harness, &network, "service", &components::service());
    spec.fuel = Some(FUEL);
    spec.http.instance_requests = Some(9);
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    // One instance handles requests until it has no fuel left.
    for (path, wanted) in [("/", "hello from 0.3 1"), ("/", "hello from 0.3 2"), ("/spin", "HTTP/1.1 500 "), ("/", "hello from 0.3 1")] {
        let answer = network.get(ADDRESS, path).await.unwrap();
        assert!(answer.contains(wanted), "{path}: {answer}");
    }
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    assert!(log.contains(&format!("request failed: {}", reason(FUEL))), "{log}");
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_program_of_exec_has_as_much_fuel_for_itself() {
    let sleeper = Sleeper::start(|_, spec| spec.fuel = Some(1_000_000)).await;
    let (code, _, stderr) = sleeper.run(&["spin.wasm"], "").await;
    assert!(code == 134 && stderr.contains(&reason(1_000_000)), "{code} {stderr}");
    assert_eq!(sleeper.run(&["echo.wasm", "a"], "").await.0, 0);
    sleeper.remove().await;
}
