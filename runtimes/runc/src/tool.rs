//! The program runc: its command line, whether it is installed, and `runc delete`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use runtimes_contract::{ContainerId, RuntimeError};
use runtimes_host::files::remove_tree;
use runtimes_host::process::Pidfd;

use crate::version;

/// runc and its state directory.
#[derive(Clone, Debug)]
pub struct Runc {
    /// The binary.
    pub binary: PathBuf,
    /// `runc --root`.
    pub root: PathBuf,
}

impl Runc {
    /// A command with its global flags. The environment is ours, not the node's.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.env_clear().env("PATH", PATH).arg("--root").arg(&self.root);
        command
    }

    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        match self.command().arg("--version").output() {
            Ok(output) if output.status.success() => {
                let said = String::from_utf8_lossy(&output.stdout);
                if let Some(version) = version::with_known_holes(&said) {
                    tracing::warn!(
                        runc = version,
                        "this runc has known holes, unless its distribution has mended them; see docs/security.md"
                    );
                }
                Ok(())
            }
            Ok(output) => Err(RuntimeError::Tool { tool: "runc", message: String::from_utf8_lossy(&output.stderr).trim().to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RuntimeError::Missing(format!(
                "runc is not installed ({} not found); on Debian and Ubuntu: apt-get install runc",
                self.binary.display()
            ))),
            Err(error) => Err(RuntimeError::io(format!("running {}", self.binary.display()))(error)),
        }
    }

    /// Whether runc has an option of mounts. It lists them since 1.1; before, it had none for what is mounted below.
    pub(crate) fn has_mount_option(&self, name: &str) -> bool {
        let listed = self.command().arg("features").stderr(Stdio::null()).output();
        let listed = listed.and_then(|output| Ok(serde_json::from_slice::<serde_json::Value>(&output.stdout)?));
        let features = listed.inspect_err(|error| tracing::info!(%error, "runc does not list its features")).unwrap_or_default();
        features
            .get("mountOptions")
            .and_then(serde_json::Value::as_array)
            .is_some_and(|options| options.iter().any(|option| option == name))
    }

    /// Deletes runc's record of a container, whatever state it is in. runc keeps a directory for each. The container's
    /// processes and cgroup are gone by now, so the directory is all that runc still has; where runc cannot read it, or hangs,
    /// it is removed without runc.
    pub(crate) fn delete(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let dir = self.root.join(&id.0);
        if fs::symlink_metadata(&dir).is_err() {
            return Ok(());
        }
        if let Err(error) = self.call_delete(id) {
            tracing::warn!(container = %id, %error, "runc cannot delete the container; its state is removed without runc");
        }
        match remove_tree(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RuntimeError::io(format!("removing {}", dir.display()))(error)),
            _ => Ok(()),
        }
    }

    fn call_delete(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let doing = || format!("running {} delete", self.binary.display());
        let mut command = self.command();
        command.args(["delete", "--force", &id.0]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(RuntimeError::io(doing()))?;
        // Our child, not yet waited for: the pid is its own.
        let ended = Pidfd::open(child.id().cast_signed()).and_then(|handle| handle.ended_within(DELETE_WITHIN_MS));
        if !matches!(ended, Ok(true)) {
            child.kill().map_err(RuntimeError::io(doing()))?;
        }
        let output = child.wait_with_output().map_err(RuntimeError::io(doing()))?;
        match ended {
            Ok(true) if output.status.success() => Ok(()),
            Ok(true) => {
                Err(RuntimeError::Tool { tool: "runc", message: format!("delete: {}", String::from_utf8_lossy(&output.stderr).trim()) })
            }
            Ok(false) => Err(RuntimeError::Tool { tool: "runc", message: format!("delete: not done after {DELETE_WITHIN_MS} ms") }),
            Err(error) => Err(RuntimeError::io(doing())(error)),
        }
    }
}

/// How long `runc delete` may take for a container that has no process any more.
const DELETE_WITHIN_MS: u16 = 10_000;

/// The PATH on which runc finds its tools.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Flags that a shim understands.
pub fn flags(tty: bool, stdin: bool) -> Vec<OsString> {
    let wanted = [("tty", tty), ("stdin", stdin)];
    wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name.into()).collect()
}
