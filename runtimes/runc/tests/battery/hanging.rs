//! A runc that hangs in an exec, before it has started the process and after. When nobody waits for the exec any more, nothing of it stays.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runtimes_battery::{Harness, until};
use runtimes_contract::{ExecSpec, Runtime};
use runtimes_runc::{Config, RuncRuntime};

use crate::harness::{RUNC, Runc};
use crate::oci::{processes, sleeper};

/// A program that stands for runc. Its path is in the environment of all that it starts.
fn script(harness: &Runc, name: &str, text: &str) -> PathBuf {
    let path = harness.scratch().join(name);
    fs::write(&path, format!("#!/bin/sh\nexport SCRIPT=\"$0\"\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The runtime of the harness' containers, with another runc.
fn with_runc(harness: &Runc, runc: &Path) -> RuncRuntime {
    let shim = env!("CARGO_BIN_EXE_skiff-shim-runc").into();
    RuncRuntime::new(Config { state_dir: harness.scratch().join("state"), shim, runc: runc.to_owned() }).unwrap()
}

/// The arguments and the environment of each process that has a word in them.
fn running(word: &str) -> Vec<String> {
    let text = |process: &Path| {
        let parts = ["cmdline", "environ"].map(|file| fs::read(process.join(file)).unwrap_or_default());
        String::from_utf8_lossy(&parts.concat()).into_owned()
    };
    fs::read_dir("/proc").unwrap().flatten().map(|process| text(&process.path())).filter(|text| text.contains(word)).collect()
}

#[tokio::test]
async fn an_exec_that_hangs_ends_with_its_session() {
    let harness = Runc::new();
    let spec = sleeper(&harness).await;
    processes(&harness, &spec, 2).await;
    let before = script(&harness, "hangs-before", "exec sleep 1000000");
    let after = script(&harness, "hangs-after", &format!("{RUNC} \"$@\"\nsleep 1000000"));
    for (runc, count) in [(before, 2), (after, 3)] {
        let (runtime, word) = (with_runc(&harness, &runc), runc.display().to_string());
        for (tty, outlives_session) in [(false, false), (true, false), (false, true)] {
            let args = ["sleep", "1000000"].map(str::to_owned).to_vec();
            let exec = ExecSpec { args, tty, outlives_session, ..ExecSpec::default() };
            let hangs = async {
                until("runc hangs", || running(&word).iter().any(|process| process.starts_with("sleep"))).await;
                processes(&harness, &spec, count).await;
            };
            tokio::select! {
                session = runtime.exec(&spec.id, exec) => panic!("{word} does not hang: {:?}", session.err()),
                () = hangs => {}
            }
            until("nothing of it is left on the node", || running(&word).is_empty()).await;
            // Nor in the container.
            processes(&harness, &spec, 2).await;
        }
    }
    harness.runtime().remove(&spec.id).await.unwrap();
}
