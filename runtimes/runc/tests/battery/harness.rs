//! runc under the battery: scratch directories, a root file system of busybox, cgroups that go away.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use runtimes_battery::{Abilities, Harness, Program};
use runtimes_contract::{Content, Runtime};
use runtimes_host::cgroup::Cgroups;
use runtimes_runc::{Config, RuncRuntime};

/// Debian's.
pub const RUNC: &str = "/usr/sbin/runc";

/// A runtime in scratch directories.
pub struct Runc {
    dir: tempfile::TempDir,
    cgroup: String,
    runtime: Arc<dyn Runtime>,
    roots: AtomicU32,
}

impl Runc {
    /// With nothing in it.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let unique = dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let runtime = open(dir.path());
        Self { dir, cgroup: format!("skiff-test-runc-{unique}"), runtime, roots: AtomicU32::new(0) }
    }

    /// A root file system of busybox, for one container.
    pub fn rootfs(&self) -> PathBuf {
        let root = self.dir.path().join(format!("root-{}", self.roots.fetch_add(1, Ordering::Relaxed)));
        for dir in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        std::fs::copy("/usr/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
        for name in
            ["cat", "chown", "echo", "grep", "head", "id", "ls", "mount", "seq", "sh", "sleep", "stty", "tail", "tr", "true", "tty", "yes"]
        {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        std::fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
        root
    }
}

fn open(dir: &Path) -> Arc<dyn Runtime> {
    let shim = PathBuf::from(env!("CARGO_BIN_EXE_skiff-shim-runc"));
    Arc::new(RuncRuntime::new(Config { state_dir: dir.join("state"), shim, runc: RUNC.into() }).unwrap())
}

impl Drop for Runc {
    fn drop(&mut self) {
        // Also when a test has failed: no process continues to run, and shims end with their containers.
        Cgroups::detect().and_then(|cgroups| cgroups.group(&self.cgroup)).and_then(|group| group.remove_tree()).unwrap();
    }
}

impl Harness for Runc {
    fn hears_signals(&self, pid: i32) -> bool {
        // proc(5): the signals that are caught, as a mask; SIGTERM is the fifteenth.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & (1 << 14) != 0)
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.runtime.clone()
    }

    fn reopened(&self) -> Arc<dyn Runtime> {
        open(self.dir.path())
    }

    fn scratch(&self) -> &Path {
        self.dir.path()
    }

    fn cgroup(&self, id: &str) -> String {
        format!("{}/{id}", self.cgroup)
    }

    fn program(&self, program: Program) -> (Content, Vec<String>) {
        let script = match program {
            Program::Hello => "echo hello; echo warned >&2",
            Program::Echo => r#"echo "$*""#,
            Program::ExitWith(code) => &format!("exit {code}"),
            Program::Sleep => "trap 'exit 143' TERM; sleep 1000 & wait",
            Program::Spin => "while :; do :; done",
            Program::Ticks => "while :; do echo tick; sleep 0.005; done",
            Program::LongLine => "head -c 40000 /dev/zero | tr '\\0' x; echo; printf end",
            Program::Hog => "exec tail -c 1000000000 /dev/zero",
            Program::Broken => "",
        };
        let args = if script.is_empty() { vec!["no-such-program"] } else { vec!["/bin/sh", "-c", script, "guest"] };
        (Content::Linux { rootfs: self.rootfs() }, args.into_iter().map(str::to_owned).collect())
    }

    fn abilities(&self) -> Abilities {
        Abilities { real: true, terminated_code: 143, hog_is_killed: true }
    }
}
