use std::os::unix::fs::symlink;

use super::*;

const MODULE: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x0a\x01\x06_start\0\0\x0a\x04\x01\x02\0\x0b";

struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("module.wasm"), MODULE).unwrap();
        Self { dir }
    }

    fn open(&self) -> Cache {
        Cache::open(&self.dir.path().join("cache")).unwrap()
    }

    async fn artifact(&self, cache: &Cache) -> Artifact {
        cache.artifact(&self.dir.path().join("module.wasm"), "sha256:test").await.unwrap()
    }

    fn compiled_at(&self, artifact: &Artifact) -> std::time::SystemTime {
        fs::metadata(&artifact.path).unwrap().modified().unwrap()
    }
}

#[tokio::test]
async fn a_module_is_compiled_once_and_found_by_the_next_process() {
    let scratch = Scratch::new();
    let first = scratch.artifact(&scratch.open()).await;
    assert_eq!((first.kind, fs::metadata(&first.path).unwrap().mode() & 0o777), (Kind::Module, 0o600));
    let when = scratch.compiled_at(&first);
    // Without its source it could not be compiled again.
    fs::remove_file(scratch.dir.path().join("module.wasm")).unwrap();
    let later = scratch.open();
    assert_eq!(scratch.artifact(&later).await, first);
    assert_eq!(scratch.artifact(&later).await, first);
    assert_eq!(scratch.compiled_at(&first), when);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_starts_compile_once() {
    let scratch = Arc::new(Scratch::new());
    let cache = Arc::new(scratch.open());
    let askers: Vec<_> = (0..16)
        .map(|_| {
            let (scratch, cache) = (scratch.clone(), cache.clone());
            tokio::spawn(async move {
                let artifact = scratch.artifact(&cache).await;
                identity(&artifact.path).unwrap()
            })
        })
        .collect();
    let mut files = Vec::new();
    for asker in askers {
        files.push(asker.await.unwrap());
    }
    assert!(files.iter().all(|file| *file == files[0]), "each saw the same file");
    assert!(cache.known.lock().busy.is_empty(), "nothing is kept of who waited");
}

#[tokio::test]
async fn what_is_torn_foreign_or_changed_is_compiled_again() {
    let scratch = Scratch::new();
    let artifact = scratch.artifact(&scratch.open()).await;
    let good = fs::read(&artifact.path).unwrap();
    let note = artifact.path.with_extension("json");
    let (path, cache) = (artifact.path.clone(), scratch.open());
    let elsewhere = scratch.dir.path().join("elsewhere");
    fs::write(&elsewhere, &good).unwrap();
    let harms: [(&str, &dyn Fn()); 6] = [
        ("torn", &|| fs::write(&path, &good[..good.len() / 2]).unwrap()),
        ("one bit", &|| {
            fs::write(&path, {
                let mut bad = good.clone();
                bad[100] ^= 1;
                bad
            })
            .unwrap()
        }),
        ("no note", &|| fs::remove_file(&note).unwrap()),
        ("a note of nonsense", &|| fs::write(&note, "{").unwrap()),
        ("writable by all", &|| fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap()),
        ("a link", &|| {
            fs::remove_file(&path).unwrap();
            symlink(&elsewhere, &path).unwrap()
        }),
    ];
    for (name, harm) in harms {
        harm();
        // Also by a cache that had checked the file before, except that a note is read only once.
        for cache in [&scratch.open(), &cache] {
            let again = scratch.artifact(cache).await;
            assert_eq!(again.path, path, "{name}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{name}");
            assert!(!path.is_symlink(), "{name}");
            assert!(fs::read(&path).unwrap() == good, "{name}");
        }
    }
}

#[tokio::test]
async fn a_bad_module_is_remembered() {
    let scratch = Scratch::new();
    fs::write(scratch.dir.path().join("module.wasm"), b"nonsense").unwrap();
    let cache = scratch.open();
    for _ in 0..2 {
        let error = cache.artifact(&scratch.dir.path().join("module.wasm"), "sha256:test").await.unwrap_err();
        assert!(error.to_string().contains("not a WebAssembly binary"), "{error}");
        fs::remove_file(scratch.dir.path().join("module.wasm")).ok();
    }
    assert_eq!(fs::read_dir(scratch.dir.path().join("cache")).unwrap().count(), 0);
}
