//! Format, lints, and checks of the dependencies.

use anyhow::Result;

use crate::build::Mode;
use crate::{audit, needs, sh};

/// The checks of cargo-deny that need no network. Its check of advisories would fetch them; see [`audit`].
const DENY: [&str; 3] = ["bans", "licenses", "sources"];

/// Checks the format.
pub fn format() -> Result<()> {
    sh::say("checking the format");
    sh::run(&mut sh::command("cargo", ["fmt", "--all", "--check"]))
}

/// Format, lints, then licences, sources and unwanted crates among the dependencies (`deny.toml`), and advisories.
pub fn run() -> Result<()> {
    format()?;
    sh::say("checking lints");
    sh::run(Mode::Plain.cargo(&["clippy", "--quiet", "--all-targets"]).args(["--", "-D", "warnings"]))?;
    let deny = needs::cargo_deny()?;
    sh::say("checking dependencies");
    let mut check = sh::command(&deny.to_string_lossy(), ["--locked", "check"]);
    sh::run(check.args(DENY))?;
    audit::if_possible()
}
