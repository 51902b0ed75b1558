//! A hub and its clients over a real socket; the hub's owner is a thread that polls, as in a shim.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout, poll};
use nix::unistd::pipe2;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::frame::{Frames, Kind, LEN_MAX, put};
use super::*;
use crate::cri::Stream;
use runtimes_contract::{AttachSession, ContainerId};

#[test]
fn frames_are_read_however_they_are_cut() {
    let mut bytes = Vec::new();
    put(Kind::Stdout, b"hello", &mut bytes);
    put(Kind::StdinEnd, &[], &mut bytes);
    put(Kind::Stderr, &vec![7; LEN_MAX + 1], &mut bytes);
    let mut frames = Frames::default();
    let mut got = Vec::new();
    for piece in bytes.chunks(3) {
        frames.push(piece);
        while let Some((kind, payload)) = frames.next().expect("frames") {
            got.push((kind, payload.len()));
        }
    }
    assert_eq!(got, [(Kind::Stdout, 5), (Kind::StdinEnd, 0), (Kind::Stderr, LEN_MAX), (Kind::Stderr, 1)]);
    for bad in [&[9, 0, 0, 0, 0][..], &[0, 0xff, 0, 0, 0]] {
        let mut frames = Frames::default();
        frames.push(bad);
        assert!(frames.next().is_err(), "{bad:?}");
    }
}

/// A hub with an owner that serves it until dropped.
struct Owned {
    dir: tempfile::TempDir,
    hub: Arc<Mutex<Hub>>,
    stop: Arc<AtomicBool>,
    owner: Option<std::thread::JoinHandle<()>>,
}

impl Owned {
    fn new(stdin: Option<OwnedFd>, once: bool) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut hub = Hub::listen(dir.path()).expect("a hub");
        if let Some(stdin) = stdin {
            hub.set_stdin(stdin, once).expect("stdin");
        }
        let (hub, stop) = (Arc::new(Mutex::new(hub)), Arc::new(AtomicBool::new(false)));
        let (its, stopped) = (hub.clone(), stop.clone());
        let owner = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let watched = its.lock().expect("a hub").watched();
                let mut fds: Vec<PollFd<'_>> = watched.iter().map(|(fd, flags)| PollFd::new(fd.as_fd(), *flags)).collect();
                poll(&mut fds, PollTimeout::from(10_u8)).expect("polled");
                its.lock().expect("a hub").serve();
            }
        });
        Self { dir, hub, stop, owner: Some(owner) }
    }

    async fn attach(&self, stdin: bool) -> AttachSession {
        connect(self.dir.path(), &ContainerId("c".to_owned()), stdin, false).await.expect("attached")
    }

    /// Writes lines until the session has received one: by then it is attached for certain.
    async fn until_heard(&self, session: &mut AttachSession) {
        let mut first = [0; 1];
        loop {
            self.hub.lock().expect("a hub").output(Stream::Stdout, b".");
            if tokio::time::timeout(Duration::from_millis(10), session.stdout.read_exact(&mut first)).await.is_ok() {
                return;
            }
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(owner) = self.owner.take() {
            owner.join().expect("no panic");
        }
    }
}

#[tokio::test]
async fn what_is_written_reaches_both_streams_of_everyone() {
    let owned = Owned::new(None, false);
    let (mut first, mut second) = (owned.attach(false).await, owned.attach(false).await);
    owned.until_heard(&mut first).await;
    owned.until_heard(&mut second).await;
    owned.hub.lock().expect("a hub").output(Stream::Stderr, b"warn");
    for session in [&mut first, &mut second] {
        let mut said = [0; 4];
        session.stderr.as_mut().expect("stderr").read_exact(&mut said).await.expect("read");
        assert_eq!(&said, b"warn");
    }
}

#[tokio::test]
async fn stdin_of_one_client_ends_with_it_and_of_many_does_not() {
    for once in [true, false] {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let owned = Owned::new(Some(write), once);
        let mut session = owned.attach(true).await;
        session.stdin.as_mut().expect("stdin").write_all(b"typed").await.expect("written");
        let mut stdin = std::fs::File::from(read);
        let (mut stdin, typed) = tokio::task::spawn_blocking(move || {
            let mut typed = [0; 5];
            stdin.read_exact(&mut typed).expect("read");
            (stdin, typed)
        })
        .await
        .expect("joined");
        assert_eq!(&typed, b"typed");
        drop(session);
        let rest = tokio::task::spawn_blocking(move || {
            let mut rest = Vec::new();
            stdin.read_to_end(&mut rest).expect("an end");
            rest
        });
        if once {
            assert!(rest.await.expect("joined").is_empty());
            continue;
        }
        // The next client continues where the first one stopped.
        let mut next = owned.attach(true).await;
        next.stdin.as_mut().expect("stdin").write_all(b"more").await.expect("written");
        owned.until_heard(&mut next).await;
        drop(next);
        drop(owned);
        assert_eq!(rest.await.expect("joined"), b"more");
    }
}

#[tokio::test]
async fn one_that_does_not_read_is_bounded_and_let_go() {
    let owned = Owned::new(None, false);
    let mut session = owned.attach(false).await;
    owned.until_heard(&mut session).await;
    let chunk = vec![7; 16 << 10];
    let mut written = 0;
    while !owned.hub.lock().expect("a hub").is_full() {
        owned.hub.lock().expect("a hub").output(Stream::Stdout, &chunk);
        written += chunk.len();
        assert!(written < 16 << 20, "it never fills");
    }
    owned.hub.lock().expect("a hub").let_go_of_full();
    assert!(!owned.hub.lock().expect("a hub").is_full());
    let mut rest = Vec::new();
    session.stdout.read_to_end(&mut rest).await.expect("an end");
    assert!(rest.len() < written);
}

#[tokio::test]
async fn what_waits_at_the_end_is_still_sent() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut hub = Hub::listen(dir.path()).expect("a hub");
    let mut session = connect(dir.path(), &ContainerId("c".to_owned()), false, false).await.expect("attached");
    hub.serve();
    hub.output(Stream::Stdout, &vec![7; 2 << 20]);
    let finishing = tokio::task::spawn_blocking(move || hub.finish(Duration::from_secs(20)));
    let mut all = Vec::new();
    session.stdout.read_to_end(&mut all).await.expect("an end");
    assert_eq!(all.len(), 2 << 20);
    finishing.await.expect("joined");
}

#[test]
fn a_client_that_speaks_otherwise_is_hung_up_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut hub = Hub::listen(dir.path()).expect("a hub");
    let mut socket = std::os::unix::net::UnixStream::connect(dir.path().join(SOCKET)).expect("connected");
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    hub.serve();
    assert_eq!(socket.read(&mut [0; 8]).expect("an end"), 0);
}
