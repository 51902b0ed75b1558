use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{PipeReader, Read as _, pipe};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use nix::sys::wait::WaitStatus;

use super::*;

/// A group in the machine's unified hierarchy, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let group = root.join(format!("spawn-{name}-{}", std::process::id()));
        fs::create_dir(&group).expect("a group");
        Some(Self(group))
    }

    fn start(&self, in_pid_namespace: bool, path: &str, args: &[&str]) -> (io::Result<i32>, PipeReader) {
        let (output, input) = pipe().expect("a pipe");
        let null = File::open("/dev/null").expect("/dev/null");
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let program = Program { path: Path::new(path), args: &args, streams: [null.as_fd(), input.as_fd(), null.as_fd()] };
        let group = File::open(&self.0).expect("a group");
        (spawn_in_cgroup(group.as_fd(), in_pid_namespace, &program).expect("the kernel can"), output)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let removed = fs::remove_dir(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "no process is left: {removed:?}");
    }
}

fn text_and_end((pid, mut output): (io::Result<i32>, PipeReader)) -> (String, WaitStatus) {
    let pid = Pid::from_raw(pid.expect("started"));
    let mut text = String::new();
    output.read_to_string(&mut text).expect("text");
    (text, waitpid(pid, None).expect("our child"))
}

/// The last line has the signals that are ignored.
const REPORT: &str = "echo $$ $0 $1; grep ^0:: /proc/self/cgroup; grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 7";

#[test]
fn a_program_begins_in_its_cgroup_with_default_signals() {
    let Some(group) = Scratch::new("begins") else { return };
    let (text, end) = text_and_end(group.start(true, "/bin/sh", &["-c", REPORT, "name", "a b"]));
    let cgroup = format!("0::/{}", group.0.file_name().expect("a name").display());
    let (begin, ignored) = text.trim_end().rsplit_once("\nSigIgn:\t").expect("ignored signals");
    assert_eq!(begin, format!("1 name a b\n{cgroup}\nSigBlk:\t{:016x}", 0));
    let ignored = u64::from_str_radix(ignored, 16).expect("a number");
    assert_eq!(ignored & 1 << (libc::SIGPIPE - 1), 0, "{ignored:x}: this process ignores it");
    assert!(matches!(end, WaitStatus::Exited(_, 7)), "{end:?}");

    let started = group.start(false, "/bin/sh", &["-c", "echo $$"]);
    let pid = *started.0.as_ref().expect("started");
    assert_eq!(text_and_end(started).0, format!("{pid}\n"), "in the namespace of its starter");
}

#[test]
fn a_program_that_cannot_run_is_an_error_and_no_child() {
    let Some(group) = Scratch::new("absent") else { return };
    assert_eq!(group.start(true, "/absent", &[]).0.expect_err("absent").kind(), io::ErrorKind::NotFound);
    assert_eq!(group.start(true, "/etc/passwd", &[]).0.expect_err("no program").kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(fs::read_to_string(group.0.join("cgroup.procs")).expect("processes"), "");

    let removed = File::open(&group.0).expect("a group");
    drop(group);
    let program = Program { path: Path::new("/bin/true"), args: &[], streams: [removed.as_fd(); 3] };
    assert!(spawn_in_cgroup(removed.as_fd(), false, &program).is_none(), "a removed group has no processes");
}

#[test]
fn threads_start_programs_at_the_same_time() {
    let Some(group) = Scratch::new("threads") else { return };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let group = &group;
            scope.spawn(move || {
                for round in 0..20 {
                    let word = format!("{thread}.{round}");
                    assert_eq!(text_and_end(group.start(round % 2 == 0, "/bin/sh", &["-c", "echo $0", &word])).0, format!("{word}\n"));
                }
            });
        }
    });
}
