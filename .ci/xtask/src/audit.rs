//! Advisories about the crates that Skiff uses. cargo-audit compares the lock file with a local copy of RustSec's
//! database; nothing is fetched. `.cargo/audit.toml` lists accepted advisories with their reasons.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{needs, sh};

/// Environment variable with the directory of the database.
const VARIABLE: &str = "SKIFF_ADVISORY_DB";

/// Checks against the given database, or against the one on this machine.
pub fn run(database: Option<&Path>) -> Result<()> {
    let Some(database) = database.map(Path::to_owned).or_else(found) else {
        bail!("there is no advisory database: clone rustsec/advisory-db and pass its directory by --database or {VARIABLE}");
    };
    // cargo-audit reports success for a directory without advisories.
    if !database.join("crates").is_dir() {
        bail!("{} is no advisory database: it has no directory named crates", database.display());
    }
    let audit = needs::cargo_audit()?;
    sh::say(&format!("checking advisories in {}", database.display()));
    let mut check = sh::command(&audit.to_string_lossy(), ["audit", "--no-fetch", "--stale", "--deny", "warnings", "--db"]);
    sh::run(check.arg(&database))
}

/// [`run`] if there is a database on this machine; otherwise says that there is none.
pub fn if_possible() -> Result<()> {
    if found().is_some() {
        return run(None);
    }
    sh::say(&format!("advisories are not checked: neither {VARIABLE} nor ~/.cargo/advisory-db is an advisory database"));
    Ok(())
}

/// The directory that the environment variable names, or else cargo-audit's own.
fn found() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let usual = || std::env::home_dir().map(|home| home.join(".cargo/advisory-db")).filter(|dir| dir.is_dir());
    named.or_else(usual)
}
