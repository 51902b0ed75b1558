//! All tests: lints, unit tests, and whole clusters on the real kernel.

use anyhow::Result;

use crate::build::{self, Mode};
use crate::{audit, lint, needs, samples, sh};

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
    let programs = build::for_tests(mode)?;
    let guests = samples::build()?;
    let python = needs::python()?;
    let schemathesis = needs::venv("schemathesis", needs::SCHEMATHESIS)?;
    let tools = needs::clients()?;
    let toolchains = needs::toolchains()?;
    let machine = needs::machine()?;
    let mut ended = Vec::new();
    // Stories check the whole machine for what a cluster leaves behind, so nothing else may run at that time.
    for (what, tests) in [("the crates' own tests", "not binary(it)"), ("the stories", "binary(it)")] {
        sh::say(&format!("running {what}"));
        let mut nextest = mode.nextest(tests);
        nextest
            .args(["--no-fail-fast", "--no-tests=pass"])
            .env("SKIFF_PROGRAMS", &programs)
            .env("SKIFF_SAMPLES", &guests)
            .env("SKIFF_PYTHON", &python)
            .env("SKIFF_SCHEMATHESIS", &schemathesis)
            .env("SKIFF_TOOLS", &tools)
            .env("SKIFF_TOOLCHAINS", &toolchains)
            .env("SKIFF_MACHINE", &machine)
            .args(filter);
        ended.push(sh::run(&mut nextest));
    }
    // Both runs happen, also if the first fails: one call shows all failures.
    ended.into_iter().collect()
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
