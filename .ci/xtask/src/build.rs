//! Builds skiff and its shims.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::{needs, sh};

/// The shims are built without skiff: in one build, cargo's feature unification would give the shim's wasmtime the
/// compiler too. They share one build of their dependencies.
const SHIMS: [&str; 2] = ["skiff-shim-wasmtime", "skiff-shim-runc"];
const SHIM_FEATURES: &[&str] =
    &["--package", "runtimes-wasmtime", "--package", "runtimes-runc", "--no-default-features", "--features", "runtimes-wasmtime/shim"];

/// How the workspace is compiled for tests. Each way has its own artifacts of the workspace's crates; both share those
/// of other crates.
#[derive(Clone, Copy)]
pub enum Mode {
    /// As `cargo build` and `cargo nextest` do it by hand.
    Plain,
    /// With clippy's lints as errors, for a run of everything. A check before the build would compile every dependency
    /// twice.
    Linted,
}

impl Mode {
    /// A command of cargo for the whole workspace. The commands of a run need the same mode: with another one, cargo
    /// builds again.
    pub fn cargo(self, args: &[&str]) -> Command {
        let mut cargo = sh::command("cargo", args);
        cargo.args(["--workspace", "--features", "runtimes-wasmtime/shim"]);
        if matches!(self, Self::Linted) {
            // Nobody edits between the builds of such a run, so the compiler need not store what the next build could use.
            cargo.env("RUSTC_WORKSPACE_WRAPPER", sh::root().join(".ci/xtask/lint-rustc")).env("CARGO_INCREMENTAL", "0");
            // A sixth of the compiler's time. A panic says its file and line nevertheless, and a backtrace the functions.
            cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
        }
        cargo
    }

    /// Environment variables of the shims' build.
    fn shims(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Plain => &[],
            // The shims that are shipped weigh less. Their optimization at link time takes minutes, and changes nothing that a test sees.
            Self::Linted => &[("CARGO_PROFILE_SHIM_LTO", "off"), ("CARGO_PROFILE_SHIM_CODEGEN_UNITS", "16")],
        }
    }

    /// `cargo nextest run` of the tests that the expression chooses.
    pub fn nextest(self, tests: &str) -> Command {
        let mut nextest = self.cargo(&["nextest", "run"]);
        nextest.args(["-E", tests]);
        nextest
    }
}

/// Builds for use; returns the directory of the programs.
pub fn release() -> Result<PathBuf> {
    build(sh::command("cargo", ["build", "--release", "--package", "skiff"]), "release")
}

/// Builds for the demo, in little more than half the time: only the shims are optimized. Returns the directory of the
/// programs.
pub fn unoptimized() -> Result<PathBuf> {
    build(sh::command("cargo", ["build", "--package", "skiff"]), "debug")
}

/// Builds for tests; returns the directory of the programs.
pub fn for_tests(mode: Mode) -> Result<PathBuf> {
    // Tests add features to common dependencies. With the tests included, this is the same build as that of the tests.
    build_with(mode.cargo(&["build", "--bins", "--tests"]), "debug", mode.shims())
}

fn build(cargo: Command, profile: &str) -> Result<PathBuf> {
    build_with(cargo, profile, &[])
}

/// Builds skiff by this command, and the shims with additional environment variables.
fn build_with(mut cargo: Command, profile: &str, of_shims: &'static [(&str, &str)]) -> Result<PathBuf> {
    needs::ensure(&[needs::BUILD])?;
    sh::say(&format!("building skiff ({profile}) and the shims; the first time this takes some minutes"));
    // The two builds run at the same time: each ends in long steps that use one core, and they share no cargo lock.
    let shims = std::thread::spawn(move || shims(of_shims));
    sh::run(cargo.arg("--quiet"))?;
    let shims = shims.join().map_err(|_| anyhow!("the build of the shims panicked"))??;
    let dir = sh::target().join(profile);
    for shim in shims {
        replace(&shim, &dir.join(shim.file_name().context("a shim without a name")?))?;
    }
    Ok(dir)
}

/// Builds the shims; returns their files.
fn shims(variables: &[(&str, &str)]) -> Result<Vec<PathBuf>> {
    let host = sh::host()?;
    // Code at fixed addresses needs no relocation, so the shims share more of their memory. With an explicit target,
    // these flags do not apply to build scripts and macros.
    let mut cargo = sh::command("cargo", ["build", "--quiet", "--profile", "shim", "--target", &host]);
    cargo.envs(variables.iter().copied());
    cargo.args(SHIM_FEATURES).args(SHIMS.iter().flat_map(|shim| ["--bin", shim]));
    sh::run(cargo.env("RUSTFLAGS", "-C relocation-model=static"))?;
    let dir = sh::target().join(&host).join("shim");
    Ok(SHIMS.iter().map(|shim| dir.join(shim)).collect())
}

/// Copies, then renames, because the old file may be running.
fn replace(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    let temporary = to.with_extension("new");
    std::fs::copy(from, &temporary)
        .and_then(|_| std::fs::rename(&temporary, to))
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}
