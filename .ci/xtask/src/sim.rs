//! Long runs of the simulation.

use anyhow::Result;

use crate::sh;

/// Runs so many seeds, or one with every step.
pub fn run(seeds: u64, first: u64, seed: Option<u64>) -> Result<()> {
    // A debug build, because its checks find overflows.
    let mut cargo = sh::command("cargo", ["run", "--quiet", "--package", "tests-sim", "--bin", "skiff-sim", "--"]);
    match seed {
        Some(seed) => sh::run(cargo.args(["--seed", &seed.to_string(), "--trace"])),
        None => {
            sh::say(&format!("simulating {seeds} seeds from {first}"));
            sh::run(cargo.args(["--seeds", &seeds.to_string(), "--first", &first.to_string()]))
        }
    }
}
