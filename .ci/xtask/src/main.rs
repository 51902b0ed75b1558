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
        /// Take twice the time to build what the published figures are of.
        #[arg(long)]
        release: bool,
    },
    /// Install what the tests need and run all of them.
    Test {
        /// Only tests whose name contains this.
        filter: Option<String>,
    },
    /// Check format, lints and the dependencies: licences, sources and, where a database is found, advisories.
    Lint,
    /// Check the dependencies against a copy of RustSec's advisory database.
    Audit {
        /// Its directory; otherwise the one that SKIFF_ADVISORY_DB names, or ~/.cargo/advisory-db.
        #[arg(long)]
        database: Option<std::path::PathBuf>,
    },
    /// Measure, and print the figures.
    Bench {
        /// Which part: api, sched, pods, memory, scale; all unless given.
        part: Option<String>,
    },
    /// Try the fuzz targets with inputs that follow from a seed.
    Fuzz {
        /// Which target; all, one after the other, unless given.
        #[arg(default_value = "all")]
        target: String,
        /// For how long each.
        #[arg(default_value_t = 60)]
        seconds: u64,
        /// Another seed is another run.
        #[arg(default_value_t = 1)]
        seed: u64,
    },
    /// Ask a cluster of its own everything that its OpenAPI documents allow, by schemathesis.
    Schemathesis {
        /// Requests of each kind; the tests' run has few.
        #[arg(default_value_t = 20)]
        examples: u32,
    },
    /// Cut a whole machine's power again and again under load, and look what is lost or left.
    Soak {
        /// How many cuts; the tests' run has two.
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// Another seed cuts at other moments; a failure says its own.
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
