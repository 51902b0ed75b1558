//! Programs that the tasks need on the machine. On Debian and Ubuntu, as root, the missing packages are installed and
//! named. Elsewhere the error has the one command that installs them.

mod clients;
mod machine;
mod toolchains;
mod wasmtime;

pub use clients::clients;
pub use machine::machine;
pub use toolchains::toolchains;
pub use wasmtime::wasmtime;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sh;

/// A program, and the Debian package that contains it.
pub type Need = (&'static str, &'static str);

/// Programs of a node; docs/nodes.md names the same.
pub const NODE: &[Need] =
    &[("runc", "runc"), ("nft", "nftables"), ("conntrack", "conntrack"), ("update-ca-certificates", "ca-certificates")];
/// The client.
pub const CLIENT: &[Need] = &[("kubectl", "kubernetes-client")];
/// For the sample Linux image.
pub const SAMPLES: &[Need] = &[("busybox", "busybox-static")];
/// For the networks of tests and benches.
pub const NETWORKS: &[Need] = &[("ip", "iproute2")];
/// For the build of skiff: SQLite and ring are C.
pub const BUILD: &[Need] = &[("cc", "gcc"), ("make", "make")];
/// For the tests.
pub const TEST: &[Need] = &[
    ("dig", "bind9-dnsutils"),
    ("curl", "curl"),
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("etcd", "etcd-server"),
    ("prometheus", "prometheus"),
    ("redis-server", "redis-server"),
    ("dbus-daemon", "dbus-daemon"),
    ("/lib/systemd/systemd-logind", "systemd"),
];

/// schemathesis generates requests from a server's OpenAPI documents.
pub const SCHEMATHESIS: &[&str] = &["schemathesis==4.32.5"];

/// Version of cargo-deny, which reads `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

/// Version of cargo-audit, which reads `.cargo/audit.toml`.
const CARGO_AUDIT: &str = "0.22.2";

/// Builds a tool without optimizations: the build takes minutes, and a check takes seconds in both.
const UNOPTIMIZED: &str = "--debug";

/// Versions of clang that have a matching WASM runtime library in Debian or Ubuntu, in order of preference.
const CLANGS: &[u32] = &[16, 19, 18, 17, 15, 14];

/// Installs the packages whose programs are missing.
pub fn ensure(needs: &[&[Need]]) -> Result<()> {
    let missing: Vec<&str> =
        needs.iter().copied().flatten().filter(|(program, _)| !sh::has(program)).map(|(_, package)| *package).collect();
    install(&missing)
}

/// The version of a clang that builds WASM. Installs one if there is none.
pub fn clang() -> Result<u32> {
    let whole =
        |version: &&u32| sh::has(&format!("clang-{version}")) && sh::has(&format!("wasm-ld-{version}")) && builtins(**version).is_some();
    let libc = std::path::Path::new("/usr/lib/wasm32-wasi/libc.a").exists();
    if let (Some(version), true) = (CLANGS.iter().find(whole), libc) {
        return Ok(*version);
    }
    refresh()?;
    let offered = |version: &&u32| {
        let package = format!("libclang-rt-{version}-dev-wasm32");
        Command::new("apt-cache").args(["show", &package]).output().is_ok_and(|answer| answer.status.success())
    };
    let Some(version) = CLANGS.iter().find(offered) else {
        bail!(
            "no clang with a WASM runtime library is offered by this system's packages: install clang, lld, wasi-libc and libclang-rt-dev-wasm32 of one version"
        );
    };
    let packages =
        [format!("clang-{version}"), format!("lld-{version}"), format!("libclang-rt-{version}-dev-wasm32"), "wasi-libc".to_owned()];
    install(&packages.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(*version)
}

/// The runtime library for WASM of that clang version.
pub fn builtins(version: u32) -> Option<std::path::PathBuf> {
    let lib = format!("/usr/lib/llvm-{version}/lib/clang");
    let found = std::fs::read_dir(lib).ok()?.flatten().map(|entry| entry.path().join("lib/wasi/libclang_rt.builtins-wasm32.a"));
    found.into_iter().find(|path| path.exists())
}

/// Installs cargo-nextest, which is no Debian package.
pub fn nextest() -> Result<()> {
    if sh::has("cargo-nextest") {
        return Ok(());
    }
    sh::say("installing cargo-nextest");
    sh::run(&mut sh::command("cargo", ["install", "--locked", "cargo-nextest"]))
}

/// The program of cargo-deny, which only the lints need.
pub fn cargo_deny() -> Result<PathBuf> {
    tool("cargo-deny", "cargo-deny", CARGO_DENY, &[UNOPTIMIZED])
}

/// The program of cargo-audit, which only the check of advisories needs.
pub fn cargo_audit() -> Result<PathBuf> {
    tool("cargo-audit", "cargo-audit", CARGO_AUDIT, &[UNOPTIMIZED, "--no-default-features"])
}

/// A program of a crates.io package in exactly that version. It is built with these flags of `cargo install`, once, and kept under
/// target/. Returns its path.
fn tool(package: &str, program: &str, version: &str, flags: &[&str]) -> Result<PathBuf> {
    let root = sh::target().join("tools").join(program);
    let (path, stamp) = (root.join("bin").join(program), root.join("built"));
    let wanted = format!("{version} {}", flags.join(" "));
    if path.exists() && std::fs::read_to_string(&stamp).is_ok_and(|built| built == wanted) {
        return Ok(path);
    }
    sh::say(&format!("installing {package} {version} into {}, once; this takes minutes", root.display()));
    let mut install = sh::command("cargo", ["install", package, "--locked", "--force", "--version", version]);
    sh::run(install.args(flags).arg("--root").arg(&root))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(path)
}

/// A Python virtual environment with exactly these packages. It is made once and kept under target/. Returns the
/// directory of its programs.
pub fn venv(name: &str, packages: &[&str]) -> Result<PathBuf> {
    ensure(&[&[("python3", "python3")]])?;
    let dir = sh::target().join("venv").join(name);
    let (programs, stamp) = (dir.join("bin"), dir.join("packages"));
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(programs);
    }
    // Debian has venv in another package. The module's presence does not prove that venv works.
    if !Command::new("python3").args(["-c", "import ensurepip"]).output().is_ok_and(|ran| ran.status.success()) {
        install(&["python3-venv"])?;
    }
    sh::say(&format!("installing {}", packages.join(" ")));
    sh::run(sh::command("python3", ["-m", "venv", "--clear"]).arg(&dir))?;
    sh::run(sh::command(&programs.join("pip").to_string_lossy(), ["install", "--quiet", "--no-input"]).args(packages))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(programs)
}

/// The Python interpreter with the packages that `tests/it/python/requirements.txt` pins.
pub fn python() -> Result<PathBuf> {
    let pins = std::fs::read_to_string(sh::root().join("tests/it/python/requirements.txt"))?;
    let packages: Vec<&str> = pins.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    Ok(venv("kubernetes", &packages)?.join("python"))
}

/// Fails without root, which namespaces, mounts and cgroups need.
pub fn root() -> Result<()> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    bail!("this makes network namespaces, mounts and cgroups: run it as root (sudo -E cargo xtask …)")
}

fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } != 0 || !sh::has("apt-get") {
        bail!("missing: {list}. Install with: sudo apt-get install -y --no-install-recommends {list}");
    }
    sh::say(&format!("installing {list}"));
    refresh()?;
    let mut apt = sh::command("apt-get", ["install", "-y", "-qq", "--no-install-recommends"]);
    apt.args(packages).env("DEBIAN_FRONTEND", "noninteractive").stdout(std::process::Stdio::null());
    sh::run(&mut apt)
}

/// Updates the package lists, which may be old or absent on a fresh machine; once a run is enough.
fn refresh() -> Result<()> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let mut done = Ok(());
    ONCE.call_once(|| {
        if sh::has("apt-get") {
            done = sh::run(sh::command("apt-get", ["update", "-qq"]).stdout(std::process::Stdio::null()));
        }
    });
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_docs_name_what_a_node_needs() {
        let docs = std::fs::read_to_string(sh::root().join("docs/nodes.md")).expect("docs/nodes.md");
        let line =
            docs.lines().find_map(|line| line.strip_prefix("# apt-get install --no-install-recommends ")).expect("a line that installs");
        let packages: Vec<&str> = NODE.iter().map(|(_, package)| *package).collect();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), packages);
        for (_, package) in CLIENT {
            assert!(docs.contains(&format!("`{package}`")), "{package}");
        }
    }
}
