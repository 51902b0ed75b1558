//! Further guests in a running container.

use std::sync::Arc;

use runtimes_battery::{Harness as _, Program, spec_of, until};
use runtimes_contract::{ContainerId, ContainerSpec, ContainerState, ExecSession, ExecSpec, Mount, Runtime, RuntimeError};
use runtimes_host::cgroup::Cgroups;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::Wasmtime;
use crate::{components, guests, wasi_0_3};

/// A container that sleeps, with programs at `/tools`.
pub struct Sleeper {
    pub harness: Wasmtime,
    pub runtime: Arc<dyn Runtime>,
    pub id: ContainerId,
}

impl Sleeper {
    pub async fn start(change: impl FnOnce(&Wasmtime, &mut ContainerSpec)) -> Self {
        let harness = Wasmtime::new();
        let names = ["cat", "echo", "filetype", "inside", "sleep", "spin", "trap"];
        let mut files: Vec<(String, Vec<u8>)> = names.iter().map(|name| (format!("{name}.wasm"), guests::module(name))).collect();
        files.push(("web.wasm".to_owned(), components::http()));
        files.push(("broken.wasm".to_owned(), b"no module".to_vec()));
        files.push(("later.wasm".to_owned(), wasi_0_3::command("", 1)));
        files.push(("service.wasm".to_owned(), components::service()));
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let mut spec = spec_of(&harness, "sleeper", Program::Sleep);
        spec.mounts.push(harness.tools(&files));
        spec.env.push(("PATH".to_owned(), "/tools".to_owned()));
        change(&harness, &mut spec);
        let runtime = harness.runtime();
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        Self { harness, runtime, id: spec.id }
    }

    pub async fn exec(&self, exec: ExecSpec) -> Result<ExecSession, RuntimeError> {
        self.runtime.exec(&self.id, exec).await
    }

    /// Runs a program to its end: exit code, stdout, stderr.
    pub async fn run(&self, args: &[&str], input: &str) -> (i32, String, String) {
        let (code, stdout, stderr) = self.pipe(args, input.as_bytes()).await;
        (code, String::from_utf8(stdout).unwrap(), stderr)
    }

    /// As [`Sleeper::run`], with bytes.
    pub async fn pipe(&self, args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
        let mut session = self.exec(ExecSpec { stdin: !input.is_empty(), ..exec(args) }).await.unwrap();
        let (stdin, mut errors) = (session.stdin.take(), session.stderr.take().unwrap());
        let write = async {
            if let Some(mut stdin) = stdin {
                stdin.write_all(input).await.unwrap();
            }
        };
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        let (_, out, err) = tokio::join!(write, session.stdout.read_to_end(&mut stdout), errors.read_to_string(&mut stderr));
        assert!(out.is_ok() && err.is_ok(), "{out:?} {err:?}");
        (session.exit.await.unwrap(), stdout, stderr)
    }

    async fn refusal(&self, args: &[&str]) -> String {
        self.exec(exec(args)).await.err().unwrap().to_string()
    }

    /// The number of processes in the container's cgroup.
    pub fn processes(&self) -> usize {
        Cgroups::detect().unwrap().group(&self.harness.cgroup("sleeper")).unwrap().pids().len()
    }

    /// Waits until that many processes are left.
    pub async fn left(&self, processes: usize) {
        until("further guests have ended", || self.processes() == processes).await;
    }

    pub async fn remove(self) {
        self.runtime.remove(&self.id).await.unwrap();
        drop(self.harness);
    }
}

pub fn exec(args: &[&str]) -> ExecSpec {
    ExecSpec { args: args.iter().map(|&arg| arg.to_owned()).collect(), ..ExecSpec::default() }
}

#[tokio::test]
async fn a_further_guest_has_arguments_input_and_an_end_of_its_own() {
    let sleeper = Sleeper::start(|_, _| {}).await;
    assert_eq!(sleeper.run(&["echo.wasm", "a", "b c"], "").await, (0, "a b c\n".into(), String::new()));
    assert_eq!(sleeper.run(&["/tools/inside.wasm"], "").await.0, 7);
    assert_eq!(sleeper.run(&["filetype.wasm"], "").await.0, 0);
    assert_eq!(sleeper.run(&["later.wasm"], "").await, (1, "at first\nand later\n".into(), String::new()));
    let much = "0123456789abcde\n".repeat(1 << 14);
    assert_eq!(sleeper.run(&["cat.wasm"], &much).await, (0, much, String::new()));
    let (code, _, stderr) = sleeper.run(&["trap.wasm"], "").await;
    assert!(code == 134 && stderr.contains("wasm `unreachable` instruction executed"), "{code} {stderr}");
    sleeper.left(1).await;
    let files: Vec<_> = std::fs::read_dir(sleeper.harness.dir().join("state/containers/sleeper")).unwrap().flatten().collect();
    assert!(!files.iter().any(|file| file.file_name().to_string_lossy().starts_with("exec-")), "{files:?}");
    sleeper.remove().await;
}

#[tokio::test]
async fn a_further_guest_has_the_files_of_its_container() {
    let sleeper = Sleeper::start(|harness, spec| {
        let (data, tool) = (harness.dir().join("data"), harness.dir().join("data/make.wasm"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(tool, guests::creating("/data", "made")).unwrap();
        std::os::unix::fs::chown(&data, Some(runtimes_wasmtime::NOBODY), None).unwrap();
        spec.mounts.push(Mount::new(data, "/data", false));
        spec.working_dir = "/data".into();
    })
    .await;
    assert_eq!(sleeper.run(&["./make.wasm"], "").await.0, 0);
    assert!(sleeper.harness.dir().join("data/made").exists());
    sleeper.remove().await;
}

#[tokio::test]
async fn what_is_no_program_is_named() {
    let sleeper = Sleeper::start(|_, _| {}).await;
    let cases = [
        ("nosuch", "exec: \"nosuch\": executable file not found in $PATH"),
        ("/nosuch.wasm", "exec: \"/nosuch.wasm\": no such file or directory"),
        ("/tools", "exec: \"/tools\": permission denied"),
        ("web.wasm", "exec: \"web.wasm\": a http component is no command"),
        ("service.wasm", "exec: \"service.wasm\": a service component is no command"),
        ("broken.wasm", "exec: \"broken.wasm\": exec format error"),
    ];
    for (name, wanted) in cases {
        let message = sleeper.refusal(&[name]).await;
        assert!(message.contains(wanted), "{name}: {message}");
    }
    sleeper.runtime.signal(&sleeper.id, 9).await.unwrap();
    sleeper.runtime.wait(&sleeper.id).await.unwrap();
    let message = sleeper.refusal(&["echo.wasm"]).await;
    assert_eq!(message, "cannot exec in a container that is not running: sleeper");
    sleeper.remove().await;
}

#[tokio::test]
async fn a_further_guest_ends_with_its_session_or_its_container() {
    let sleeper = Sleeper::start(|_, _| {}).await;
    for name in ["sleep.wasm", "spin.wasm"] {
        let session = sleeper.exec(exec(&[name])).await.unwrap();
        assert_eq!(sleeper.processes(), 2, "it is in the container's cgroup");
        drop(session);
        sleeper.left(1).await;
    }
    // One whose client has left goes on until the container ends.
    let outliving = || ExecSpec { outlives_session: true, ..exec(&["sleep.wasm"]) };
    drop(sleeper.exec(outliving()).await.unwrap());
    let watched = sleeper.exec(exec(&["spin.wasm"])).await.unwrap();
    assert_eq!(sleeper.processes(), 3);
    sleeper.runtime.signal(&sleeper.id, 9).await.unwrap();
    assert_eq!(watched.exit.await.unwrap(), 137);
    sleeper.runtime.wait(&sleeper.id).await.unwrap();
    sleeper.left(0).await;
    let listed = sleeper.runtime.list().await.unwrap();
    assert!(listed.iter().all(|one| matches!(one.state, ContainerState::Exited(_))), "{listed:?}");
    sleeper.remove().await;
}

#[tokio::test]
async fn a_terminal_has_lines_an_end_and_an_interrupt() {
    let sleeper = Sleeper::start(|_, _| {}).await;
    let on_terminal = |name: &str| ExecSpec { stdin: true, tty: true, ..exec(&[name]) };
    let mut session = sleeper.exec(on_terminal("cat.wasm")).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"hi\n").await.unwrap();
    let mut said = [0; 8];
    session.stdout.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hi\r\nhi\r\n", "the terminal's echo, then the guest's");
    stdin.write_all(b"\x04").await.unwrap();
    assert_eq!(session.exit.await.unwrap(), 0);
    assert_eq!(sleeper.exec(on_terminal("filetype.wasm")).await.unwrap().exit.await.unwrap(), 2, "it is told so");
    for name in ["cat.wasm", "spin.wasm"] {
        let mut session = sleeper.exec(on_terminal(name)).await.unwrap();
        session.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
        assert_eq!(session.exit.await.unwrap(), 130, "{name}");
    }
    sleeper.remove().await;
}
