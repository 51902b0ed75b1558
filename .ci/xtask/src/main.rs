//! All tasks of the project, as `cargo xtask NAME`. Each task installs what is missing, on Debian and Ubuntu as root.
//! Elsewhere it names the missing packages.

mod audit;
mod bench;
mod build;
mod demo;
mod fuzz;
mod lint;
mod needs;
mod samples;
mod sh;
mod sim;
mod soak;
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
        #[arg(long, conflicts_with = "release")]
        down: bool,
        /// Build with the optimizations of the published figures; this takes twice the time.
        #[arg(long)]
        release: bool,
    },
    /// Install what the tests need and run all of them.
    Test {
        /// Run only tests whose name contains this text.
        filter: Option<String>,
    },
    /// Check format, lints and the dependencies: licences, sources and, where a database is found, advisories.
    Lint,
    /// Check the dependencies against a copy of RustSec's advisory database.
    Audit {
        /// Directory of the database [default: SKIFF_ADVISORY_DB or ~/.cargo/advisory-db].
        #[arg(long)]
        database: Option<std::path::PathBuf>,
    },
    /// Run the benchmarks and print the figures.
    Bench {
        /// Part to run: api, scale, sched, pods, many, jobs or memory [default: all].
        part: Option<String>,
    },
    /// Run the fuzz targets with inputs that are derived from a seed.
    Fuzz {
        /// Target to run [default: all, one after the other].
        #[arg(default_value = "all")]
        target: String,
        /// Duration of each target.
        #[arg(default_value_t = 60)]
        seconds: u64,
        /// Seed of the inputs.
        #[arg(default_value_t = 1)]
        seed: u64,
    },
    /// Send a cluster all requests that its OpenAPI documents allow, with schemathesis.
    Schemathesis {
        /// Number of requests of each kind; the tests send few.
        #[arg(default_value_t = 20)]
        examples: u32,
    },
    /// Cut the power of a whole machine repeatedly under load, and kill an agent at every step of the lives of Pods. Check what is lost or
    /// left behind.
    Soak {
        /// Number of cuts; the tests make one.
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// Seed of the moments of the cuts; a failure prints its seed.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Simulate whole control planes with faults, one for each seed.
    Sim {
        /// Number of seeds; the tests run fifty.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// The first of them.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Run this seed alone and print every step.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Build the guests under samples/ into target/samples.
    Samples,
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Build => build::release().map(drop),
        Chore::Demo { down: false, release } => demo::up(release),
        Chore::Demo { down: true, .. } => demo::down(),
        Chore::Test { filter } => test::run(filter.as_deref()),
        Chore::Lint => lint::run(),
        Chore::Audit { database } => audit::run(database.as_deref()),
        Chore::Bench { part } => bench::run(part.as_deref()),
        Chore::Fuzz { target, seconds, seed } => fuzz::run(&target, seconds, seed),
        Chore::Schemathesis { examples } => test::schemathesis(examples),
        Chore::Soak { rounds, seed } => soak::run(rounds, seed),
        Chore::Sim { seeds, first, seed } => sim::run(seeds, first, seed),
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
