//! All tests: lints, unit tests, and whole clusters on the real kernel.

use std::path::PathBuf;

use anyhow::{Result, anyhow};

use crate::build::{self, Mode};
use crate::{audit, lint, needs, samples, sh};

/// Asks `tests/it/kills.rs` for a kill at every step, which takes longer than other tests may.
pub const EVERY_STEP: &str = "SKIFF_EVERY_STEP";

/// Runs the tests. With a filter, only the tests whose name contains it run, without lints.
pub fn run(filter: Option<&str>) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES, needs::NETWORKS, needs::TEST])?;
    needs::nextest()?;
    let mode = if filter.is_some() { Mode::Plain } else { Mode::Linted };
    if filter.is_none() {
        lint::format()?;
        audit::if_possible()?;
    }
    // Most of this waits for the network, so it goes on while the compiler works.
    let kit = std::thread::spawn(kit);
    let programs = build::for_tests(mode);
    let kit = kit.join().map_err(|_| anyhow!("the set-up of the tests panicked"))??;
    let programs = programs?;
    let cores = std::thread::available_parallelism()?.get();
    let mut ended = Vec::new();
    // Stories check the whole machine for what a cluster leaves behind, so nothing else may run at that time.
    for (what, tests, threads) in [("the crates' own tests", "not binary(it)", 2 * cores + 1), ("the stories", "binary(it)", 2 * cores)] {
        sh::say(&format!("running {what}"));
        let mut nextest = mode.nextest(tests);
        nextest.args(["--no-fail-fast", "--no-tests=pass", "--test-threads", &threads.to_string()]).args(filter);
        if std::env::var_os(EVERY_STEP).is_some() {
            nextest.args(["--profile", "soak"]);
        }
        nextest.env("SKIFF_PROGRAMS", &programs).envs(kit.iter().map(|(variable, path)| (variable, path)));
        ended.push(sh::run(&mut nextest));
    }
    // Both runs happen, also if the first fails: one call shows all failures.
    ended.into_iter().collect()
}

/// What the tests need beside skiff: each variable of their environment, and the path in it.
fn kit() -> Result<[(&'static str, PathBuf); 7]> {
    Ok([
        ("SKIFF_SAMPLES", samples::build()?),
        ("SKIFF_CLANG", PathBuf::from(format!("/usr/bin/clang-{}", needs::clang()?))),
        ("SKIFF_PYTHON", needs::python()?),
        ("SKIFF_SCHEMATHESIS", needs::venv("schemathesis", needs::SCHEMATHESIS)?),
        ("SKIFF_TOOLS", needs::clients()?),
        ("SKIFF_TOOLCHAINS", needs::toolchains()?),
        ("SKIFF_MACHINE", needs::machine()?),
    ])
}

/// A longer run of the story that sends a server all requests of its OpenAPI documents.
pub fn schemathesis(examples: u32) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::NETWORKS])?;
    needs::nextest()?;
    let (programs, venv) = (build::for_tests(Mode::Plain)?, needs::venv("schemathesis", needs::SCHEMATHESIS)?);
    sh::say(&format!("asking a server everything, {examples} times over"));
    let story = "binary(it) & test(/^hostile::schemathesis/)";
    let mut nextest = Mode::Plain.nextest(story);
    nextest.arg("--no-capture").env("SKIFF_PROGRAMS", &programs).env("SKIFF_SCHEMATHESIS", &venv);
    sh::run(nextest.env("SKIFF_SCHEMATHESIS_EXAMPLES", examples.to_string()))
}
