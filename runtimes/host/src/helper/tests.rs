//! Real processes: the test program is started again and serves before its tests begin.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::process::ProcessRef;

/// What a test asks of the process.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Echo(String),
    Sum,
    Memory,
    Spin,
    Sleep,
    Panic,
    Overflow,
    File,
    Escape(u16),
    Own,
    Refuse,
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_TESTS: extern "C" fn() = before_tests;

/// The C library has given the arguments to the standard library by now.
extern "C" fn before_tests() {
    match std::env::args().nth(1).as_deref() {
        Some("serve-files") => serve(Rights::Files, answer),
        Some("serve-memory") => serve(Rights::Memory, answer),
        _ => {}
    }
}

fn answer(ask: Ask, mut files: Vec<File>) -> Result<String, Fault> {
    match ask {
        Ask::Echo(text) => Ok(text),
        Ask::Sum => {
            let mut text = String::new();
            for file in &mut files {
                file.read_to_string(&mut text).map_err(|error| Fault::System(error.to_string()))?;
            }
            Ok(text)
        }
        Ask::Memory => {
            let mut all = Vec::new();
            loop {
                all.push(vec![1_u8; 1 << 20]);
                std::hint::black_box(&all);
            }
        }
        Ask::Spin => loop {
            std::hint::spin_loop();
        },
        Ask::Sleep => {
            #[expect(clippy::disallowed_methods, reason = "what is tested is that it is ended")]
            std::thread::sleep(Duration::from_secs(1_000));
            Ok(String::new())
        }
        Ask::Panic => panic!("the input made it"),
        Ask::Overflow => Ok(deep(u64::MAX).to_string()),
        Ask::File => {
            let written = File::create("/big").and_then(|mut file| {
                for _ in 0..64 {
                    file.write_all(&[0; 1 << 20])?;
                }
                Ok(())
            });
            written.map(|()| String::new()).map_err(|error| Fault::Limit(error.to_string()))
        }
        Ask::Escape(port) => Ok(escape(port)),
        Ask::Own => {
            File::create("/own")
                .and_then(|_| std::os::unix::fs::chown("/own", Some(1234), Some(5678)))
                .map_err(|error| Fault::System(error.to_string()))?;
            Ok(String::new())
        }
        Ask::Refuse => Err(Fault::Content("nothing of sense".to_owned())),
    }
}

#[expect(unconditional_recursion, reason = "the stack's end is what is tested")]
fn deep(left: u64) -> u64 {
    std::hint::black_box([left; 1_000]);
    deep(left - 1) + 1
}

/// What of the machine can be reached; each line is a hole.
fn escape(port: u16) -> String {
    let mut holes = Vec::new();
    for path in ["/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/../../../etc/passwd", "/sys/fs/cgroup"] {
        if std::fs::metadata(path).is_ok() {
            holes.push(path.to_owned());
        }
    }
    if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
        holes.push("the network".to_owned());
    }
    if std::os::unix::net::UnixStream::pair().is_ok() {
        holes.push("a socket".to_owned());
    }
    if std::process::Command::new("/proc/self/exe").spawn().is_ok() {
        holes.push("a process".to_owned());
    }
    // SAFETY: these take integers and null pointers, and make nothing that the process uses afterwards.
    let calls = unsafe {
        [
            ("unshare", libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER)),
            ("mount", libc::syscall(libc::SYS_mount, c"none".as_ptr(), c"/".as_ptr(), c"tmpfs".as_ptr(), 0, 0)),
            ("ptrace", libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0)),
            ("bpf", libc::syscall(libc::SYS_bpf, 0, 0, 0)),
            ("keyctl", libc::syscall(libc::SYS_keyctl, 0, 0)),
            ("setuid", libc::syscall(libc::SYS_setuid, 0)),
            ("mknod", libc::syscall(libc::SYS_mknodat, libc::AT_FDCWD, c"/null".as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 3))),
            ("kill", libc::syscall(libc::SYS_kill, -1, 0)),
            ("fork", libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0)),
            ("chroot", libc::syscall(libc::SYS_chroot, c"/".as_ptr())),
            ("io_uring", libc::syscall(libc::SYS_io_uring_setup, 1, 0)),
        ]
    };
    holes.extend(calls.iter().filter(|(_, result)| *result >= 0).map(|(name, _)| (*name).to_owned()));
    holes.join(", ")
}

const BOUNDS: Bounds =
    Bounds { memory_bytes: 128 << 20, threads: 4, cpu: Duration::from_secs(60), wall: Duration::from_secs(60), file_bytes: 16 << 20 };

fn helper(rights: &str) -> Helper {
    Helper::new(std::env::current_exe().expect("a program"), &[rights])
}

async fn ask(helper: &Helper, root: &std::path::Path, bounds: Bounds, question: Ask) -> Result<String, HelperError> {
    helper.run(Job { root, bounds, question, files: Vec::new() }).await
}

#[tokio::test]
async fn questions_are_answered_with_the_files_that_come_along() {
    let dir = tempfile::tempdir().expect("a directory");
    let long = "x".repeat(200_000);
    for rights in ["serve-files", "serve-memory"] {
        let answer = ask(&helper(rights), dir.path(), BOUNDS, Ask::Echo(long.clone())).await.expect("an answer");
        assert!(answer == long, "{rights}");
        std::fs::write(dir.path().join("a"), "one ").expect("written");
        std::fs::write(dir.path().join("b"), "two").expect("written");
        let files = ["a", "b"].map(|name| OwnedFd::from(File::open(dir.path().join(name)).expect("opens"))).into();
        let job = Job { root: dir.path(), bounds: BOUNDS, question: Ask::Sum, files };
        assert_eq!(helper(rights).run::<_, String>(job).await.expect("an answer"), "one two", "{rights}");
    }
}

#[tokio::test]
async fn what_an_input_may_cost_is_bounded_and_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let short = Bounds { wall: Duration::from_secs(1), ..BOUNDS };
    let busy = Bounds { cpu: Duration::from_secs(1), ..BOUNDS };
    let grouped = format!("skiff-test-helper-{}", std::process::id());
    let in_cgroup = helper("serve-memory").in_cgroup(&grouped).expect("cgroups");
    for (helper, bounds, question, wanted) in [
        (helper("serve-memory"), BOUNDS, Ask::Memory, "it takes more than 128 MiB of memory"),
        (in_cgroup.clone(), BOUNDS, Ask::Memory, "it takes more than 128 MiB of memory"),
        (helper("serve-files"), busy, Ask::Spin, "it takes more than 1 s of CPU time"),
        (helper("serve-memory"), short, Ask::Sleep, "it takes longer than 1 s"),
        (helper("serve-memory"), BOUNDS, Ask::Panic, "the process that does it failed: the input made it"),
        (helper("serve-memory"), BOUNDS, Ask::Overflow, "the process that does it failed: "),
        (helper("serve-files"), BOUNDS, Ask::File, "File too large"),
        (helper("serve-files"), BOUNDS, Ask::Refuse, "nothing of sense"),
    ] {
        let what = format!("{question:?}");
        let error = ask(&helper, dir.path(), bounds, question).await.expect_err(&what);
        assert!(error.to_string().contains(wanted) && error.is_inputs_fault(), "{what}: {error:?}");
    }
    let left = in_cgroup.cgroups.as_ref().map(|(cgroups, parent)| cgroups.group(parent).expect("a path").children());
    assert_eq!(left, Some(Default::default()), "the group is gone before the answer");
    in_cgroup.cgroups.expect("it has").0.group(&grouped).expect("a path").remove_tree().expect("removed");
}

#[tokio::test]
async fn nothing_of_the_machine_is_in_reach() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    for rights in ["serve-files", "serve-memory"] {
        let dir = tempfile::tempdir().expect("a directory");
        let holes = ask(&helper(rights), dir.path(), BOUNDS, Ask::Escape(port)).await.expect("an answer");
        assert_eq!(holes, "", "{rights}");
    }
}

#[tokio::test]
async fn files_are_made_only_by_who_may_make_them() {
    let dir = tempfile::tempdir().expect("a directory");
    ask(&helper("serve-files"), dir.path(), BOUNDS, Ask::Own).await.expect("made");
    let made = std::fs::metadata(dir.path().join("own")).expect("is there");
    assert_eq!((made.uid(), made.gid()), (1234, 5678));
    let error = ask(&helper("serve-memory"), dir.path(), BOUNDS, Ask::Own).await.expect_err("nothing can be made");
    assert!(!error.is_inputs_fault(), "{error}");
}

#[tokio::test]
async fn a_run_that_nobody_waits_for_is_ended_and_its_group_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let parent = format!("skiff-test-helper-drop-{}", std::process::id());
    let helper = helper("serve-memory").in_cgroup(&parent).expect("cgroups");
    let group = helper.cgroups.clone().expect("it has").0.group(&parent).expect("a path");
    let (running, root) = (helper.clone(), dir.path().to_owned());
    let run = tokio::spawn(async move { ask(&running, &root, BOUNDS, Ask::Sleep).await });
    eventually(|| group.pids().len() == 2).await;
    run.abort();
    eventually(|| group.pids().is_empty() && group.children().is_empty()).await;
    group.remove_tree().expect("removed");
}

#[tokio::test]
async fn work_that_can_wait_has_the_least_weight_beside_all_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let parent = format!("skiff-test-helper-weight-{}", std::process::id());
    let helper = helper("serve-memory").in_cgroup(&parent).expect("cgroups").with_low_priority();
    let cgroups = helper.cgroups.clone().expect("it has").0;
    let group = cgroups.group(&format!("{parent}-low")).expect("a path");
    let (running, root) = (helper.clone(), dir.path().to_owned());
    let run = tokio::spawn(async move { ask(&running, &root, BOUNDS, Ask::Sleep).await });
    eventually(|| group.pids().len() == 2).await;
    for pid in group.pids() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        // The 19th field; the second one, the name, is in parentheses.
        let nice = stat.rsplit(')').next().expect("fields").split_whitespace().nth(16);
        assert_eq!(nice, Some("19"), "{stat}");
    }
    let weights = cgroups.roots().into_iter().map(|root| root.join(group.path()));
    let weights = weights.flat_map(|dir| ["cpu.shares", "cpu.weight"].map(|file| std::fs::read_to_string(dir.join(file)).ok()));
    let weights: Vec<String> = weights.flatten().map(|text| text.trim().to_owned()).collect();
    assert!(!weights.is_empty() && weights.iter().all(|weight| ["1", "2"].contains(&weight.as_str())), "{weights:?}");
    run.abort();
    eventually(|| group.pids().is_empty() && group.children().is_empty()).await;
    group.remove_tree().expect("removed");
}

/// What a killed starter left is removed, also of low priority, and also when another process has the pid now.
#[tokio::test]
async fn groups_of_starters_that_have_ended_are_removed() {
    let mut child = std::process::Command::new("true").spawn().expect("starts");
    let ended = ProcessRef::read(child.id().cast_signed()).expect("a process");
    child.wait().expect("ends");
    let living = ProcessRef::current().expect("a process");
    let reused = ProcessRef { start_ticks: living.start_ticks + 1, ..living.clone() };
    let of_earlier_version = living.pid.to_string();
    let starters = [living.encode_name(), ended.encode_name(), reused.encode_name(), of_earlier_version];
    let parent = format!("skiff-test-helper-clear-{}", std::process::id());
    let helper = helper("serve-memory").in_cgroup(&parent).expect("cgroups");
    let cgroups = helper.cgroups.clone().expect("it has").0;
    for parent in [parent.clone(), format!("{parent}-low")] {
        let group = cgroups.group(&parent).expect("a path");
        for starter in &starters {
            let left = cgroups.group(&format!("{parent}/helper-{starter}-0")).expect("a path");
            left.create(&runtimes_contract::Resources::default()).expect("made");
        }
        helper.clear().expect("cleared");
        assert_eq!(group.children().into_iter().collect::<Vec<_>>(), [format!("helper-{}-0", living.encode_name())], "{parent}");
        group.remove_tree().expect("removed");
    }
}

/// Without a cgroup only the kernel ends the second process with the first.
#[tokio::test]
async fn the_work_ends_with_a_first_process_that_is_killed() {
    for rights in ["serve-files", "serve-memory"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (helper, root) = (helper(rights), dir.path().to_owned());
        let first = || only_child(std::process::id(), "serve-");
        assert_eq!(first(), None);
        let run = tokio::spawn(async move { ask(&helper, &root, BOUNDS, Ask::Sleep).await });
        eventually(|| first().is_some_and(|first| only_child(first, "").is_some())).await;
        let worker = first().and_then(|first| only_child(first, "")).expect("it works");
        let worker = ProcessRef::read(worker.cast_signed()).expect("it works");
        // It sleeps only when it has given up its rights.
        eventually(|| std::fs::read_to_string(format!("/proc/{}/status", worker.pid)).is_ok_and(|status| status.contains("Seccomp:\t2")))
            .await;
        run.abort();
        eventually(|| !worker.is_alive()).await;
    }
}

/// A child of a process, by a word in its command line.
fn only_child(parent: u32, word: &str) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).ok()?;
    let children = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    children.into_iter().find(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(word)))
}

#[tokio::test]
async fn the_work_ends_with_whoever_started_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket");
    let program = std::env::current_exe().expect("a program");
    let mut first = std::process::Command::new(program).arg("serve-memory").stdin(OwnedFd::from(theirs)).spawn().expect("starts");
    let envelope = Envelope { root: dir.path().to_owned(), bounds: BOUNDS, question: Ask::Sleep };
    writeln!(&ours, "{}", serde_json::to_string(&envelope).expect("JSON")).expect("sent");
    let children = format!("/proc/{0}/task/{0}/children", first.id());
    let worker = || std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
    eventually(|| !worker().is_empty()).await;
    let worker = PathBuf::from("/proc").join(worker());
    // As by a kill of the starter: its end of the socket is closed.
    drop(ours);
    assert_eq!(first.wait().expect("ends").code(), Some(exit::WALL));
    eventually(|| !worker.exists()).await;
}

async fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition does not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn sizes_read_well() {
    for (bytes, wanted) in [(100, "100 bytes"), (512 << 20, "512 MiB"), (1_536 << 20, "1536 MiB"), (2 << 30, "2 GiB")] {
        assert_eq!(size(bytes), wanted);
    }
}
