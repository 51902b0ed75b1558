//! Building skiff and the shims that belong beside it.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

use crate::{needs, sh};

/// What `cargo nextest` is asked for too: one set of features means one build.
pub const WORKSPACE: &[&str] = &["--workspace", "--features", "runtimes-wasmtime/shim"];
/// The shim of WASM containers is built on its own: in one build with skiff, cargo would give its
/// wasmtime the compiler too.
const SHIMS: &[(&str, &[&str])] = &[
    ("skiff-shim-wasmtime", &["--package", "runtimes-wasmtime", "--no-default-features", "--features", "shim"]),
    ("skiff-shim-runc", &["--package", "runtimes-runc"]),
];

/// Builds for use; answers the directory of the programs.
pub fn release() -> Result<PathBuf> {
    build(&["--release", "--package", "skiff"], "release")
}

/// Builds for the demo, in little more than half the time: only the shims are optimized. Answers the directory of the programs.
pub fn unoptimized() -> Result<PathBuf> {
    build(&["--package", "skiff"], "debug")
}

/// Builds for tests; answers the directory of the programs.
pub fn debug() -> Result<PathBuf> {
    // Tests bring features of their own to what everything is built on: with them it is the build of the tests.
    build(&[WORKSPACE, &["--bins", "--tests"]].concat(), "debug")
}

fn build(flags: &[&str], profile: &str) -> Result<PathBuf> {
    needs::ensure(&[needs::BUILD])?;
    sh::say(&format!("building skiff ({profile}) and the shims; the first time this takes some minutes"));
    // Side by side: each build ends in long steps that keep one core, and they share nothing that cargo locks.
    let shims = std::thread::spawn(shims);
    sh::run(sh::command("cargo", ["build", "--quiet"]).args(flags))?;
    let shims = shims.join().map_err(|_| anyhow!("the build of the shims panicked"))??;
    let dir = sh::target().join(profile);
    for shim in shims {
        replace(&shim, &dir.join(shim.file_name().context("a shim without a name")?))?;
    }
    Ok(dir)
}

/// Builds the shims; answers their files.
fn shims() -> Result<Vec<PathBuf>> {
    let host = sh::output(&mut sh::command("rustc", ["--print", "host-tuple"]))?;
    let dir = sh::target().join(host.trim()).join("shim");
    SHIMS
        .iter()
        .map(|(shim, flags)| {
            // At fixed addresses there is nothing to relocate, and so more of each shim's memory is shared.
            // Naming the target keeps these flags from build scripts and macros.
            let mut cargo = sh::command("cargo", ["build", "--quiet", "--profile", "shim", "--target", host.trim(), "--bin", shim]);
            sh::run(cargo.args(*flags).env("RUSTFLAGS", "-C relocation-model=static"))?;
            Ok(dir.join(shim))
        })
        .collect()
}

/// Copies by way of a rename: the old file may be running.
fn replace(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let temporary = to.with_extension("new");
    std::fs::copy(from, &temporary)
        .and_then(|_| std::fs::rename(&temporary, to))
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
