//! What is particular to WASM: traps, complaints about modules, confinement.

use std::time::Duration;

use nix::sched::CloneFlags;
use runtimes_battery::{Harness, Program, plain_spec, spec_of};
use runtimes_contract::{ContainerSpec, ContainerState, Exit, Mount, RuntimeError, USER_NAMESPACE_IDS, User, UserNamespace};
use runtimes_host::user_namespace::Owned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::guests;
use crate::harness::Wasmtime;

/// The container of a module.
pub fn spec(harness: &Wasmtime, bytes: &[u8]) -> ContainerSpec {
    let log_path = harness.scratch().join("guest.log");
    ContainerSpec { content: harness.content(bytes), cgroup: harness.cgroup("guest"), log_path, ..plain_spec("guest") }
}

/// Runs a guest to its end; its exit and its log.
pub async fn run(harness: &Wasmtime, spec: &ContainerSpec) -> (Exit, String) {
    let runtime = harness.runtime();
    runtime.create(spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let exit = runtime.wait(&spec.id).await.unwrap();
    runtime.remove(&spec.id).await.unwrap();
    (exit, std::fs::read_to_string(&spec.log_path).unwrap())
}

#[tokio::test]
async fn a_trap_ends_with_134_and_says_where() {
    let harness = Wasmtime::new();
    let (exit, log) = run(&harness, &spec(&harness, &guests::module("trap"))).await;
    assert_eq!((exit.code, exit.signal), (134, None));
    for text in [&exit.message, &log] {
        assert!(text.contains("wasm `unreachable` instruction executed") && text.contains("deep"), "{text}");
    }
}

#[tokio::test]
async fn a_spinning_guest_stops_at_sigterm() {
    let harness = Wasmtime::new();
    let spec = spec_of(&harness, "spin", Program::Spin);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    runtime.signal(&spec.id, 15).await.unwrap();
    let exit = runtime.wait(&spec.id).await.unwrap();
    assert_eq!((exit.code, exit.signal), (143, Some(15)), "{exit:?}");
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn a_guest_that_wants_too_much_gets_an_error_and_ends_by_itself() {
    let harness = Wasmtime::new();
    let mut spec = spec(&harness, &guests::module("hog"));
    spec.resources.memory_limit_bytes = Some(32 << 20);
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!((exit.code, exit.oom_killed), (3, false), "{exit:?} {log}");
}

#[tokio::test]
async fn what_cannot_run_is_named_at_create() {
    let harness = Wasmtime::new();
    let linux = plain_spec("guest");
    let cases: &[(&[u8], &str)] = &[
        (b"#!/bin/sh\n", "not a WebAssembly binary"),
        (b"", "not a WebAssembly binary"),
        (b"\0asm\x02\0\0\0", "unknown version"),
        (&wat::parse_str("(module)").unwrap(), "does not export _start"),
        (
            &wat::parse_str("(component)").unwrap(),
            "neither wasi:cli/run, nor wasi:http/incoming-handler of WASI 0.2, nor wasi:http/handler of WASI 0.3",
        ),
        (&guests::module("bad-import"), "`env::launch_missiles`"),
        (
            &wat::parse_str(r#"(module (import "wasi_snapshot_preview1" "fd_write" (func)) (func (export "_start")))"#).unwrap(),
            "`wasi_snapshot_preview1::fd_write`",
        ),
        (
            &wat::parse_str(r#"(component (import "acme:rocket/launch@1.0.0" (instance (export "go" (func)))))"#).unwrap(),
            "`acme:rocket/launch@1.0.0`",
        ),
        (&guests::module("hello")[..60], "invalid WebAssembly"),
    ];
    let runtime = harness.runtime();
    for (bytes, wanted) in cases {
        for _ in 0..2 {
            let error = runtime.create(&spec(&harness, bytes)).await.unwrap_err();
            assert!(matches!(&error, RuntimeError::BadContent(_)), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(wanted) && !text.contains('\n'), "{wanted}: {text}");
        }
    }
    let error = runtime.create(&linux).await.unwrap_err();
    assert!(error.to_string().contains("the image holds a Linux root file system"), "{error}");
    assert!(runtime.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_shim_is_nobody_without_capabilities_in_an_empty_root() {
    let harness = Wasmtime::new();
    let spec = spec_of(&harness, "confined", Program::Sleep);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let ContainerState::Running { pid } = runtime.list().await.unwrap()[0].state else { panic!("not running") };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!([field("Uid:"), field("Gid:")], ["65534\t65534\t65534\t65534"; 2]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:"), field("Groups:")), ("1".into(), "2".into(), String::new()));
    let root: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/root")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(root, ["etc"]);
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap().lines().count(), 1);
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn mounts_are_at_their_paths_and_read_only_ones_stay_so() {
    let harness = Wasmtime::new();
    let (data, config) = (volume(&harness, "data"), volume(&harness, "config"));
    let mount = |source: &std::path::Path, target: &str, read_only| Mount::new(source, target, read_only);
    for (target, read_only, wanted) in [("/data", false, 0), ("/data", true, 69), ("/elsewhere", false, 44)] {
        let mut spec = spec(&harness, &guests::creating("/data", "made"));
        spec.mounts = vec![mount(&config, "/config", true), mount(&data, target, read_only)];
        let (exit, log) = run(&harness, &spec).await;
        // 69 is WASI's EROFS or, by the preopen's rights, 63 (EPERM).
        assert!(exit.code == wanted || (wanted == 69 && exit.code == 63), "{target} {read_only}: {exit:?} {log}");
        assert_eq!(data.join("made").exists(), wanted == 0, "{target} {read_only}");
        let _ = std::fs::remove_file(data.join("made"));
    }
}

/// systemd makes all mounts of a node shared.
#[tokio::test]
async fn what_is_mounted_in_a_container_does_not_appear_on_the_node() {
    let harness = Wasmtime::new();
    let (shared, inner) = (Mounted::at(harness.dir().join("shared")), volume(&harness, "inner"));
    nix::mount::mount(None::<&str>, &shared.0, None::<&str>, nix::mount::MsFlags::MS_SHARED, None::<&str>).unwrap();
    std::fs::create_dir(shared.0.join("inner")).unwrap();
    let mut spec = spec(&harness, &guests::creating("/data/inner", "made"));
    spec.mounts = vec![Mount::new(&shared.0, "/data", false), Mount::new(&inner, "/data/inner", false)];
    let (exit, log) = run(&harness, &spec).await;
    assert_eq!((exit.code, log.as_str()), (0, ""));
    assert!(inner.join("made").exists());
    assert_eq!(std::fs::read_dir(shared.0.join("inner")).unwrap().count(), 0, "the container's mount is on the node");
}

/// Its process has the Pod's ids of the node, and no other Pod's; its files have the ids that the spec names.
#[tokio::test]
async fn a_guest_of_a_user_namespace_has_the_ids_of_its_pod() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
    let harness = Wasmtime::new();
    assert!(harness.runtime().supports_user_namespaces(&[harness.dir()]).is_ok());
    let owned =
        Owned::make(3 * USER_NAMESPACE_IDS, CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS).unwrap();
    let in_pod = |spec: &mut ContainerSpec| {
        spec.sandbox.network = Some(owned.namespace("net"));
        spec.sandbox.ipc = Some(owned.namespace("ipc"));
        spec.sandbox.uts = Some(owned.namespace("uts"));
        spec.sandbox.user = Some(UserNamespace { path: owned.namespace("user"), first_id: 3 * USER_NAMESPACE_IDS });
    };
    let data = harness.dir().join("data");
    std::fs::create_dir(&data).unwrap();
    // Its user alone may write there.
    chown(&data, Some(1000), Some(1000)).unwrap();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
    let mut writer = spec(&harness, &guests::creating("/data", "made"));
    in_pod(&mut writer);
    writer.user = User { uid: Some(1000), gid: Some(1001), groups: vec![7] };
    writer.mounts = vec![Mount::new(&data, "/data", false)];
    let (exit, log) = run(&harness, &writer).await;
    assert_eq!(exit.code, 0, "{log}");
    let made = std::fs::metadata(data.join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (1000, 1001));
    // Without the namespace's ids on the files, it is a stranger there.
    std::fs::remove_file(data.join("made")).unwrap();
    writer.mounts = vec![Mount { ids_mapped: true, ..Mount::new(&data, "/data", false) }];
    let (exit, _) = run(&harness, &writer).await;
    assert!(exit.code != 0 && !data.join("made").exists(), "{exit:?}");

    let mut sleeper = spec_of(&harness, "sleeper", Program::Sleep);
    in_pod(&mut sleeper);
    sleeper.user = User { uid: Some(1000), gid: None, groups: vec![7] };
    let runtime = harness.runtime();
    runtime.create(&sleeper).await.unwrap();
    runtime.start(&sleeper.id).await.unwrap();
    let ContainerState::Running { pid } = runtime.list().await.unwrap()[0].state else { panic!("not running") };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!((field("Uid:"), field("Gid:"), field("Groups:")), (vec!["197608"; 4], vec!["262142"; 4], vec!["196615"]));
    assert_eq!(std::fs::metadata(&sleeper.log_path).unwrap().uid(), 197_608, "its log is its own");
    runtime.remove(&sleeper.id).await.unwrap();
    sleeper.user.groups = vec![USER_NAMESPACE_IDS];
    let refused = runtime.create(&sleeper).await.unwrap_err().to_string();
    assert!(refused.contains("has no user or group 65536"), "{refused}");
    let mut unmappable = spec(&harness, &guests::creating("/data", "made"));
    in_pod(&mut unmappable);
    unmappable.mounts = vec![Mount::new("/proc/sys", "/data", false)];
    runtime.create(&unmappable).await.unwrap();
    let refused = runtime.start(&unmappable.id).await.unwrap_err().to_string();
    assert!(refused.contains("failed to set MOUNT_ATTR_IDMAP on /proc/sys"), "{refused}");
    runtime.remove(&unmappable.id).await.unwrap();
}

/// A directory that everybody may write.
fn volume(harness: &Wasmtime, name: &str) -> std::path::PathBuf {
    let dir = harness.dir().join(name);
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    dir
}

/// A mount that ends with the test.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn at(dir: std::path::PathBuf) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        nix::mount::mount(Some("tmpfs"), &dir, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=64k")).unwrap();
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failure, something may be left on it; a second panic would end the process before the first is printed.
        if std::thread::panicking() {
            let unmounted = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
            return eprintln!("{} is unmounted: {unmounted:?}", self.0.display());
        }
        nix::mount::umount(&self.0).unwrap();
    }
}

#[tokio::test]
async fn mounts_below_a_volume_are_read_only_on_request() {
    let harness = Wasmtime::new();
    let mut spec = spec_of(&harness, "layers", Program::Sleep);
    let _below = Mounted::at(harness.dir().join("data/below"));
    let volume = |target: &str, recursive_read_only| {
        let mount = Mount::new(harness.dir().join("data"), target, true);
        Mount { recursive_read_only, ..mount }
    };
    spec.mounts = vec![volume("/plain", false), volume("/recursive", true)];
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let ContainerState::Running { pid } = runtime.list().await.unwrap()[0].state else { panic!("not running") };
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    // proc_pid_mountinfo(5): the fifth field is the path, the sixth the options.
    let right = |path: &str| {
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(path));
        line.and_then(|line| line.split(' ').nth(5)?.split(',').next()).unwrap_or_else(|| panic!("{path}: {mounts}")).to_owned()
    };
    let rights = ["/plain", "/plain/below", "/recursive", "/recursive/below"].map(right);
    assert_eq!(rights, ["ro", "rw", "ro", "ro"]);
    runtime.remove(&spec.id).await.unwrap();
}

#[tokio::test]
async fn the_working_directory_is_within_the_guests_root() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let harness = Wasmtime::new();
    let image = harness.scratch().join("image");
    let app = image.join("srv/app");
    std::fs::create_dir_all(&app).unwrap();
    for dir in [&image, &app] {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    std::fs::write(image.join("file"), "").unwrap();
    for (link, target) in [("all", "/"), ("up", "../.."), ("app", "/srv/app"), ("round", "round"), ("none", "/etc")] {
        symlink(target, image.join(link)).unwrap();
    }
    let runtime = harness.runtime();
    let volume = |working_dir: &str, read_only: bool| {
        let mut spec = spec(&harness, &guests::creating(".", "made"));
        spec.mounts = vec![Mount::new(&image, "/", read_only)];
        spec.working_dir = working_dir.into();
        spec
    };
    for (working_dir, wanted) in
        [("/..", &image), ("/all", &image), ("/up", &image), ("/all/all/app/../app", &app), ("/app", &app), ("/srv/app/", &app)]
    {
        let (exit, log) = run(&harness, &volume(working_dir, false)).await;
        assert_eq!(exit.code, 0, "{working_dir}: {exit:?} {log}");
        std::fs::remove_file(wanted.join("made")).unwrap_or_else(|error| panic!("{working_dir}: {error}"));
        let (exit, log) = run(&harness, &volume(working_dir, true)).await;
        assert!([63, 69].contains(&exit.code), "{working_dir}, which is read-only: {exit:?} {log}");
    }
    for working_dir in ["/file", "/none", "/round", "/srv/none", "/../etc"] {
        let refused = volume(working_dir, false);
        runtime.create(&refused).await.unwrap();
        let error = runtime.start(&refused.id).await.unwrap_err().to_string();
        assert!(error.contains(&format!("the working directory {working_dir} does not exist in the container")), "{error}");
        runtime.remove(&refused.id).await.unwrap();
    }
}

#[tokio::test]
async fn a_volume_at_the_root_is_the_guests_root() {
    use std::os::unix::fs::PermissionsExt;
    let harness = Wasmtime::new();
    let dir = harness.dir().join("volume");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let hosts = harness.dir().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    // The guest makes a file in the directory that it is shown as `/`.
    let guest = |path: &str| guests::creating("/", path);
    for (path, read_only, wanted) in [("made", false, 0), ("made", true, 69), ("../made", false, 63), ("etc/made", false, 44)] {
        let mut spec = spec(&harness, &guest(path));
        spec.mounts = vec![Mount::new(&dir, "/", read_only), Mount::new(&hosts, "/etc/hosts", false)];
        let (exit, log) = run(&harness, &spec).await;
        assert!(exit.code == wanted || (wanted == 69 && exit.code == 63), "{path} {read_only}: {exit:?} {log}");
        assert_eq!(dir.join("made").exists(), wanted == 0, "{path} {read_only}");
        let _ = std::fs::remove_file(dir.join("made"));
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing of ours is in the volume");
    let mut beside = spec(&harness, &guest("made"));
    beside.mounts = vec![Mount::new(&dir, "/", false), Mount::new(&hosts, "/hosts", false)];
    let runtime = harness.runtime();
    runtime.create(&beside).await.unwrap();
    let error = runtime.start(&beside.id).await.unwrap_err();
    assert!(error.to_string().contains("a volume is mounted at /, so the file /hosts of another volume cannot be"), "{error}");
    runtime.remove(&beside.id).await.unwrap();
}

#[tokio::test]
async fn a_guest_reads_what_the_one_who_is_attached_sends() {
    let harness = Wasmtime::new();
    let mut spec = spec(&harness, &guests::module("cat"));
    (spec.stdin, spec.stdin_once) = (true, true);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    let mut session = runtime.attach(&spec.id, true).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    let mut said = [0; 6];
    for line in [b"first\n", b"other\n"] {
        stdin.write_all(line).await.unwrap();
        session.stdout.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, line);
    }
    drop(stdin);
    assert_eq!(runtime.wait(&spec.id).await.unwrap().code, 0);
    assert_eq!(session.stdout.read(&mut said).await.unwrap(), 0, "output ends with the guest");
    runtime.remove(&spec.id).await.unwrap();
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    assert_eq!(log.lines().map(|line| line.rsplit(' ').next().unwrap()).collect::<Vec<_>>(), ["first", "other"]);
}

#[tokio::test]
async fn a_guest_may_have_a_terminal() {
    let harness = Wasmtime::new();
    let mut spec = spec(&harness, &guests::module("cat"));
    (spec.stdin, spec.tty) = (true, true);
    let runtime = harness.runtime();
    runtime.create(&spec).await.unwrap();
    runtime.start(&spec.id).await.unwrap();
    for text in ["first", "other"] {
        // The guest goes on when a client leaves.
        let mut session = runtime.attach(&spec.id, true).await.unwrap();
        let stdin = session.stdin.as_mut().unwrap();
        // The terminal edits the line, shows it, and gives it to the guest as a whole. Ctrl-S is a character like others.
        stdin.write_all(format!("\x13\x7f{text}x\x7f\r").as_bytes()).await.unwrap();
        let wanted = format!("^S\x08 \x08\x08 \x08{text}x\x08 \x08\r\n{text}\r\n");
        let mut said = vec![0; wanted.len()];
        session.stdout.read_exact(&mut said).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&said), wanted);
    }
    let mut session = runtime.attach(&spec.id, true).await.unwrap();
    session.stdin.as_mut().unwrap().write_all(b"last\r\x04").await.unwrap();
    assert_eq!(runtime.wait(&spec.id).await.unwrap().code, 0, "the end of the input ends the guest");
    let mut rest = String::new();
    session.stdout.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("last\r\nlast\r\n"), "{rest:?}");
    runtime.remove(&spec.id).await.unwrap();
    let log = std::fs::read_to_string(&spec.log_path).unwrap();
    assert!(log.ends_with(" stdout F last\r\n") && log.matches(" stdout F first\r\n").count() == 1, "{log:?}");
}

#[tokio::test]
async fn the_interrupt_character_of_its_terminal_stops_a_guest() {
    let harness = Wasmtime::new();
    for program in ["spin", "sleep"] {
        let mut spec = spec(&harness, &guests::module(program));
        (spec.stdin, spec.tty) = (true, true);
        let runtime = harness.runtime();
        runtime.create(&spec).await.unwrap();
        runtime.start(&spec.id).await.unwrap();
        let mut session = runtime.attach(&spec.id, true).await.unwrap();
        session.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(20), runtime.wait(&spec.id)).await.unwrap().unwrap();
        assert_eq!((exit.code, exit.signal), (130, Some(2)), "{program}");
        runtime.remove(&spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn the_output_of_a_terminal_is_logged_to_its_end() {
    let harness = Wasmtime::new();
    for name in ["long-line", "hello", "trap"] {
        let mut spec = spec(&harness, &guests::module(name));
        spec.tty = true;
        let (exit, log) = run(&harness, &spec).await;
        assert!(!log.contains(" stderr "), "both streams are the terminal: {log}");
        let text: String = log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect();
        let (code, wanted) = match name {
            "long-line" => (0, "xend"),
            "hello" => (0, "hello"),
            _ => (134, "unreachable"),
        };
        assert_eq!(exit.code, code, "{name}: {log}");
        assert!(text.contains(wanted), "{name}: {}", &text[text.len().saturating_sub(200)..]);
        std::fs::remove_file(&spec.log_path).unwrap();
    }
}

#[tokio::test]
async fn a_guest_without_stdin_reads_the_end() {
    let harness = Wasmtime::new();
    let (exit, log) = run(&harness, &spec(&harness, &guests::module("cat"))).await;
    assert_eq!((exit.code, log.as_str()), (0, ""));
}
