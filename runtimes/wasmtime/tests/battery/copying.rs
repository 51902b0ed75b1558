//! The programs by which `kubectl cp` copies files to and from a container that has no `tar`.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runtimes_contract::{ExecSpec, Mount};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use crate::exec::{Sleeper, exec};
use crate::guests;

/// A container with a volume at `/data` that its user may write, and a read-only one at `/fixed`.
async fn container() -> (Sleeper, PathBuf) {
    let sleeper = Sleeper::start(|harness, spec| {
        for (name, read_only) in [("data", false), ("fixed", true)] {
            let dir = harness.dir().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::os::unix::fs::chown(&dir, Some(runtimes_wasmtime::NOBODY), None).unwrap();
            spec.mounts.push(Mount::new(dir, format!("/{name}"), read_only));
        }
        spec.working_dir = "/data".into();
    })
    .await;
    let data = sleeper.harness.dir().join("data");
    (sleeper, data)
}

/// Runs the machine's tar in a directory.
fn system_tar(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut tar = Command::new("tar");
    let mut tar = tar.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = tar.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = tar.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success(), "{args:?}");
    output.stdout
}

/// The paths below a directory, with kind, mode, and content or target.
fn listing(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let what = if metadata.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                pending.push(path.clone());
                format!("{:o} directory", metadata.permissions().mode() & 0o777)
            } else {
                let bytes = std::fs::read(&path).unwrap();
                format!("{:o} {} {}", metadata.permissions().mode() & 0o777, bytes.len(), hex(&bytes))
            };
            lines.push(format!("{} {what}", path.strip_prefix(dir).unwrap().display()));
        }
    }
    lines.sort();
    lines
}

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn write(path: PathBuf, bytes: &[u8], mode: u32) {
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_tree_goes_into_a_container_and_out_of_it_unchanged() {
    let (sleeper, data) = container().await;
    let from = tempfile::tempdir().unwrap();
    let (tree, long) = (from.path().join("tree"), "n".repeat(200));
    std::fs::create_dir_all(tree.join("empty")).unwrap();
    std::fs::create_dir_all(tree.join(&long).join(&long)).unwrap();
    write(tree.join("large"), &(0..1 << 20).flat_map(u32::to_le_bytes).collect::<Vec<u8>>(), 0o640);
    write(tree.join("none"), b"", 0o444);
    write(tree.join(&long).join(&long).join("run.sh"), b"#!/bin/sh\n", 0o755);
    symlink("../large", tree.join("empty/link")).unwrap();
    symlink("/nowhere", tree.join("absolute")).unwrap();

    let archive = system_tar(from.path(), &["cf", "-", "tree"], b"");
    let (code, _, stderr) = sleeper.pipe(&["tar", "-xmf", "-", "-C", "/data"], &archive).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(listing(&data.join("tree")), listing(&tree));
    // Again, over what is there.
    assert_eq!(sleeper.pipe(&["tar", "xf", "-"], &archive).await.0, 0);
    assert_eq!(listing(&data.join("tree")), listing(&tree));
    let modified = |path: PathBuf| path.metadata().unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(modified(data.join("tree/large")), modified(tree.join("large")));

    for args in [["tar", "cf", "-", "/data/tree"], ["tar", "cf", "-", "../data/tree"]] {
        let (code, archive, stderr) = sleeper.pipe(&args, b"").await;
        assert_eq!((code, stderr.as_str()), (0, ""));
        let to = tempfile::tempdir().unwrap();
        system_tar(to.path(), &["-xpf", "-"], &archive);
        assert_eq!(listing(&to.path().join("data/tree")), listing(&tree));
    }
    sleeper.remove().await;
}

#[tokio::test]
async fn no_archive_writes_where_the_guest_could_not() {
    let (sleeper, data) = container().await;
    let outside = sleeper.harness.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, kind: tar::EntryType, target: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6777);
        header.set_size(if kind == tar::EntryType::Regular { 1 } else { 0 });
        // As it is: the library writes no such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        archive.append(&header, if kind == tar::EntryType::Regular { &b"x"[..] } else { b"" }).unwrap();
    };
    let outside_path = outside.to_str().unwrap();
    add("../outside/a", tar::EntryType::Regular, "");
    add(&format!("{outside_path}/b"), tar::EntryType::Regular, "");
    add("out", tar::EntryType::Symlink, outside_path);
    add("out/c", tar::EntryType::Regular, "");
    add("up", tar::EntryType::Symlink, "../../../outside");
    add("up/d", tar::EntryType::Regular, "");
    add("hard", tar::EntryType::Link, "../outside");
    add("null", tar::EntryType::Char, "");
    add("pipe", tar::EntryType::Fifo, "");
    add("fine", tar::EntryType::Regular, "");
    let archive = archive.into_inner().unwrap();

    let (code, _, stderr) = sleeper.pipe(&["tar", "-xf", "-", "-C", "/data"], &archive).await;
    assert_eq!(code, 2, "{stderr}");
    let complaints: Vec<&str> = stderr.lines().map(|line| line.strip_prefix("tar: ").unwrap()).collect();
    let wanted = [
        "../outside/a: Member name contains '..'",
        "out/c: a path led outside of the filesystem",
        "up/d: a path led outside of the filesystem",
        "hard: Member name contains '..'",
        "null: not a file, a directory or a link; ignored",
        "pipe: not a file, a directory or a link; ignored",
    ];
    assert_eq!(complaints, wanted);
    assert!(listing(&outside).is_empty(), "{:?}", listing(&outside));
    assert_eq!(data.join("fine").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    // The absolute one is below the directory that was named.
    assert!(data.join(outside_path.trim_start_matches('/')).join("b").exists());
    sleeper.remove().await;
}

#[tokio::test]
async fn what_cannot_be_copied_is_named() {
    let (sleeper, data) = container().await;
    write(data.join("secret"), b"x", 0o600);
    write(data.join("open"), b"x", 0o644);
    nix::unistd::mkfifo(&data.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (code, archive, stderr) = sleeper.pipe(&["tar", "cf", "-", ".", "/nowhere", "gone"], b"").await;
    let wanted = [
        "tar: ./pipe: not a file, a directory or a link; ignored",
        "tar: ./secret: Permission denied",
        "tar: /nowhere: No such file or directory",
        "tar: gone: No such file or directory",
    ];
    assert_eq!((code, stderr.lines().collect::<Vec<_>>()), (2, wanted.to_vec()));
    let to = tempfile::tempdir().unwrap();
    system_tar(to.path(), &["xf", "-"], &archive);
    assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 1, "the readable file");

    let archive = system_tar(&data, &["cf", "-", "open"], b"");
    let (code, _, stderr) = sleeper.pipe(&["tar", "xmf", "-", "-C", "/fixed"], &archive).await;
    assert_eq!((code, stderr.as_str()), (2, "tar: open: Read-only file system\n"));
    let (code, _, stderr) = sleeper.pipe(&["tar", "xmf", "-"], &archive[..600]).await;
    assert_eq!((code, stderr.as_str()), (2, "tar: archive: unexpected EOF during skip\n"));
    let (code, _, stderr) = sleeper.run(&["tar", "czf", "-", "open"], "").await;
    assert!(code == 2 && stderr.contains("invalid option '-z'"), "{code} {stderr}");
    for (args, wanted) in [(["-d", "/data"], 0), (["-d", "open"], 1), (["-f", "open"], 0), (["-e", "gone"], 1), (["-x", "open"], 2)] {
        assert_eq!(sleeper.run(&["test", args[0], args[1]], "").await.0, wanted, "{args:?}");
    }
    sleeper.remove().await;
}

#[tokio::test]
async fn a_copy_ends_with_its_session_and_a_program_of_the_container_comes_first() {
    let (sleeper, data) = container().await;
    write(data.join("large"), &vec![0; 16 << 20], 0o644);
    let mut session = sleeper.exec(ExecSpec { outlives_session: true, ..exec(&["tar", "cf", "-", "large"]) }).await.unwrap();
    session.stdout.read_exact(&mut [0; 512]).await.unwrap();
    assert_eq!(sleeper.processes(), 2, "it is in the container's cgroup");
    drop(session);
    sleeper.left(1).await;

    // The container's PATH is this volume.
    write(sleeper.harness.dir().join("tools/tar"), &guests::module("echo"), 0o644);
    assert_eq!(sleeper.run(&["tar", "of", "its", "own"], "").await, (0, "of its own\n".into(), String::new()));
    sleeper.remove().await;
}
