//! The wasmtime program, which the bench of guests measures `wasmtime serve` with beside Skiff: of the version that Skiff is built on, and
//! with wasmtime's own profile for the fastest runtime, as Skiff's shim is built for use.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::sh;

/// The package in `Cargo.lock` whose version that is.
const LOCKED: &str = "wasmtime";
/// A profile of the crate: link-time optimization and one unit of code generation.
const PROFILE: &str = "fastest-runtime";
/// What `wasmtime serve` needs, and what is on by default and shapes how a guest runs: async components, the pooling allocator, backtraces.
const FEATURES: &str = "serve,run,compile,component-model-async,pooling-allocator,parallel-compilation,backtrace";

/// Builds the program once and keeps it under target/; returns its path. The caller has ensured what a build needs.
pub fn wasmtime() -> Result<PathBuf> {
    let lock = std::fs::read_to_string(sh::root().join("Cargo.lock")).context("reading Cargo.lock")?;
    let version = locked(&lock, LOCKED).with_context(|| format!("{LOCKED} is not in Cargo.lock"))?;
    let flags = ["--profile", PROFILE, "--no-default-features", "--features", FEATURES];
    super::tool("wasmtime-cli", "wasmtime", version, &flags)
}

/// The version of a package in a lock file.
fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let after = lock.lines().skip_while(|line| *line != name).nth(1)?;
    after.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package_itself() {
        let lock = "[[package]]\nname = \"wasmtime-wasi\"\nversion = \"1.2.3\"\n\n[[package]]\nname = \"wasmtime\"\nversion = \"4.5.6\"\n";
        assert_eq!(locked(lock, "wasmtime"), Some("4.5.6"));
        assert_eq!(locked(lock, "wasm"), None);
        assert_eq!(locked("name = \"wasmtime\"\n", "wasmtime"), None);
    }

    #[test]
    fn the_lock_file_has_one_version() {
        let lock = std::fs::read_to_string(sh::root().join("Cargo.lock")).expect("Cargo.lock");
        let version = locked(&lock, LOCKED).expect("a version");
        assert_eq!(lock.lines().filter(|line| *line == format!("name = \"{LOCKED}\"")).count(), 1);
        assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
    }
}
