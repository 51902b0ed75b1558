//! Building skiff and the shims that belong beside it.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{needs, sh};

/// The shim of WASM containers is built on its own: in one build with skiff, cargo would give its
/// wasmtime the compiler too.
const SHIM_WASMTIME: &[&str] = &[
    "build",
    "--quiet",
    "--package",
    "runtimes-wasmtime",
    "--bin",
    "skiff-shim-wasmtime",
    "--no-default-features",
    "--features",
    "shim",
    "--profile",
    "shim",
];
const SHIM_RUNC: &[&str] = &["build", "--quiet", "--package", "runtimes-runc", "--bin", "skiff-shim-runc", "--profile", "shim"];

/// Builds for use; answers the directory of the programs.
pub fn release() -> Result<PathBuf> {
    build(&["--release"], "release")
}

/// Builds for tests; answers the directory of the programs.
pub fn debug() -> Result<PathBuf> {
    build(&[], "debug")
}

fn build(flags: &[&str], profile: &str) -> Result<PathBuf> {
    needs::ensure(&[needs::BUILD])?;
    sh::say(&format!("building skiff ({profile}); the first time this takes some minutes"));
    sh::run(sh::command("cargo", ["build", "--quiet", "--package", "skiff"]).args(flags))?;
    sh::say("building the shims");
    sh::run(&mut sh::command("cargo", SHIM_WASMTIME))?;
    sh::run(&mut sh::command("cargo", SHIM_RUNC))?;
    let dir = sh::target().join(profile);
    for shim in ["skiff-shim-wasmtime", "skiff-shim-runc"] {
        replace(&sh::target().join("shim").join(shim), &dir.join(shim))?;
    }
    Ok(dir)
}

/// Copies by way of a rename: the old file may be running.
fn replace(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let temporary = to.with_extension("new");
    std::fs::copy(from, &temporary)
        .and_then(|_| std::fs::rename(&temporary, to))
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
