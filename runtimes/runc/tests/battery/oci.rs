//! What is particular to OCI containers: words of errors, execs with and without a terminal, users,
//! mounts, confinement.

use std::time::Duration;

use runtimes_battery::{Harness, Program, spec_of};
use runtimes_contract::{
    AttachSession, ContainerSpec, ContainerState, Content, ExecSession, ExecSpec, Exit, Mount, Runtime, RuntimeError, TerminalSize, User,
};
use runtimes_host::process::ProcessRef;
use runtimes_runc::{Config, RuncRuntime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::Runc;

fn script(harness: &Runc, text: &str) -> ContainerSpec {
    let mut spec = spec_of(harness, "box", Program::Hello);
    spec.args = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
    spec
}

/// Its end and its lines.
pub async fn run(harness: &Runc, spec: &ContainerSpec) -> (Exit, Vec<String>) {
    let runtime = harness.runtime();
    runtime.create(spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let exit = runtime.wait(&spec.id).await.unwrap();
    runtime.remove(&spec.id).await.unwrap();
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    (exit, log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap().to_owned()).collect())
}

pub async fn sleeper(harness: &Runc) -> ContainerSpec {
    let spec = spec_of(harness, "box", Program::Sleep);
    harness.runtime().create(&spec).await.unwrap();
    harness.runtime().start(&spec.id).await.unwrap();
    spec
}

async fn exec(harness: &Runc, spec: &ContainerSpec, text: &str, stdin: bool, tty: bool) -> ExecSession {
    let args = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
    harness.runtime().exec(&spec.id, ExecSpec { args, stdin, tty, outlives_session: false }).await.unwrap()
}

/// As `kubectl exec` has it.
async fn client_exec(harness: &Runc, spec: &ContainerSpec, text: &str, tty: bool) -> ExecSession {
    let args = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
    harness.runtime().exec(&spec.id, ExecSpec { args, stdin: true, tty, outlives_session: true }).await.unwrap()
}

/// Waits until the container has so many processes.
pub async fn processes(harness: &Runc, spec: &ContainerSpec, count: u64) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while harness.runtime().stats(&spec.id).await.unwrap().pids != count {
        assert!(tokio::time::Instant::now() < deadline, "never {count} processes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn start_failures_are_reported_in_upstreams_words() {
    let harness = Runc::new();
    let runtime = harness.runtime();
    let prefix = "OCI runtime create failed: runc create failed: unable to start container process: ";
    for (program, wanted) in [
        ("no-such-program", r#"exec: "no-such-program": executable file not found in $PATH: unknown"#),
        ("/bin/nothing", r#"exec: "/bin/nothing": stat /bin/nothing: no such file or directory: unknown"#),
        ("/etc/passwd", r#"exec: "/etc/passwd": permission denied: unknown"#),
    ] {
        let mut spec = script(&harness, "");
        spec.args = vec![program.into()];
        runtime.create(&spec).await.unwrap();
        let error = runtime.start(&spec.id).await.unwrap_err();
        assert!(matches!(&error, RuntimeError::Start(_)), "{error:?}");
        assert_eq!(error.to_string(), format!("{prefix}{wanted}"));
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_runc_is_named_with_what_to_install() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { state_dir: dir.path().into(), shim: env!("CARGO_BIN_EXE_skiff-shim-runc").into(), runc: "no-runc-here".into() };
    let error = RuncRuntime::new(config).unwrap().check().await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Missing(_)) && error.to_string().contains("apt-get install runc"), "{error}");
    Runc::new().runtime().check().await.unwrap();
}

#[tokio::test]
async fn users_mounts_and_limits_are_as_specified() {
    let harness = Runc::new();
    let shared = harness.scratch().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("note"), "from the node\n").unwrap();
    let mut spec = script(&harness, "id -u; id -g; id -G; cat /mnt/note; echo no > /mnt/note; pwd; echo $A; echo $HOSTNAME");
    spec.user = User { uid: Some(1000), gid: Some(1001), groups: vec![7] };
    spec.mounts = vec![Mount::new(shared, "/mnt", true)];
    spec.working_dir = "/made/here".into();
    spec.env = vec![("A".into(), "b c".into())];
    let (exit, said) = run(&harness, &spec).await;
    let wanted =
        ["1000", "1001", "1001 7", "from the node", "/bin/sh: can't create /mnt/note: Read-only file system", "/made/here", "b c", "pod"];
    let mut sorted = (said, wanted.map(str::to_owned).to_vec());
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!((exit.code, sorted.0), (0, sorted.1));
}

#[tokio::test]
async fn a_container_sees_itself_alone_and_cannot_mount() {
    let harness = Runc::new();
    let text = "echo $$; ls /proc | head -1; mount -t tmpfs none /tmp || echo no; echo x > /proc/sys/kernel/domainname || echo no";
    let mut spec = script(&harness, &format!("({text}) 2>/dev/null"));
    spec.security.capabilities_add = vec!["SYS_ADMIN".into()];
    let (exit, said) = run(&harness, &spec).await;
    assert_eq!((exit.code, said.join(" ").as_str()), (0, "1 1 no"), "one who may mount");
    std::fs::remove_file(&spec.log_path).unwrap();
    spec.security.capabilities_add.clear();
    let (exit, said) = run(&harness, &spec).await;
    assert_eq!((exit.code, said.join(" ").as_str()), (0, "1 1 no no"));
}

/// What runc hides with the container's own `/dev/null` is seen when that leads elsewhere: a volume of the container, put
/// there by its path or by a link of its image, is enough.
#[tokio::test]
async fn a_container_that_would_see_the_kernels_files_does_not_run() {
    let harness = Runc::new();
    let volume = harness.scratch().join("volume");
    std::fs::create_dir(&volume).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/core_pattern", volume.join("null")).unwrap();
    for target in ["/dev", "/elsewhere", "/far/away/elsewhere"] {
        let mut spec = script(&harness, "ls -l /proc/timer_list /proc/keys; head -c 100 /proc/timer_list");
        if let Content::Linux { rootfs } = &spec.content {
            std::fs::create_dir_all(rootfs.join("far/away")).unwrap();
            for link in ["elsewhere", "far/away/elsewhere"] {
                std::os::unix::fs::symlink("/dev", rootfs.join(link)).unwrap();
            }
        }
        spec.mounts = vec![Mount::new(&volume, target, false)];
        let runtime = harness.runtime();
        runtime.create(&spec).await.unwrap();
        let error = runtime.start(&spec.id).await.expect_err(target);
        assert!(error.to_string().contains("is not hidden from the container"), "{target}: {error}");
        runtime.remove(&spec.id).await.unwrap();
        std::fs::remove_file(&spec.log_path).unwrap();
    }
}

/// Descriptors that runc has open while it makes a container lead to the node (CVE-2024-21626).
#[tokio::test]
async fn no_working_directory_leads_to_the_node() {
    let harness = Runc::new();
    let runtime = harness.runtime();
    for number in 3..24 {
        let mut spec =
            script(&harness, "ls -d /proc/self/cwd/../../../../../../etc/debian_version /proc/self/cwd/state 2>/dev/null; echo none");
        spec.working_dir = format!("/proc/self/fd/{number}").into();
        runtime.create(&spec).await.unwrap();
        if runtime.start(&spec.id).await.is_ok() {
            runtime.wait(&spec.id).await.unwrap();
            let log = std::fs::read_to_string(&spec.log_path).unwrap();
            assert!(log.lines().count() == 1 && log.contains("none"), "descriptor {number}: {log}");
        }
        runtime.remove(&spec.id).await.unwrap();
        std::fs::remove_file(&spec.log_path).unwrap();
    }
}

#[tokio::test]
async fn a_terminal_container_logs_its_terminal() {
    let harness = Runc::new();
    let mut spec = script(&harness, "tty; stty size");
    spec.tty = true;
    let (exit, said) = run(&harness, &spec).await;
    assert_eq!((exit.code, said[0].trim_end()), (0, "/dev/pts/0"), "{said:?}");
}

#[tokio::test]
async fn stdin_is_empty_unless_it_stays_open() {
    let harness = Runc::new();
    let (exit, said) = run(&harness, &script(&harness, "cat; echo end")).await;
    assert_eq!((exit.code, said), (0, vec!["end".to_owned()]));
    let mut open = script(&harness, "cat");
    open.stdin = true;
    let runtime = harness.runtime();
    runtime.create(&open).await.unwrap();
    runtime.start(&open.id).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), runtime.wait(&open.id)).await.is_err());
    runtime.remove(&open.id).await.unwrap();
}

#[tokio::test]
async fn exec_pipes_stdin_through_and_closes_it_half() {
    let harness = Runc::new();
    let spec = sleeper(&harness).await;
    let mut session = exec(&harness, &spec, "cat; echo done >&2; exit 3", true, false).await;
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"one\ntwo\n").await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    session.stdout.read_to_string(&mut out).await.unwrap();
    session.stderr.unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str(), session.exit.await.unwrap()), ("one\ntwo\n", "done\n", 3));
    let left: Vec<_> =
        std::fs::read_dir(harness.scratch().join("state/containers/box")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with("exec-")), "{left:?}");
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn exec_in_a_terminal_is_interactive_and_resizable() {
    let harness = Runc::new();
    let spec = sleeper(&harness).await;
    let mut session = exec(&harness, &spec, "tty; read line; stty size; echo got $line; exit 4", true, true).await;
    assert!(session.stderr.is_none());
    session.resize.as_ref().unwrap().send(TerminalSize { width: 101, height: 37 }).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    // The size is set by a task; the answer below shows when.
    tokio::time::sleep(Duration::from_millis(100)).await;
    stdin.write_all(b"words\n").await.unwrap();
    let mut out = String::new();
    session.stdout.read_to_string(&mut out).await.unwrap();
    assert_eq!(session.exit.await.unwrap(), 4);
    assert!(out.contains("/dev/pts/") && out.contains("37 101\r\n") && out.contains("got words\r\n"), "{out:?}");
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_dropped_exec_is_killed() {
    let harness = Runc::new();
    let spec = sleeper(&harness).await;
    // The shell and what it waits for.
    processes(&harness, &spec, 2).await;
    let session = exec(&harness, &spec, "exec sleep 1000", false, false).await;
    processes(&harness, &spec, 3).await;
    drop(session);
    processes(&harness, &spec, 2).await;
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_command_of_a_client_that_left_reads_what_was_sent_and_runs_on() {
    let harness = Runc::new();
    let shared = harness.scratch().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut spec = spec_of(&harness, "box", Program::Sleep);
    spec.mounts.push(Mount::new(shared.clone(), "/mnt", false));
    harness.runtime().create(&spec).await.unwrap();
    harness.runtime().start(&spec.id).await.unwrap();
    for (tty, name) in [(false, "pipes"), (true, "terminal")] {
        // The command writes to a reader that is gone, and still reaches its last line.
        let text = format!("cat > /mnt/{name}; echo out; echo err >&2; sleep 0.3; echo more; echo end >> /mnt/{name}");
        let mut session = client_exec(&harness, &spec, &text, tty).await;
        session.stdin.as_mut().unwrap().write_all(b"one\ntwo\n").await.unwrap();
        drop(session);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while std::fs::read_to_string(shared.join(name)).ok().as_deref() != Some("one\ntwo\nend\n") {
            let now = std::fs::read_to_string(shared.join(name));
            assert!(tokio::time::Instant::now() < deadline, "{name}: {now:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    processes(&harness, &spec, 2).await;
    harness.runtime().remove(&spec.id).await.unwrap();
}

/// Each has a process on the node beside it, which no limit of the container holds.
#[tokio::test]
async fn commands_of_clients_that_left_are_counted() {
    let harness = Runc::new();
    let spec = sleeper(&harness).await;
    let args = ["/bin/sh", "-c", "read end"].map(str::to_owned).to_vec();
    let exec = |outlives_session| ExecSpec { args: args.clone(), stdin: true, tty: false, outlives_session };
    let (mut sessions, mut refused) = (Vec::new(), None);
    while refused.is_none() && sessions.len() < 100 {
        match harness.runtime().exec(&spec.id, exec(true)).await {
            Ok(session) => sessions.push(session),
            Err(error) => refused = Some(error.to_string()),
        }
    }
    assert_eq!(sessions.len(), 64);
    assert!(refused.is_some_and(|why| why.contains("64 commands run in container box already")));
    drop(harness.runtime().exec(&spec.id, exec(false)).await.unwrap());
    // A client that leaves ends the input of its command, which ends by that.
    drop(sessions.pop());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while harness.runtime().exec(&spec.id, exec(true)).await.map(drop).is_err() {
        assert!(tokio::time::Instant::now() < deadline, "a place is given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn exec_errors_are_reported_and_leave_the_container_alone() {
    let harness = Runc::new();
    let spec = sleeper(&harness).await;
    let missing = ExecSpec { args: vec!["nothing".into()], ..ExecSpec::default() };
    let Err(error) = harness.runtime().exec(&spec.id, missing.clone()).await else { panic!("it ran") };
    let wanted = r#"OCI runtime exec failed: exec failed: unable to start container process: exec: "nothing": executable file not found in $PATH: unknown"#;
    assert_eq!(error.to_string(), wanted);
    // A signal's number is reported as shells do.
    let killed = exec(&harness, &spec, "kill -9 $$", false, false).await;
    assert_eq!(killed.exit.await.unwrap(), 137);
    harness.runtime().signal(&spec.id, 9).await.unwrap();
    harness.runtime().wait(&spec.id).await.unwrap();
    assert!(harness.runtime().exec(&spec.id, missing).await.is_err());
    harness.runtime().remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn wasm_content_is_rejected() {
    let harness = Runc::new();
    let mut spec = script(&harness, "");
    spec.content = Content::Wasm { module: "/m.wasm".into(), digest: "sha256:0".into() };
    assert!(matches!(harness.runtime().create(&spec).await, Err(RuntimeError::BadContent(_))));
    assert!(harness.runtime().list().await.unwrap().is_empty());
}

/// Starts a shell whose stdin is kept open, and attaches to it.
async fn attached(harness: &Runc, text: &str, tty: bool, once: bool) -> (ContainerSpec, AttachSession) {
    let mut spec = script(harness, text);
    (spec.stdin, spec.stdin_once, spec.tty) = (true, once, tty);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let session = runtime.attach(&spec.id, true).await.unwrap();
    (spec, session)
}

async fn ended(harness: &Runc, spec: &ContainerSpec) -> i32 {
    let exit = harness.runtime().wait(&spec.id).await.unwrap();
    harness.runtime().remove(&spec.id).await.unwrap();
    exit.code
}

#[tokio::test]
async fn who_attaches_talks_to_the_containers_own_process() {
    let harness = Runc::new();
    let (spec, mut session) = attached(&harness, "while read x; do echo got $x; echo no $x >&2; done; exit 3", false, true).await;
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"one\n").await.unwrap();
    let (mut out, mut err) = ([0; 8], [0; 7]);
    session.stdout.read_exact(&mut out).await.unwrap();
    session.stderr.as_mut().unwrap().read_exact(&mut err).await.unwrap();
    assert_eq!((&out, &err), (b"got one\n", b"no one\n"));
    // It is the only one that stdin is for.
    drop(stdin);
    assert_eq!(ended(&harness, &spec).await, 3);
    assert_eq!(session.stdout.read(&mut out).await.unwrap(), 0);
}

#[tokio::test]
async fn stdin_that_is_not_for_one_alone_outlives_who_attached() {
    let harness = Runc::new();
    let (spec, session) = attached(&harness, "read x; read y; echo $x $y; exit 4", false, false).await;
    let mut first = session;
    first.stdin.as_mut().unwrap().write_all(b"one\n").await.unwrap();
    first.stdin.as_mut().unwrap().flush().await.unwrap();
    // Of what a client sends before it leaves nothing is lost, and nothing ends.
    first.stdin = None;
    drop(first);
    let mut second = harness.runtime().attach(&spec.id, true).await.unwrap();
    second.stdin.as_mut().unwrap().write_all(b"two\n").await.unwrap();
    let mut said = String::new();
    second.stdout.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "one two\n");
    assert_eq!(ended(&harness, &spec).await, 4);
}

#[tokio::test]
async fn a_terminal_is_joined_and_resized() {
    let harness = Runc::new();
    // Input and size are sent on different paths: either may arrive first. Without a size stty prints nothing.
    let script = "read x; until [ \"$(stty size 2>/dev/null)\" = '31 97' ]; do :; done; stty size; exit 5";
    let (spec, mut session) = attached(&harness, script, true, false).await;
    assert!(session.stderr.is_none());
    session.resize.as_ref().unwrap().send(TerminalSize { width: 97, height: 31 }).await.unwrap();
    session.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    let mut said = String::new();
    session.stdout.read_to_string(&mut said).await.unwrap();
    assert!(said.ends_with("31 97\r\n"), "{said:?}");
    assert_eq!(ended(&harness, &spec).await, 5);
}

/// runc reads its state before it deletes a container. The node frees a Pod whatever runc can read.
#[tokio::test]
async fn a_container_with_torn_state_is_freed_all_the_same() {
    for (file, content) in [
        ("runc/box/state.json", ""),
        ("runc/box/state.json", "{\"id\":\"box\","),
        ("runc/box/state.json", "\0\0\0\0"),
        ("containers/box/spec.json", ""),
        ("containers/box/pid", "shim -1 0\ninit 0 0\n"),
        ("containers/box/exit", "\0"),
    ] {
        let harness = Runc::new();
        let spec = sleeper(&harness).await;
        let state = harness.scratch().join("state");
        let status = harness.runtime().list().await.unwrap().remove(0);
        let ContainerState::Running { pid } = status.state else { panic!("{status:?}") };
        let init = ProcessRef::read(pid).unwrap();
        std::fs::write(state.join(file), content).unwrap();
        let runtime = harness.reopened();
        assert_eq!(runtime.list().await.unwrap().len(), 1, "{file}");
        runtime.remove(&spec.id).await.unwrap();
        assert!(!init.is_alive(), "{file}");
        assert_eq!(runtime.list().await.unwrap(), [], "{file}");
        for left in ["runc/box", "containers/box"] {
            assert!(!state.join(left).exists(), "{file}: {left}");
        }
        runtime.remove(&spec.id).await.unwrap();
    }
}

/// A container that forks faster than it is killed, and one that is frozen.
#[tokio::test]
async fn what_does_not_want_to_end_is_ended() {
    let harness = Runc::new();
    let forks = "fork() { while :; do sleep 1000 & done; }; fork & fork & fork & wait";
    let mut spec = script(&harness, forks);
    spec.resources.pids_max = Some(300);
    harness.runtime().create(&spec).await.unwrap();
    harness.runtime().start(&spec.id).await.unwrap();
    harness.runtime().remove(&spec.id).await.unwrap();
    assert_eq!(harness.runtime().list().await.unwrap(), []);

    let spec = sleeper(&harness).await;
    let root = harness.scratch().join("state/runc");
    let paused = std::process::Command::new("/usr/sbin/runc").arg("--root").arg(&root).args(["pause", &spec.id.0]).status().unwrap();
    assert!(paused.success());
    harness.runtime().remove(&spec.id).await.unwrap();
    assert_eq!(harness.runtime().list().await.unwrap(), []);
}
