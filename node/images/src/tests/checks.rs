//! What is checked of a module, when, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn a_module_is_checked_when_it_is_new_and_one_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let checked = Arc::new(AtomicUsize::new(0));
    let count = checked.clone();
    let store = open(dir.path()).with_module_check(move |file| {
        let valid = std::fs::read(file).expect("reads") == EMPTY_MODULE;
        count.fetch_add(1, Ordering::SeqCst);
        async move { if valid { Ok(()) } else { Err(RuntimeError::BadContent("it is odd".to_owned())) } }
    });
    let bench = Bench { dir, store };
    let file = bench.file("a.wasm", EMPTY_MODULE);
    for name in ["a", "a", "b"] {
        bench.store.import(name, &file).await.expect("imports");
    }
    assert_eq!(checked.load(Ordering::SeqCst), 1);
    let odd = [EMPTY_MODULE, &b"\0\x01\x00"[..]].concat();
    let compat = saved(&[tar_of(&[("app/", b""), ("app/run.wasm", odd.as_slice())])], "/app/run.wasm");
    for (file, content) in [("odd.wasm", &odd), ("odd.tar", &compat)] {
        let error = bench.store.import("odd", &bench.file(file, content)).await.expect_err(file).to_string();
        assert_eq!(error, "image \"odd\" cannot run here: it is odd");
        assert!(bench.store.get("odd").await.expect("reads").is_none(), "{file}");
        assert!(!bench.store.blobs.has(&digest_of(&odd)), "{file}");
    }
    assert_eq!(bench.store.list().await.expect("reads").len(), 1, "two names of one image");
}

/// A check may take a quarter of the machine's memory.
#[tokio::test]
async fn a_check_takes_a_slot_as_a_layer_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let slots = store.unpacking.clone();
    let mut taken = Vec::new();
    while let Some(slot) = slots.acquire(0).now_or_never() {
        taken.push(slot);
    }
    taken.pop();
    let (others, checked) = (slots.clone(), Arc::new(AtomicUsize::new(0)));
    let count = checked.clone();
    let store = store.with_module_check(move |_| {
        assert!(others.acquire(0).now_or_never().is_none(), "the check has the last slot");
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok(()) }
    });
    let bench = Bench { dir, store };
    bench.store.import("a", &bench.file("a.wasm", EMPTY_MODULE)).await.expect("imports");
    assert_eq!(checked.load(Ordering::SeqCst), 1);
    assert!(slots.acquire(0).now_or_never().is_some(), "the check returned it");
}

/// A registry that answers paths by their last part, and counts the requests for blobs.
async fn registry(contents: Vec<(String, Vec<u8>)>, blobs_sent: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 8_192];
            let read = stream.read(&mut request).await.expect("a request");
            let head = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            if path.contains("/blobs/") {
                blobs_sent.fetch_add(1, Ordering::SeqCst);
            }
            let last = path.rsplit('/').next().unwrap_or_default();
            let body = contents.iter().find(|(name, _)| name == last).map_or(&b"{}"[..], |(_, body)| body);
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), body].concat()).await.expect("sent");
        }
    });
    address
}

/// A manifest and its blobs, under the names by which they are requested.
fn published(tag: &str, media_type: &str, config: &serde_json::Value, layer: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let config = config.to_string().into_bytes();
    let described = |media_type: &str, bytes: &[u8]| json!({"mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len()});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", &config), "layers": [described(media_type, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    vec![(tag.to_owned(), manifest), (digest_of(&config), config), (digest_of(&layer), layer)]
}

#[tokio::test]
async fn a_module_that_is_not_valid_is_not_fetched_again() {
    let odd = [EMPTY_MODULE, &b"\0\x01\x00"[..]].concat();
    let layer = tar_of(&[("app/", b""), ("app/run.wasm", odd.as_slice()), ("app/text", b"1")]);
    let compat = json!({"os": "wasi", "architecture": "wasm", "rootfs": {"type": "layers", "diff_ids": [digest_of(&layer)]},
        "config": {"Entrypoint": ["/app/run.wasm"]}});
    let text = [&b"not wasm"[..], &odd].concat();
    let wasm = json!({"os": "wasip1", "architecture": "wasm"});
    let mut contents = published("bare", "application/wasm", &wasm, odd);
    contents.extend(published("files", "application/vnd.oci.image.layer.v1.tar", &compat, layer));
    contents.extend(published("text", "application/wasm", &wasm, text));
    let blobs_sent = Arc::new(AtomicUsize::new(0));
    let registry = registry(contents, blobs_sent.clone()).await;
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path()).with_module_check(|_| async { Err(RuntimeError::BadContent("it is odd".to_owned())) });
    for (tag, reason) in [("bare", "it is odd"), ("files", "it is odd"), ("text", "does not begin with")] {
        let name = format!("{registry}/{tag}:{tag}");
        let first = store.pull(&name, PullPolicy::IfNotPresent, &[]).await.expect_err(tag).to_string();
        assert!(first.contains("cannot run here") && first.contains(reason), "{first}");
        let sent = blobs_sent.load(Ordering::SeqCst);
        assert!(sent > 0, "{tag}");
        let again = store.pull(&name, PullPolicy::IfNotPresent, &[]).await.expect_err(tag).to_string();
        assert_eq!((again, blobs_sent.load(Ordering::SeqCst)), (first, sent), "{tag}");
    }
}

/// The name of a manifest is that of its content: whoever publishes the same blobs in another way is another image.
#[tokio::test]
async fn a_rejection_is_that_of_one_manifest() {
    let layer = tar_of(&[("app/", b""), ("app/run.wasm", EMPTY_MODULE)]);
    let config = json!({"os": "wasi", "architecture": "wasm", "rootfs": {"type": "layers", "diff_ids": [digest_of(&layer)]},
        "config": {"Entrypoint": ["/app/run.wasm"]}});
    let mut contents = published("wrong", "application/wasm", &config, layer.clone());
    contents.extend(published("right", "application/vnd.oci.image.layer.v1.tar", &config, layer));
    let registry = registry(contents, Arc::default()).await;
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let wrong = store.pull(&format!("{registry}/web:wrong"), PullPolicy::Always, &[]).await.expect_err("an archive is no module");
    assert!(matches!(wrong, ImageError::NotRunnable { .. }), "{wrong}");
    store.pull(&format!("{registry}/web:right"), PullPolicy::Always, &[]).await.expect("the image is whole");
}
