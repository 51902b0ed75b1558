//! The programs by which `kubectl cp` copies files to and from a container that has no `tar`.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use runtimes_contract::{ContainerSpec, ExecSpec, Mount};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::exec::{Sleeper, exec};
use crate::guests;
use crate::harness::Wasmtime;

/// A container with volumes that its user may write at `/data` and `/other`, and a read-only one at `/fixed`.
async fn container() -> (Sleeper, PathBuf) {
    container_with(|_, _| {}).await
}

async fn container_with(change: impl FnOnce(&Wasmtime, &mut ContainerSpec)) -> (Sleeper, PathBuf) {
    let sleeper = Sleeper::start(|harness, spec| {
        for (name, read_only) in [("data", false), ("other", false), ("fixed", true)] {
            spec.mounts.push(Mount::new(own_dir(harness, name), format!("/{name}"), read_only));
        }
        spec.working_dir = "/data".into();
        change(harness, spec);
    })
    .await;
    let data = sleeper.harness.dir().join("data");
    (sleeper, data)
}

/// A new directory of the container's user.
fn own_dir(harness: &Wasmtime, name: &str) -> PathBuf {
    let dir = harness.dir().join(name);
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(runtimes_wasmtime::NOBODY), None).unwrap();
    dir
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
    let outside = sleeper.harness.dir().join("other");
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, kind: tar::EntryType, target: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6777);
        header.set_size(if kind == tar::EntryType::Regular { 1 } else { 0 });
        if kind == tar::EntryType::GNUSparse {
            header.as_gnu_mut().unwrap().set_real_size(0);
        }
        // As it is: the library writes no such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        archive.append(&header, if kind == tar::EntryType::Regular { &b"x"[..] } else { b"" }).unwrap();
    };
    add("../other/a", tar::EntryType::Regular, "");
    add("/other/b", tar::EntryType::Regular, "");
    add("out", tar::EntryType::Symlink, "/other");
    add("out/c", tar::EntryType::Regular, "");
    add("up", tar::EntryType::Symlink, "../../other");
    add("up/d", tar::EntryType::Regular, "");
    add("hard", tar::EntryType::Link, "../other");
    add("sparse", tar::EntryType::GNUSparse, "");
    add("\u{1b}[31mred", tar::EntryType::Fifo, "");
    add("null", tar::EntryType::Char, "");
    add("pipe", tar::EntryType::Fifo, "");
    add("fine", tar::EntryType::Regular, "");
    let archive = archive.into_inner().unwrap();

    let (code, _, stderr) = sleeper.pipe(&["tar", "-xf", "-", "-C", "/data"], &archive).await;
    assert_eq!(code, 2, "{stderr}");
    let complaints: Vec<&str> = stderr.lines().map(|line| line.strip_prefix("tar: ").unwrap()).collect();
    let wanted = [
        "../other/a: Member name contains '..'",
        "out/c: a path led outside of the filesystem",
        "up/d: a path led outside of the filesystem",
        "hard: Member name contains '..'",
        "sparse: a sparse file; ignored. Make the archive without S",
        "\\u{1b}[31mred: not a file, a directory or a link; ignored",
        "null: not a file, a directory or a link; ignored",
        "pipe: not a file, a directory or a link; ignored",
    ];
    assert_eq!(complaints, wanted);
    assert!(listing(&outside).is_empty(), "{:?}", listing(&outside));
    assert_eq!(data.join("fine").metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    // The absolute one is below the directory that was named.
    assert!(data.join("other/b").exists());
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
        "tar: /data/pipe: not a file, a directory or a link; ignored",
        "tar: /data/secret: Permission denied",
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
    assert_eq!(sleeper.run(&["tar", "xf", "-"], "").await.2, "tar: -: This does not look like a tar archive: it is empty\n");
    let (code, _, stderr) = sleeper.pipe(&["tar", "xmf", "-"], &archive[..600]).await;
    assert_eq!((code, stderr.as_str()), (2, "tar: -: unexpected EOF during skip\n"));
    let (code, _, stderr) = sleeper.run(&["tar", "czf", "-", "open"], "").await;
    assert!(code == 2 && stderr.contains("invalid option '-z'"), "{code} {stderr}");
    for (args, wanted) in
        [(["-d", "/data"], 0), (["-d", "open"], 1), (["-f", "open"], 0), (["-e", "gone"], 1), (["-e", ""], 1), (["-x", "open"], 2)]
    {
        assert_eq!(sleeper.run(&["test", args[0], args[1]], "").await.0, wanted, "{args:?}");
    }
    sleeper.remove().await;
}

#[tokio::test]
async fn links_of_an_archive_replace_files_and_never_lose_them() {
    let (sleeper, data) = container().await;
    let from = tempfile::tempdir().unwrap();
    std::fs::create_dir(from.path().join("dir")).unwrap();
    write(from.path().join("dir/a"), b"first", 0o644);
    std::fs::hard_link(from.path().join("dir/a"), from.path().join("dir/b")).unwrap();
    // The machine's tar writes the second one as a link of the file to itself.
    let archive = system_tar(from.path(), &["cf", "-", "dir", "dir/a"], b"");
    for _ in 0..2 {
        let (code, _, stderr) = sleeper.pipe(&["tar", "xf", "-"], &archive).await;
        assert_eq!((code, stderr.as_str()), (0, ""));
        assert_eq!(listing(&data), listing(from.path()));
    }
    // A link whose target is not there leaves the file that has its name.
    let mut broken = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    broken.append_link(&mut header, "dir/a", "dir/gone").unwrap();
    let (code, _, stderr) = sleeper.pipe(&["tar", "xf", "-"], &broken.into_inner().unwrap()).await;
    assert_eq!((code, stderr.as_str()), (2, "tar: dir/a: No such file or directory\n"));
    assert_eq!(listing(&data), listing(from.path()));
    sleeper.remove().await;
}

#[tokio::test]
async fn a_copy_has_the_volumes_in_a_directory() {
    let (sleeper, data) = container_with(|harness, spec| {
        for (name, target) in [("inner", "/data/inner"), ("deep", "/data/absent/deep")] {
            let dir = own_dir(harness, name);
            write(dir.join("file"), name.as_bytes(), 0o644);
            spec.mounts.push(Mount::new(dir, target, false));
        }
    })
    .await;
    // Their mount points; the second one has a parent that the volume does not have.
    write(data.join("own"), b"own", 0o644);
    for args in [["tar", "cf", "-", "/data"], ["tar", "cf", "-", "."]] {
        let (code, archive, stderr) = sleeper.pipe(&args, b"").await;
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        let to = tempfile::tempdir().unwrap();
        system_tar(to.path(), &["xf", "-"], &archive);
        let data = if args[3] == "." { to.path().to_owned() } else { to.path().join("data") };
        assert_eq!(std::fs::read_to_string(data.join("inner/file")).unwrap(), "inner");
        assert_eq!(std::fs::read_to_string(data.join("own")).unwrap(), "own");
    }
    sleeper.remove().await;
}

#[tokio::test]
async fn a_copy_ends_with_its_session_or_by_a_signal_and_a_program_of_the_container_comes_first() {
    let (sleeper, data) = container().await;
    write(data.join("large"), &vec![0; 16 << 20], 0o644);
    let mut session = sleeper.exec(ExecSpec { outlives_session: true, ..exec(&["tar", "cf", "-", "large"]) }).await.unwrap();
    session.stdout.read_exact(&mut [0; 512]).await.unwrap();
    assert_eq!(sleeper.processes(), 2, "it is in the container's cgroup");
    drop(session);
    sleeper.left(1).await;
    let mut session = sleeper.exec(ExecSpec { stdin: true, tty: true, ..exec(&["tar", "xf", "-"]) }).await.unwrap();
    session.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
    assert_eq!(session.exit.await.unwrap(), 130, "its terminal interrupts it");

    // The container's PATH is this volume.
    let own = sleeper.harness.dir().join("tools/tar");
    std::fs::create_dir(&own).unwrap();
    assert_eq!(sleeper.run(&["tar", "cf", "-"], "").await.0, 2, "a directory is no program");
    std::fs::remove_dir(&own).unwrap();
    write(own.clone(), b"\x7fELF", 0o755);
    assert_eq!(sleeper.run(&["tar", "cf", "-"], "").await.0, 2, "nor is a program of Linux");
    write(own, &guests::module("echo"), 0o644);
    assert_eq!(sleeper.run(&["tar", "of", "its", "own"], "").await, (0, "of its own\n".into(), String::new()));
    sleeper.remove().await;
}
