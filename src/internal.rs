//! `skiff internal …`: this program as a confined process for untrusted bytes. The node agent and `skiff image` start
//! it, not people. It takes this path before any other part of the program starts.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use runtimes_host::helper::Helper;

use crate::data_dir::DataDir;

/// The work of such a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Compiles a WebAssembly module.
    Compile,
    /// Tells what a WebAssembly module is.
    Inspect,
    /// Unpacks an archive.
    Unpack,
}

impl Job {
    const ALL: [Self; 3] = [Self::Compile, Self::Inspect, Self::Unpack];

    fn word(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Inspect => "inspect",
            Self::Unpack => "unpack",
        }
    }

    fn serve(self) -> ! {
        match self {
            Self::Compile => runtimes_wasmtime::serve_compile(),
            Self::Inspect => runtimes_wasmtime::serve_inspect(),
            Self::Unpack => node_images::serve_unpack(),
        }
    }
}

/// If the process was started for a job, does the job and ends the process.
pub fn serve_if_internal() {
    if let Some(job) = requested_job(std::env::args_os().skip(1)) {
        job.serve();
    }
}

/// The job that the arguments name. All other arguments, even if not UTF-8, are left to the argument parser.
fn requested_job(mut args: impl Iterator<Item = OsString>) -> Option<Job> {
    let (first, second) = (args.next()?, args.next()?);
    Job::ALL.into_iter().find(|job| first == "internal" && second == job.word())
}

/// Starts processes for a job. Their cgroups are beside those of the node's Pods.
pub fn helper(data_dir: &DataDir, job: Job) -> anyhow::Result<Helper> {
    // `/proc/self/exe` also works when the program's file was replaced meanwhile.
    let helper = Helper::new("/proc/self/exe", &["internal", job.word()]);
    helper.in_cgroup(&format!("skiff/{}/helpers", data_dir.prefix)).context("looking for the machine's cgroups")
}

/// Removes what helpers of an earlier process left. Only the first call of a process does that: a later one would end helpers that run.
/// Blocks.
pub fn clear_leftovers(helper: &Helper) -> anyhow::Result<()> {
    static IS_CLEARED: AtomicBool = AtomicBool::new(false);
    if IS_CLEARED.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    helper.clear().context("removing what an earlier process left")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn only_whole_words_are_a_job() {
        let requested_job = |args: &[&[u8]]| requested_job(args.iter().map(|arg| OsString::from_vec(arg.to_vec())));
        assert_eq!(requested_job(&[b"internal", b"unpack"]), Some(Job::Unpack));
        assert_eq!(requested_job(&[b"internal", b"compile", b"more"]), Some(Job::Compile));
        for args in [&[&b"up"[..]][..], &[b"internal"], &[b"internal", b"other"], &[b"up", b"unpack"], &[b"\xff", b"\xfe"], &[]] {
            assert_eq!(requested_job(args), None, "{args:?}");
        }
    }
}
