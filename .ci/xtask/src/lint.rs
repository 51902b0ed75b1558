//! Format, lints, and checks of the dependencies.

use anyhow::Result;

use crate::{audit, build, needs, sh};

/// The checks of cargo-deny that need no network. Its check of advisories would fetch them; see [`audit`].
const DENY: [&str; 3] = ["bans", "licenses", "sources"];

/// Checks format and lints; warnings are errors.
pub fn code() -> Result<()> {
    sh::say("checking the format");
    sh::run(&mut sh::command("cargo", ["fmt", "--all", "--check"]))?;
    sh::say("checking lints");
    sh::run(sh::command("cargo", ["clippy", "--quiet", "--all-targets"]).args(build::WORKSPACE).args(["--", "-D", "warnings"]))
}

/// [`code`], then licences, sources and unwanted crates among the dependencies (`deny.toml`), and advisories.
pub fn run() -> Result<()> {
    code()?;
    let deny = needs::cargo_deny()?;
    sh::say("checking dependencies");
    let mut check = sh::command(&deny.to_string_lossy(), ["--locked", "check"]);
    sh::run(check.args(DENY))?;
    audit::if_possible()
}
