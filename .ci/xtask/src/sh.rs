//! Runs programs. Errors contain the program's name.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Pause between two checks of a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The project's directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
}

/// cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command in the project's directory, without the variables that cargo sets for this program's own package. Build
/// scripts of other crates watch the same variables. They would run again whenever cargo was called by hand in between.
pub fn command<I: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end; its output is shown.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {}", name(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command and returns its output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::piped()).output().with_context(|| format!("running {}", name(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", line(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is on the PATH or in the system's directories for administrators.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]).any(|dir| dir.join(program).exists())
}

/// The compiler's name of this machine.
pub fn host() -> Result<String> {
    output(&mut command("rustc", ["--print", "host-tuple"])).map(|host| host.trim().to_owned())
}

/// The PATH with a further directory before the others.
pub fn path_with(dir: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([dir.to_owned()].into_iter().chain(std::env::split_paths(&path))).context("a directory with a colon")
}

/// Repeats the check until it returns a value, for at most `limit`.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("{what} did not happen within {} s", limit.as_secs());
        }
        #[expect(clippy::disallowed_methods, reason = "a chore that polls another program's condition, with a deadline")]
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Prints a line of progress.
pub fn say(text: &str) {
    eprintln!("==> {text}");
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn line(command: &Command) -> String {
    let args: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    format!("{} {}", name(command), args.join(" "))
}
