//! Advisories about the crates that Skiff is built on. cargo-audit holds the lock file against a copy of RustSec's
//! database on this machine; nothing is fetched. `.cargo/audit.toml` lists accepted advisories with their reasons.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{needs, sh};

/// Names the directory of the database.
const VARIABLE: &str = "SKIFF_ADVISORY_DB";

/// Checks against the database that is given, or that is found.
pub fn run(database: Option<&Path>) -> Result<()> {
    let Some(database) = database.map(Path::to_owned).or_else(found) else {
        bail!("there is no advisory database: clone rustsec/advisory-db and pass its directory by --database or {VARIABLE}");
    };
    // cargo-audit finds nothing wrong in a directory without advisories.
    if !database.join("crates").is_dir() {
        bail!("{} is no advisory database: it has no directory named crates", database.display());
    }
    let audit = needs::cargo_audit()?;
    sh::say(&format!("checking advisories in {}", database.display()));
    let mut check = sh::command(&audit.to_string_lossy(), ["audit", "--no-fetch", "--stale", "--deny", "warnings", "--db"]);
    sh::run(check.arg(&database))
}

/// [`run`] where a database is found; a line that says so where none is.
pub fn if_possible() -> Result<()> {
    if found().is_some() {
        return run(None);
    }
    sh::say(&format!("advisories are not checked: neither {VARIABLE} nor ~/.cargo/advisory-db is an advisory database"));
    Ok(())
}

/// The directory that the environment names, or else cargo-audit's own.
fn found() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let usual = || std::env::home_dir().map(|home| home.join(".cargo/advisory-db")).filter(|dir| dir.is_dir());
    named.or_else(usual)
}
