//! Format and lints.

use anyhow::Result;

use crate::sh;

/// Checks both; warnings are errors.
pub fn run() -> Result<()> {
    sh::say("checking the format");
    sh::run(&mut sh::command("cargo", ["fmt", "--all", "--check"]))?;
    sh::say("checking lints");
    sh::run(&mut sh::command("cargo", ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}
