//! Every chore of the project, as `cargo xtask NAME`. Each does its own set-up: what is missing is
//! installed on Debian and Ubuntu when run as root, and named otherwise.

mod bench;
mod build;
mod demo;
mod lint;
mod needs;
mod samples;
mod sh;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build skiff and its shims into target/release.
    Build,
    /// Build everything, start a one-machine cluster, deploy the quickstart and show it at work.
    Demo {
        /// Remove every trace of the demo instead.
        #[arg(long)]
        down: bool,
    },
    /// Install what the tests need and run all of them.
    Test {
        /// Only tests whose name contains this.
        filter: Option<String>,
    },
    /// Check format and lints.
    Lint,
    /// Measure, and print the figures.
    Bench {
        /// Which part: api, sched, pods, memory; all unless given.
        part: Option<String>,
    },
    /// Build the guests under samples/ into target/samples.
    Samples,
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Build => build::release().map(drop),
        Chore::Demo { down: false } => demo::up(),
        Chore::Demo { down: true } => demo::down(),
        Chore::Test { filter } => test::run(filter.as_deref()),
        Chore::Lint => lint::run(),
        Chore::Bench { part } => bench::run(part.as_deref()),
        Chore::Samples => samples::build().map(drop),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
