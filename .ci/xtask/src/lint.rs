//! Format and lints.

use anyhow::Result;

use crate::{build, sh};

/// Checks both; warnings are errors.
pub fn run() -> Result<()> {
    sh::say("checking the format");
    sh::run(&mut sh::command("cargo", ["fmt", "--all", "--check"]))?;
    sh::say("checking lints");
    sh::run(sh::command("cargo", ["clippy", "--quiet", "--all-targets"]).args(build::WORKSPACE).args(["--", "-D", "warnings"]))
}
