//! Benches with a release build: see `tests/bench`.

use anyhow::Result;

use crate::{build, needs, samples, sh};

/// Measures one part, or all parts. The results of all parts become a page of the docs.
pub fn run(part: Option<&str>) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES, needs::NETWORKS])?;
    let of_guests = matches!(part, None | Some("guests"));
    let toolchains = of_guests.then(needs::toolchains).transpose()?;
    let wasmtime = of_guests.then(needs::wasmtime).transpose()?;
    let programs = build::release()?;
    let guests = samples::build()?;
    sh::run(&mut sh::command("cargo", ["build", "--quiet", "--release", "--package", "tests", "--bin", "skiff-bench"]))?;
    let args = part.map_or_else(|| vec!["--page", "docs/benchmarks.md"], |part| vec![part]);
    let mut bench = sh::command(&programs.join("skiff-bench").to_string_lossy(), args);
    bench.env("SKIFF_PROGRAMS", &programs).env("SKIFF_SAMPLES", guests);
    bench.envs(toolchains.map(|dir| ("SKIFF_TOOLCHAINS", dir))).envs(wasmtime.map(|program| ("SKIFF_WASMTIME", program)));
    sh::run(&mut bench)
}
