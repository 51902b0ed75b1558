//! Builds skiff and its shims.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

use crate::{needs, sh};

/// Flags of the build for tests. `cargo nextest` gets the same flags: with another set of features it would build
/// again.
pub const WORKSPACE: &[&str] = &["--workspace", "--features", "runtimes-wasmtime/shim"];
/// The shim of WASM containers is built alone: in one build with skiff, cargo's feature unification would give its
/// wasmtime the compiler too.
const SHIMS: &[(&str, &[&str])] = &[
    ("skiff-shim-wasmtime", &["--package", "runtimes-wasmtime", "--no-default-features", "--features", "shim"]),
    ("skiff-shim-runc", &["--package", "runtimes-runc"]),
];

/// Builds for use; returns the directory of the programs.
pub fn release() -> Result<PathBuf> {
    build(&["--release", "--package", "skiff"], "release")
}

/// Builds for the demo, in little more than half the time: only the shims are optimized. Returns the directory of the
/// programs.
pub fn unoptimized() -> Result<PathBuf> {
    build(&["--package", "skiff"], "debug")
}

/// Builds for tests; returns the directory of the programs.
pub fn debug() -> Result<PathBuf> {
    // Tests add features to common dependencies. With the tests included, this is the same build as that of the tests.
    build(&[WORKSPACE, &["--bins", "--tests"]].concat(), "debug")
}

fn build(flags: &[&str], profile: &str) -> Result<PathBuf> {
    needs::ensure(&[needs::BUILD])?;
    sh::say(&format!("building skiff ({profile}) and the shims; the first time this takes some minutes"));
    // The two builds run at the same time: each ends in long steps that use one core, and they share no cargo lock.
    let shims = std::thread::spawn(shims);
    sh::run(sh::command("cargo", ["build", "--quiet"]).args(flags))?;
    let shims = shims.join().map_err(|_| anyhow!("the build of the shims panicked"))??;
    let dir = sh::target().join(profile);
    for shim in shims {
        replace(&shim, &dir.join(shim.file_name().context("a shim without a name")?))?;
    }
    Ok(dir)
}

/// Builds the shims; returns their files.
fn shims() -> Result<Vec<PathBuf>> {
    let host = sh::output(&mut sh::command("rustc", ["--print", "host-tuple"]))?;
    let dir = sh::target().join(host.trim()).join("shim");
    SHIMS
        .iter()
        .map(|(shim, flags)| {
            // Code at fixed addresses needs no relocation, so the shims share more of their memory. With an explicit
            // target, these flags do not apply to build scripts and macros.
            let mut cargo = sh::command("cargo", ["build", "--quiet", "--profile", "shim", "--target", host.trim(), "--bin", shim]);
            sh::run(cargo.args(*flags).env("RUSTFLAGS", "-C relocation-model=static"))?;
            Ok(dir.join(shim))
        })
        .collect()
}

/// Copies, then renames, because the old file may be running.
fn replace(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let temporary = to.with_extension("new");
    std::fs::copy(from, &temporary)
        .and_then(|_| std::fs::rename(&temporary, to))
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
