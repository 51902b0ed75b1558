//! What is checked of a module, when, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;

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
