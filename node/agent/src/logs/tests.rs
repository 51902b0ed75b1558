use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};

use super::read::{Options, send};
use super::*;

fn log(lines: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let text: String = lines.iter().enumerate().map(|(second, line)| format!("2026-01-01T00:00:{second:02}.000000001Z {line}\n")).collect();
    fs::write(&path, text).expect("writing");
    (dir, path)
}

async fn all(path: &Path, options: Options) -> String {
    let (sender, mut chunks) = mpsc::channel(4);
    tokio::spawn(send(path.to_owned(), options, async {}.boxed(), sender));
    let mut text = String::new();
    while let Some(chunk) = chunks.recv().await {
        text.push_str(std::str::from_utf8(&chunk.expect("a chunk")).expect("text"));
    }
    text
}

#[tokio::test]
async fn options_choose_what_is_read() {
    let (_dir, path) = log(&["stdout F one", "stderr F two", "stdout P th", "stdout F ree", "stdout F four"]);
    let since = "2026-01-01T00:00:03Z".parse().expect("a time");
    for (options, wanted) in [
        (Options::default(), "one\ntwo\nthree\nfour\n"),
        (Options { tail_lines: Some(1), ..Options::default() }, "four\n"),
        (Options { tail_lines: Some(0), ..Options::default() }, ""),
        (Options { tail_lines: Some(99), ..Options::default() }, "one\ntwo\nthree\nfour\n"),
        (Options { limit_bytes: Some(6), ..Options::default() }, "one\ntw"),
        (Options { since: Some(since), ..Options::default() }, "ree\nfour\n"),
        (Options { stream: Some("stderr".to_owned()), ..Options::default() }, "two\n"),
        (Options { timestamps: true, tail_lines: Some(1), ..Options::default() }, "2026-01-01T00:00:04.000000001Z four\n"),
    ] {
        assert_eq!(all(&path, options.clone()).await, wanted, "{options:?}");
    }
}

#[tokio::test]
async fn following_sees_growth_and_rotation_and_the_end() {
    let (_dir, path) = log(&["stdout F one"]);
    let (sender, mut chunks) = mpsc::channel(4);
    let (end, ended) = oneshot::channel::<()>();
    let options = Options { follow: true, ..Options::default() };
    let task = tokio::spawn(send(path.clone(), options, async move { ended.await.unwrap_or(()) }.boxed(), sender));
    let mut next = async || {
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(10), chunks.recv()).await.expect("in time");
        chunk.map(|chunk| String::from_utf8(chunk.expect("a chunk").to_vec()).expect("text"))
    };
    assert_eq!(next().await.as_deref(), Some("one\n"));
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("opening");
    file.write_all(b"2026-01-01T00:00:01Z stdout F tw").expect("writing");
    file.write_all(b"o\n").expect("writing");
    assert_eq!(next().await.as_deref(), Some("two\n"));
    fs::rename(&path, path.with_extension("log.old")).expect("renaming");
    file.write_all(b"2026-01-01T00:00:01Z stdout F last of the old\n").expect("writing");
    fs::write(&path, "2026-01-01T00:00:02Z stdout F new\n").expect("writing");
    let mut text = String::new();
    while !text.ends_with("new\n") {
        text.push_str(&next().await.expect("more"));
    }
    assert_eq!(text, "last of the old\nnew\n");
    end.send(()).expect("ending");
    assert_eq!(next().await, None);
    task.await.expect("joined");
}

/// Native code in a shim may make its log as long as a file can be.
#[tokio::test]
async fn an_endless_log_holds_nobody_for_ever() {
    let (_dir, path) = log(&["stdout F one"]);
    fs::File::options().write(true).open(&path).expect("opening").set_len(1 << 43).expect("growing");
    let within = std::time::Duration::from_secs(60);
    let tail = Options { tail_lines: Some(5), follow: true, ..Options::default() };
    for options in [tail, Options::default()] {
        let (sender, chunks) = mpsc::channel(4);
        let task = tokio::spawn(send(path.clone(), options.clone(), std::future::pending().boxed(), sender));
        if options.tail_lines.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        drop(chunks);
        tokio::time::timeout(within, task).await.expect("in time").expect("joined");
    }
}

#[test]
fn the_logs_end_stands_in_for_a_message() {
    let (_dir, path) = log(&["stdout F one", "stdout F two", "stderr F three"]);
    assert_eq!(tail_text(&path, 2, 100).as_deref(), Some("two\nthree\n"));
    assert_eq!(tail_text(&path, 80, 4).as_deref(), Some("ree\n"));
    assert_eq!(tail_text(Path::new("/nowhere"), 1, 1), None);
}
