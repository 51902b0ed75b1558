//! All tests: lints, unit tests, and whole clusters on the real kernel.

use anyhow::Result;

use crate::{audit, build, lint, needs, samples, sh};

/// Runs the tests. With a filter, only the tests whose name contains it run, without lints.
pub fn run(filter: Option<&str>) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES, needs::NETWORKS, needs::TEST])?;
    needs::nextest()?;
    if filter.is_none() {
        lint::code()?;
        audit::if_possible()?;
    }
    let programs = build::debug()?;
    let guests = samples::build()?;
    let python = needs::python()?;
    let schemathesis = needs::venv("schemathesis", needs::SCHEMATHESIS)?;
    let tools = needs::clients()?;
    let machine = needs::machine()?;
    let mut ended = Vec::new();
    // Stories check the whole machine for what a cluster leaves behind, so nothing else may run at that time.
    for (what, tests) in [("the crates' own tests", "not binary(it)"), ("the stories", "binary(it)")] {
        sh::say(&format!("running {what}"));
        let mut nextest = sh::command("cargo", ["nextest", "run", "--no-fail-fast", "--no-tests=pass", "-E", tests]);
        nextest
            .args(build::WORKSPACE)
            .env("SKIFF_PROGRAMS", &programs)
            .env("SKIFF_SAMPLES", &guests)
            .env("SKIFF_PYTHON", &python)
            .env("SKIFF_SCHEMATHESIS", &schemathesis)
            .env("SKIFF_TOOLS", &tools)
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
    let (programs, venv) = (build::debug()?, needs::venv("schemathesis", needs::SCHEMATHESIS)?);
    sh::say(&format!("asking a server everything, {examples} times over"));
    let story = "binary(it) & test(/^hostile::schemathesis/)";
    let mut nextest = sh::command("cargo", ["nextest", "run", "--no-capture", "-E", story]);
    nextest.args(build::WORKSPACE).env("SKIFF_PROGRAMS", &programs).env("SKIFF_SCHEMATHESIS", &venv);
    sh::run(nextest.env("SKIFF_SCHEMATHESIS_EXAMPLES", examples.to_string()))
}
