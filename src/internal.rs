//! `skiff internal …`: this program as a confined process that works on hostile bytes. It is started by the node
//! agent and by `skiff image`, not by people, and goes its own way before anything else of the program begins.

use anyhow::Context;
use runtimes_contract::helper::Helper;

use crate::place::Place;

/// What the process does.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Compiles a WebAssembly module.
    Compile,
    /// Unpacks an archive.
    Unpack,
}

impl Job {
    const ALL: [Self; 2] = [Self::Compile, Self::Unpack];

    fn word(self) -> &'static str {
        match self {
            Self::Compile => "compile",
            Self::Unpack => "unpack",
        }
    }

    fn serve(self) -> ! {
        match self {
            Self::Compile => runtimes_wasmtime::serve_compile(),
            Self::Unpack => node_images::serve_unpack(),
        }
    }
}

/// Does a job, and ends the process, if it was started for one.
pub fn serve_if_asked() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("internal")
        && let Some(word) = args.next()
        && let Some(job) = Job::ALL.into_iter().find(|job| job.word() == word)
    {
        job.serve();
    }
}

/// Starts processes for a job; their cgroups lie beside those of the node's Pods.
pub fn helper(place: &Place, job: Job) -> anyhow::Result<Helper> {
    // Also when the file of this program was replaced meanwhile.
    let helper = Helper::new("/proc/self/exe", &["internal", job.word()]);
    helper.in_cgroup(&format!("skiff/{}/helpers", place.prefix)).context("looking for the machine's cgroups")
}
