//! Benches: the cost of work on the server, measured from another process over HTTP/2. Each figure has the CPU time of
//! skiff's process beside the wall time.
//!
//! `cargo xtask bench [PART]` runs this program. It starts a cluster in a network namespace and then itself again
//! inside that namespace. With `--page FILE` it writes the results of all parts to the file.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot measure has to stop"
)]

mod api;
mod guests;
mod jobs;
mod load;
mod many;
mod memory;
mod pods;
mod process;
mod report;
mod scale;
mod sched;
mod wasmtime_serve;

use std::io::Read as _;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tests::{Cluster, Net};

/// The parts, in the order they are measured.
const PARTS: &[&str] = &["api", "scale", "sched", "pods", "many", "guests", "jobs", "memory"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inside", part, kubeconfig, pid] => inside(part, kubeconfig, pid.parse().expect("a pid")),
        [] => PARTS.iter().for_each(|part| drop(outside(part))),
        ["--page", file] => {
            let parts: String = PARTS.iter().map(|part| outside(part)).collect();
            std::fs::write(file, report::head() + &parts).expect("writes the page");
        }
        [part] if PARTS.contains(part) => drop(outside(part)),
        _ => {
            eprintln!("usage: skiff-bench [{}|--page FILE]", PARTS.join("|"));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Starts the cluster of a part, measures inside its namespace, and returns the printed text.
fn outside(part: &str) -> String {
    let (mut cluster, began) = match part {
        "api" | "sched" => {
            started(&["server", "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller"])
        }
        "scale" => started(scale::SERVER),
        "jobs" => started(jobs::CLUSTER),
        "many" => started(many::CLUSTER),
        _ => started(&["up", "--max-pods=250"]),
    };
    if matches!(part, "pods" | "many" | "guests" | "jobs" | "memory") {
        cluster.load_samples();
    }
    if part == "guests" {
        guests::prepare(&cluster);
    }
    let mut text = String::new();
    // At once, so that a part that fails has printed what it measured.
    let mut print = |piece: String| {
        println!("{piece}");
        text.push_str(&piece);
    };
    print(format!("\n## {part}\n\nReady {} ms after its start on an empty directory.\n", began.as_millis()));
    print(measured(&cluster, part));
    if part == "many" {
        print(many::adopt(&mut cluster, |cluster| drop(measured(cluster, "adopted"))));
        print(measured(&cluster, "more"));
    }
    text
}

/// Runs this program inside the cluster's namespace; returns what it printed.
fn measured(cluster: &Cluster, part: &str) -> String {
    let kubeconfig = cluster.data_dir().join("admin.kubeconfig").display().to_string();
    let program = std::env::current_exe().expect("this program").display().to_string();
    let mut command = cluster.net.command(&program);
    command.args(["inside", part, &kubeconfig, &cluster.pid().to_string()]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the bench runs");
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    let status = child.wait().expect("the bench runs");
    assert!(status.success(), "the bench failed after:\n{text}\nskiff's log:\n{}", cluster.log());
    text
}

/// Starts a cluster; returns it with the time until it was ready.
fn started(args: &[&str]) -> (Cluster, Duration) {
    let mut cluster = Cluster::prepared(Net::alone(), args);
    let took = cluster.start();
    (cluster, took)
}

fn inside(part: &str, kubeconfig: &str, pid: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match part {
            "api" => api::run(kubeconfig, pid).await,
            "scale" => scale::run(kubeconfig, pid).await,
            "sched" => sched::run(kubeconfig, pid).await,
            "pods" => pods::run(kubeconfig, pid).await,
            "many" => many::run(kubeconfig, pid).await,
            "adopted" => many::adopted(kubeconfig).await,
            "more" => many::more(kubeconfig, pid).await,
            "guests" => guests::run(kubeconfig, pid).await,
            "jobs" => jobs::run(kubeconfig, pid).await,
            _ => memory::run(kubeconfig, pid).await,
        }
    });
}
