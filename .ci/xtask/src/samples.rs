//! Builds the guests under `samples/guests` into `target/samples`: C modules and components with clang and the linker
//! of the Rust toolchain, Rust guests if their target is installed, and a small Linux image with busybox. Guests in other
//! languages are built by a story, with the commands of docs/wasm.md.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{needs, sh};

/// WASI preview 1 modules: one file each.
const MODULES: &[&str] = &["hello", "job"];
/// Components: `main.c` with checked-in bindings, made by wit-bindgen from `wit/skiff.wit`.
const COMPONENTS: &[&str] = &["web", "lookup", "echo"];
/// Plugins of the scheduler: the same, for a world of `sched/wasm/wit/scheduler.wit`.
const PLUGINS: &[&str] = &["gpu-load"];
/// Rust guests, each with its target.
const RUST: &[(&str, &str)] = &[("web-rs", "wasm32-wasip2"), ("gpu-load-rs", "wasm32-wasip2")];
/// The commands of the Linux image, all of them busybox.
const APPLETS: &[&str] = &[
    "sh", "cat", "echo", "env", "hostname", "httpd", "id", "ip", "kill", "ls", "mkdir", "nc", "nslookup", "ps", "sleep", "stty", "test",
    "touch", "true", "false", "vi", "wget", "wc", "head", "tail", "dd", "rm", "tar", "date", "seq", "stat", "mount", "readlink",
];

/// Builds all guests; returns the directory.
pub fn build() -> Result<PathBuf> {
    needs::ensure(&[needs::SAMPLES])?;
    let clang = needs::clang()?;
    let out = sh::target().join("samples");
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let guests = sh::root().join("samples/guests");
    sh::say("building the sample guests");
    for name in MODULES {
        let source = guests.join(name).join(format!("{name}.c"));
        let mut cc = compiler(clang);
        cc.args(["-s", "-o"]).arg(out.join(format!("{name}.wasm"))).arg(source);
        sh::run(&mut cc)?;
    }
    for name in COMPONENTS.iter().chain(PLUGINS) {
        component(clang, &guests.join(name), name, &out)?;
    }
    for (name, target) in RUST {
        rust(&guests.join(name), name, target, &out)?;
    }
    linux_image(&out.join("tools.tar"))?;
    wit(&guests.join("wit"), &out.join("wit"))?;
    Ok(out)
}

/// The part of `cargo metadata` that is read here.
#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// A directory for the toolchains of other languages: the worlds of the samples, and under `deps` the packages of WASI 0.2 and 0.3 in the
/// versions that the runtime implements.
fn wit(worlds: &Path, out: &Path) -> Result<()> {
    let host = sh::host()?;
    let metadata = ["metadata", "--quiet", "--locked", "--format-version", "1", "--filter-platform", &host];
    let metadata: Metadata = serde_json::from_str(&sh::output(&mut sh::command("cargo", metadata))?)?;
    let implementer = metadata.packages.iter().find(|package| package.name == "wasmtime-wasi-http").context("no crate implements WASI")?;
    let [wasi_0_2, wasi_0_3] = ["wit/deps", "src/p3/wit/deps"].map(|dir| implementer.manifest_path.with_file_name(dir));
    // An earlier version of WASI may have had other files.
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("removing {}", out.display()))?;
    }
    let deps = out.join("deps");
    fs::create_dir_all(&deps).with_context(|| format!("creating {}", deps.display()))?;
    for (from, to, prefix) in [(worlds, out, ""), (&wasi_0_2, &deps, ""), (&wasi_0_3, &deps, "0.3-")] {
        for file in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
            let file = file?;
            let copy = to.join(format!("{prefix}{}", file.file_name().to_string_lossy()));
            fs::copy(file.path(), copy).with_context(|| format!("copying {}", file.path().display()))?;
        }
    }
    Ok(())
}

fn compiler(clang: u32) -> Command {
    sh::command(&format!("clang-{clang}"), ["--target=wasm32-wasi", "-Oz"])
}

/// Compiles the guest and its bindings and links them to a component. The linker (wasm-component-ld) wraps the core
/// module, using the component type in the bindings.
fn component(clang: u32, source: &Path, name: &str, out: &Path) -> Result<()> {
    let (mut objects, world) = (Vec::new(), name.replace('-', "_"));
    for (file, warnings) in [(source.join("main.c"), "-Wall"), (source.join(format!("bindings/{world}.c")), "-w")] {
        let object = out.join(format!("{name}-{}.o", file.file_stem().unwrap_or_default().to_string_lossy()));
        let mut cc = compiler(clang);
        cc.args([warnings, "-c", "-o"]).arg(&object).arg(&file);
        sh::run(&mut cc)?;
        objects.push(object);
    }
    let sysroot = sh::output(&mut sh::command("rustc", ["--print", "sysroot"]))?;
    let host = sh::host()?;
    let bin = Path::new(sysroot.trim()).join("lib/rustlib").join(&host).join("bin");
    let Some(builtins) = needs::builtins(clang) else { bail!("clang-{clang} has no runtime library for WASM") };
    let mut linker = Command::new(bin.join("wasm-component-ld"));
    linker.arg("--wasm-ld-path").arg(bin.join("gcc-ld/wasm-ld"));
    linker.args(["-L/usr/lib/wasm32-wasi", "/usr/lib/wasm32-wasi/crt1-reactor.o", "--entry", "_initialize"]).args(&objects);
    linker.arg(source.join(format!("bindings/{world}_component_type.o"))).arg("-lc").arg(builtins);
    linker.args(["-s", "-o"]).arg(out.join(format!("{name}.wasm")));
    sh::run(&mut linker)?;
    objects.iter().try_for_each(fs::remove_file).context("removing object files")
}

fn rust(source: &Path, name: &str, target: &str, out: &Path) -> Result<()> {
    let installed = sh::output(&mut sh::command("rustc", ["--print", "target-libdir", "--target", target]))
        .is_ok_and(|dir| Path::new(dir.trim()).exists());
    if !installed {
        sh::say(&format!("{name} is left out: it needs `rustup target add {target}`"));
        return Ok(());
    }
    let target_dir = sh::target().join("samples-rust");
    sh::run(
        sh::command("cargo", ["build", "--quiet", "--release", "--target", target, "--target-dir"]).arg(&target_dir).current_dir(source),
    )?;
    let built = target_dir.join(target).join("release").join(format!("{}.wasm", name.replace('-', "_")));
    fs::copy(&built, out.join(format!("{name}.wasm"))).map(drop).with_context(|| format!("copying {}", built.display()))
}

/// A `docker save` archive with one layer: busybox and links to it.
fn linux_image(archive: &Path) -> Result<()> {
    let layer = layer()?;
    let directory = archive.with_extension("d");
    fs::create_dir_all(&directory)?;
    let layer_path = directory.join("layer.tar");
    fs::write(&layer_path, layer)?;
    let digest = sh::output(sh::command("sha256sum", ["-b"]).arg(&layer_path))?;
    let digest = digest.split_whitespace().next().unwrap_or_default();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = serde_json::json!({
        "os": "linux", "architecture": architecture,
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": ["tools:latest"], "Layers": ["layer.tar"]}]);
    fs::write(directory.join("config.json"), config.to_string())?;
    fs::write(directory.join("manifest.json"), manifest.to_string())?;
    let mut builder = tar::Builder::new(File::create(archive)?);
    for file in ["config.json", "manifest.json", "layer.tar"] {
        builder.append_path_with_name(directory.join(file), file)?;
    }
    builder.finish()?;
    fs::remove_dir_all(&directory).context("removing the image's parts")
}

fn layer() -> Result<Vec<u8>> {
    let busybox =
        ["/bin/busybox", "/usr/bin/busybox"].iter().map(Path::new).find(|path| path.exists()).context("busybox is not installed")?;
    let mut builder = tar::Builder::new(Vec::new());
    for (dir, mode) in [
        ("bin/", 0o755),
        ("etc/", 0o755),
        ("root/", 0o700),
        ("tmp/", 0o1777),
        ("var/", 0o755),
        ("proc/", 0o755),
        ("sys/", 0o755),
        ("dev/", 0o755),
    ] {
        builder.append_data(&mut header(tar::EntryType::Directory, mode, 0), dir, &[][..])?;
    }
    for (name, content) in [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        ("etc/group", "root:x:0:\nwheel:x:10:root\nnogroup:x:65534:\n"),
    ] {
        builder.append_data(&mut header(tar::EntryType::Regular, 0o644, content.len() as u64), name, content.as_bytes())?;
    }
    let program = fs::read(busybox)?;
    builder.append_data(&mut header(tar::EntryType::Regular, 0o755, program.len() as u64), "bin/busybox", program.as_slice())?;
    for applet in APPLETS {
        builder.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), format!("bin/{applet}"), "busybox")?;
    }
    Ok(builder.into_inner()?)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header
}
