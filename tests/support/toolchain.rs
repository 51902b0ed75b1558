//! Guests that toolchains make from the samples, with the commands that docs/wasm.md has for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{project, sample, toolchains};
use crate::run::run;

/// Builds a sample in a new directory below `work`, without a network; returns the module.
pub fn guest(work: &Path, name: &str) -> PathBuf {
    let (source, dir) = (project().join("samples/guests").join(name), work.join(name));
    fs::create_dir(&dir).expect("made");
    for file in fs::read_dir(&source).expect("a sample") {
        let file = file.expect("an entry");
        fs::copy(file.path(), dir.join(file.file_name())).expect("copied");
    }
    let tools = toolchains();
    symlink(tools.with_file_name("node_modules"), dir.join("node_modules")).expect("linked");
    // The package of PyPI has another name for the program.
    symlink(tools.join("python-zig"), dir.join("zig")).expect("linked");
    symlink(clang(), dir.join("clang-16")).expect("linked");
    let system = std::env::var("PATH").expect("a PATH");
    let mut shell = Command::new("unshare");
    shell.args(["--net", "sh", "-euc", &commands(name)]).current_dir(&dir);
    shell.env("PATH", format!("{}:{}:{system}", tools.display(), dir.display()));
    // What compilers store for their next run goes there too.
    shell.env("WIT", sample("wit")).env("HOME", &dir);
    run(&mut shell, None).ok();
    dir.join(format!("{name}.wasm"))
}

/// The clang of the samples, which docs/wasm.md names in one version.
fn clang() -> PathBuf {
    std::env::var_os("SKIFF_CLANG").map_or_else(|| PathBuf::from("/usr/bin/clang-16"), PathBuf::from)
}

/// The commands that docs/wasm.md has for the sample.
fn commands(name: &str) -> String {
    let docs = fs::read_to_string(project().join("docs/wasm.md")).expect("docs/wasm.md");
    let (_, section) = docs.split_once(&format!("(../samples/guests/{name})")).unwrap_or_else(|| panic!("{name} is in no section"));
    let (_, block) = section.split_once("```sh\n").expect("a block of commands");
    let (commands, _) = block.split_once("```").expect("the end of the block");
    commands.to_owned()
}
