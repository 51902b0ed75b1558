//! Figures: what work costs the server, measured from a process of its own over HTTPS/2, each with the
//! CPU time of skiff's process beside the wall time.
//!
//! Run by `cargo xtask bench [PART]`. The outer process starts a cluster in a network namespace and
//! then itself once more inside that namespace.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot measure has to stop"
)]

mod api;
mod load;
mod memory;
mod pods;
mod process;
mod sched;

use std::process::ExitCode;

use tests::{Cluster, Net};

/// The parts, in the order they are measured.
const PARTS: &[&str] = &["api", "sched", "pods", "memory"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inside", part, kubeconfig, pid] => inside(part, kubeconfig, pid.parse().expect("a pid")),
        [] => PARTS.iter().for_each(|part| outside(part)),
        [part] if PARTS.contains(part) => outside(part),
        _ => {
            eprintln!("usage: skiff-bench [{}]", PARTS.join("|"));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Starts what the part needs and measures inside its namespace.
fn outside(part: &str) {
    let began;
    let cluster = match part {
        "api" | "sched" => {
            let mut cluster =
                Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"]);
            began = cluster.start();
            cluster
        }
        _ => {
            let mut cluster = Cluster::prepared(Net::alone(), &["up", "--max-pods=1000"]);
            began = cluster.start();
            cluster.load_samples();
            cluster
        }
    };
    println!("{part}: ready after {} ms on an empty directory", began.as_millis());
    let kubeconfig = cluster.data_dir().join("admin.kubeconfig").display().to_string();
    let program = std::env::current_exe().expect("this program").display().to_string();
    let status = cluster.net.command(&program).args(["inside", part, &kubeconfig, &cluster.pid().to_string()]).status();
    assert!(status.expect("the bench runs").success(), "the bench failed; skiff's log:\n{}", cluster.log());
}

fn inside(part: &str, kubeconfig: &str, pid: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match part {
            "api" => api::run(kubeconfig, pid).await,
            "sched" => sched::run(kubeconfig, pid).await,
            "pods" => pods::run(kubeconfig, pid).await,
            _ => memory::run(kubeconfig, pid).await,
        }
    });
}
