//! A deterministic simulation of a whole control plane in one thread.
//!
//! The API server with its store in memory, all controllers, the scheduler and the nodes run on one paused clock. Users and
//! faults follow from the seed, as does every other choice of the process; so a failing seed is a bug that can be run again.
//! A seed is a process of its own, because a process has one clock, one source of chance and one set of counters:
//! `skiff-sim --seed SEED` is a run, `skiff-sim --seeds COUNT` starts a run for each of that many seeds.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "what a simulation cannot do ends it")]

mod admin;
mod chaos;
mod checks;
mod control;
mod entropy;
mod history;
mod incidents;
mod leaders;
mod ledger;
mod many;
mod net;
mod node;
mod object;
mod run;
mod settled;
mod store;
mod workload;

use std::process::ExitCode;

use clap::Parser;

/// The stack of the simulation: debug builds have large frames.
const STACK_BYTES: usize = 64 << 20;

#[derive(Parser)]
struct Cli {
    /// The seed to run.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Print every step of the run.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run that many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_good = match cli.seed {
        Some(seed) => one(seed, cli.trace),
        None => many::run(cli.first, cli.seeds),
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes the process the run of a seed. Returns whether all promises were kept.
fn one(seed: u64, trace: bool) -> bool {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    entropy::begin(seed);
    // A new thread has not drawn anything yet.
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || simulate(trace)).expect("a thread");
    let outcome = thread.join().expect("the simulation ends");
    if !outcome.violations.is_empty() {
        outcome.lines.iter().filter(|_| !trace).for_each(|line| println!("{line}"));
        println!("seed {seed} breaks a promise:");
        outcome.violations.iter().for_each(|violation| println!("{violation}"));
    }
    println!("seed {seed}: trace {:016x}, {} writes, {} s", outcome.trace, outcome.revision, outcome.time.as_secs());
    outcome.violations.is_empty()
}

fn simulate(trace: bool) -> run::Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(run::run(trace))
}
