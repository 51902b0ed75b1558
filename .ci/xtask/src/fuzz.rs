//! Long runs of the fuzz targets, on the stable toolchain.

use anyhow::Result;

use crate::sh;

/// Tries one target, or all of them one after the other, each for `seconds`.
pub fn run(target: &str, seconds: u64, seed: u64) -> Result<()> {
    sh::say(&format!("trying {target} for {seconds} s, seed {seed}"));
    // A debug build, because its checks find overflows.
    let mut cargo = sh::command("cargo", ["run", "--quiet", "--package", "tests-fuzz", "--bin", "skiff-fuzz", "--"]);
    sh::run(cargo.args([target, &seconds.to_string(), &seed.to_string()]))
}
