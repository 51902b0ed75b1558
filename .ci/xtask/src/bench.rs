//! Benches with a release build: see `tests/bench`.

use anyhow::Result;

use crate::{build, needs, samples, sh};

/// Measures one part, or all parts. The results of all parts become a page of the docs.
pub fn run(part: Option<&str>) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES, needs::NETWORKS])?;
    let toolchains = matches!(part, None | Some("guests")).then(needs::toolchains).transpose()?;
    let programs = build::release()?;
    let guests = samples::build()?;
    sh::run(&mut sh::command("cargo", ["build", "--quiet", "--release", "--package", "tests", "--bin", "skiff-bench"]))?;
    let args = part.map_or_else(|| vec!["--page", "docs/benchmarks.md"], |part| vec![part]);
    let mut bench = sh::command(&programs.join("skiff-bench").to_string_lossy(), args);
    sh::run(bench.env("SKIFF_PROGRAMS", &programs).env("SKIFF_SAMPLES", guests).envs(toolchains.map(|dir| ("SKIFF_TOOLCHAINS", dir))))
}
