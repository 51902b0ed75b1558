use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::time::Duration;

use runtimes_contract::WasmProposal;
use runtimes_host::process::ProcessRef;

use super::look::{Note, hashed, identity};
use super::*;
use crate::compile::{Purpose, serve_compile};

/// The test program is its own compiler: started with this argument it serves before any test begins.
const SERVE: &str = "serve-compile";

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_TESTS: extern "C" fn() = before_tests;

/// The C library has given the arguments to the standard library by now.
extern "C" fn before_tests() {
    match std::env::args().nth(1).as_deref() {
        Some(SERVE) => serve_compile(),
        Some("serve-inspect") => crate::inspect::serve_inspect(),
        _ => {}
    }
}

fn compiler() -> Helper {
    Helper::new(std::env::current_exe().unwrap(), &[SERVE])
}

fn stored(file: impl Into<PathBuf>, digest: &str) -> StoredModule {
    StoredModule { file: file.into(), digest: digest.to_owned(), settings: CodeSettings::default() }
}

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
        Cache::open(&self.dir.path().join("cache"), compiler(), Purpose::Container).unwrap()
    }

    /// Each start of the compiler runs a shell command before.
    fn open_with(&self, command: &str) -> Cache {
        let script = format!("{command}; exec {} {SERVE}", std::env::current_exe().unwrap().display());
        Cache::open(&self.dir.path().join("cache"), Helper::new("/bin/sh", &["-c", &script]), Purpose::Container).unwrap()
    }

    /// A module that is large only by its length.
    fn large(&self) -> StoredModule {
        let path = self.dir.path().join("large.wasm");
        let custom = [&b"\0\x80\x80\xd8\x04\x01x"[..], &vec![0; (600 << 14) - 2]].concat();
        fs::write(&path, [MODULE, &custom].concat()).unwrap();
        stored(path, "sha256:large")
    }

    async fn artifact(&self, cache: &Cache) -> Artifact {
        cache.artifact(&stored(self.dir.path().join("module.wasm"), "sha256:test")).await.unwrap()
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
        ("writable by all", &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap()),
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
        let error = cache.artifact(&stored(scratch.dir.path().join("module.wasm"), "sha256:test")).await.unwrap_err();
        assert!(error.to_string().contains("not a WebAssembly binary"), "{error}");
        fs::remove_file(scratch.dir.path().join("module.wasm")).ok();
    }
    assert_eq!(fs::read_dir(scratch.dir.path().join("cache")).unwrap().count(), 0);
}

/// The most memory that this process has had since `f` began, in KiB, beyond what it had then.
fn memory_growth_kib<T>(f: impl FnOnce() -> T) -> u64 {
    let status = |field: &str| {
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().trim_end_matches(" kB").to_owned();
        line.parse::<u64>().unwrap()
    };
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    f();
    status("VmHWM:").saturating_sub(before)
}

#[test]
fn large_machine_code_is_checked_without_having_it_in_memory() {
    const LEN: u64 = 192 << 20;
    let scratch = Scratch::new();
    let cache = scratch.open();
    let look = cache.inner.look(&stored("module.wasm", "sha256:test"), Optimization::Full).unwrap();
    File::options().create_new(true).write(true).mode(0o600).open(look.code()).unwrap().set_len(LEN).unwrap();
    let (len, sha256) = hashed(File::open(look.code()).unwrap()).unwrap();
    fs::write(
        look.note(),
        serde_json::to_vec(&Note { kind: Kind::Module, abi: Abi::Sync, len, sha256, took_ms: 0, superseded_by: None }).unwrap(),
    )
    .unwrap();
    let grown = memory_growth_kib(|| assert!(look.find().unwrap().is_some()));
    assert_eq!(len, LEN);
    assert!(grown < 16 << 10, "{grown} KiB");
}

#[tokio::test]
async fn a_bad_module_is_compiled_once_for_all_who_wait() {
    let scratch = Scratch::new();
    let module = scratch.dir.path().join("module.wasm");
    fs::write(&module, b"nonsense").unwrap();
    let log = scratch.dir.path().join("runs");
    let cache = scratch.open_with(&format!("echo run >> {}", log.display()));
    let module = stored(module, "sha256:test");
    let ask = || cache.artifact(&module);
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    for refused in [one, two, three] {
        assert!(refused.unwrap_err().to_string().contains("not a WebAssembly binary"));
    }
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 1);
}

/// It costs the process that compiles much more than that.
#[test]
fn compiling_costs_this_process_no_memory() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.open(), scratch.dir.path().join("large.wasm"));
    fs::write(&path, bomb(20_000)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut artifact = None;
    let grown = memory_growth_kib(|| artifact = Some(runtime.block_on(cache.artifact(&stored(&path, "sha256:large"))).unwrap()));
    let code = fs::metadata(&artifact.unwrap().path).unwrap().len();
    println!("{code} bytes of code, grown by {grown} KiB");
    assert!(code > 2 << 20 && grown < 8 << 10, "{code} bytes of code, {grown} KiB");
}

/// A module whose compilation takes long: one function of very many blocks, or as many functions.
fn bomb(functions: u32) -> Vec<u8> {
    fn leb(mut number: u32, bytes: &mut Vec<u8>) {
        loop {
            let low = (number & 0x7f) as u8;
            number >>= 7;
            bytes.push(if number == 0 { low } else { low | 0x80 });
            if number == 0 {
                return;
            }
        }
    }
    let section = |id: u8, content: Vec<u8>, bytes: &mut Vec<u8>| {
        bytes.push(id);
        leb(u32::try_from(content.len()).unwrap(), bytes);
        bytes.extend(content);
    };
    let mut bytes = b"\0asm\x01\0\0\0".to_vec();
    section(1, vec![1, 0x60, 0, 0], &mut bytes);
    let mut kinds = Vec::new();
    leb(functions, &mut kinds);
    kinds.extend(std::iter::repeat_n(0, functions as usize));
    section(3, kinds, &mut bytes);
    section(7, b"\x01\x06_start\0\0".to_vec(), &mut bytes);
    let mut bodies = Vec::new();
    leb(functions, &mut bodies);
    for _ in 0..functions {
        bodies.extend([2, 0, 0x0b]);
    }
    section(10, bodies, &mut bytes);
    bytes
}

fn memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_costs_what_it_may_and_others_compile_meanwhile() {
    let scratch = Scratch::new();
    let mut cache = scratch.open();
    // As on a machine with little memory: half a GiB is what a module gets.
    Arc::get_mut(&mut cache.inner).unwrap().machine_bytes = 1 << 30;
    let cache = Arc::new(cache);
    let bombs: Vec<_> = (0..4_u32)
        .map(|number| {
            let path = scratch.dir.path().join(format!("bomb{number}.wasm"));
            fs::write(&path, bomb(900_000 + number)).unwrap();
            let cache = cache.clone();
            tokio::spawn(async move { cache.artifact(&stored(path, &format!("sha256:bomb{number}"))).await })
        })
        .collect();
    // Bombs hold every place that they may have.
    tokio::time::timeout(Duration::from_secs(60), async {
        while fs::read_dir(scratch.dir.path().join("cache")).unwrap().count() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    let small = tokio::time::timeout(Duration::from_secs(30), scratch.artifact(&cache)).await.unwrap();
    assert_eq!(small.kind, Kind::Module);
    assert!(bombs.iter().any(|bomb| !bomb.is_finished()), "the small one passed the bombs");
    let mut bombs = bombs.into_iter();
    let error = bombs.next().unwrap().await.unwrap().unwrap_err().to_string();
    assert_eq!(error, "the WebAssembly module cannot be compiled: it takes more than 512 MiB of memory");
    let again = cache.artifact(&stored("/nonexistent", "sha256:bomb0")).await.unwrap_err().to_string();
    assert_eq!(again, error, "it is not tried again at once");
    // No caller waits for the others any more.
    for bomb in bombs {
        bomb.abort();
        drop(bomb.await);
    }
    let left: Vec<_> = fs::read_dir(scratch.dir.path().join("cache")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the small module and its note: {left:?}");
    assert!(memory_kib() < 400 << 10, "{} KiB in the process that asks", memory_kib());
}

#[tokio::test]
async fn what_was_half_written_is_removed_unless_its_writer_lives() {
    let scratch = Scratch::new();
    let dir = scratch.dir.path().join("cache");
    fs::create_dir(&dir).unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let ended = ProcessRef::read(child.id().cast_signed()).unwrap();
    child.wait().unwrap();
    let living = ProcessRef::current().unwrap();
    let reused = ProcessRef { start_ticks: living.start_ticks + 1, ..living.clone() };
    let of_earlier_boot = ProcessRef { boot_id: "earlier".into(), ..living.clone() };
    for gone in [&ended, &reused, &of_earlier_boot] {
        fs::write(dir.join(format!("key-0.{}.new", gone.encode_name())), "half").unwrap();
    }
    let of_earlier_version = format!("key-1.{}.new", living.pid);
    let living = format!("key-2.{}.new", living.encode_name());
    for name in ["key-0.4194305.new", "key.json.new", "odd.new", &of_earlier_version, &living, "key.cwasm"] {
        fs::write(dir.join(name), "half").unwrap();
    }
    let _cache = scratch.open();
    assert_eq!(names(&dir), [living, "key.cwasm".to_owned()]);
}

/// A kill between the two renames leaves a note alone.
#[tokio::test]
async fn a_note_without_code_is_removed_unless_its_writer_lives() {
    let scratch = Scratch::new();
    let dir = scratch.dir.path().join("cache");
    let artifact = scratch.artifact(&scratch.open()).await;
    let whole = ["cwasm", "json"].map(|extension| artifact.path.with_extension(extension));
    let living = ProcessRef::current().unwrap();
    let ended = ProcessRef { start_ticks: living.start_ticks + 1, ..living.clone() };
    let coming = format!("coming-0.{}.new", living.encode_name());
    for name in ["lost.json", &format!("lost-1.{}.new", ended.encode_name()), "alone.json", "coming.json", &coming] {
        fs::copy(&whole[1], dir.join(name)).unwrap();
    }
    let later = scratch.open();
    let mut wanted: Vec<_> = whole.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    wanted.extend(["coming.json".to_owned(), coming]);
    wanted.sort();
    assert_eq!(names(&dir), wanted);
    assert_eq!(scratch.artifact(&later).await, artifact, "what is whole is still used");
}

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Until the background has made optimized code.
async fn optimized(cache: &Cache, module: &StoredModule) -> Artifact {
    let wait = async {
        loop {
            let artifact = cache.artifact(module).await.unwrap();
            if artifact.optimization == Optimization::Full {
                return artifact;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        artifact = tokio::time::timeout(Duration::from_secs(60), wait) => artifact.unwrap(),
        () = cache.work_in_background() => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn a_large_module_starts_without_optimization_and_has_it_at_its_next_start() {
    let scratch = Scratch::new();
    let (large, cache) = (scratch.large(), scratch.open());
    let bytes = fs::metadata(&large.file).unwrap().len();
    let preparation = cache.preparation(&large).await.unwrap();
    assert_eq!(preparation, Some(Preparation { bytes, takes_long: true }));
    let first = cache.artifact_for(&large, "a").await.unwrap();
    assert_eq!((first.optimization, first.kind), (Optimization::None, Kind::Module));
    assert!(first.took > Duration::ZERO);
    assert_eq!(cache.preparation(&large).await.unwrap(), None);
    let better = optimized(&cache, &large).await;
    assert_ne!(better.path, first.path);
    assert!(first.path.exists(), "a shim may be about to map it");
    // A small module is optimized at once.
    let small = scratch.artifact(&cache).await;
    assert_eq!(small.optimization, Optimization::Full);
}

#[tokio::test]
async fn what_an_agent_that_was_killed_left_to_optimize_is_done_after_the_next_start() {
    let scratch = Scratch::new();
    let large = scratch.large();
    let first = scratch.open().artifact_for(&large, "a").await.unwrap();
    let later = scratch.open();
    assert_eq!(later.artifact_for(&large, "a").await.unwrap(), first);
    let better = optimized(&later, &large).await;
    fs::remove_file(&large.file).unwrap();
    assert_eq!(scratch.open().artifact(&large).await.unwrap(), better);
}

#[tokio::test]
async fn a_module_that_cannot_be_optimized_goes_on_without_and_is_not_tried_again_at_once() {
    let scratch = Scratch::new();
    let (large, log) = (scratch.large(), scratch.dir.path().join("runs"));
    let cache = scratch.open_with(&format!("echo run >> {0}; [ $(wc -l < {0}) -lt 2 ] || exit 3", log.display()));
    let first = cache.artifact_for(&large, "a").await.unwrap();
    let module = cache.inner.backlog.next().await;
    let error = cache.inner.optimized(&module).await.unwrap_err();
    assert!(matches!(error, RuntimeError::BadContent(_)), "{error}");
    assert!(!cache.inner.optimized(&module).await.unwrap());
    assert_eq!(cache.artifact_for(&large, "a").await.unwrap(), first);
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 2);
    // Not even when its code was swept: the refusal is of the optimized code alone.
    fs::remove_file(&first.path).unwrap();
    let error = cache.artifact(&large).await.unwrap_err();
    assert!(error.to_string().contains("exit code 3"), "it was tried: {error}");
}

#[tokio::test]
async fn a_compilation_goes_on_for_the_callers_that_still_wait() {
    let scratch = Scratch::new();
    let (path, log) = (scratch.dir.path().join("slow.wasm"), scratch.dir.path().join("runs"));
    fs::write(&path, bomb(20_000)).unwrap();
    let slow = stored(path, "sha256:slow");
    let cache = scratch.open_with(&format!("echo run >> {}", log.display()));
    let mut first = Box::pin(cache.artifact(&slow));
    let runs = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    while runs() == 0 {
        tokio::time::timeout(Duration::from_millis(1), &mut first).await.expect_err("it is slow");
    }
    let mut second = Box::pin(cache.artifact(&slow));
    assert!(futures::poll!(&mut second).is_pending());
    drop(first);
    assert_eq!(second.await.unwrap().kind, Kind::Module);
    assert_eq!(runs(), 1);
}

#[test]
fn the_name_of_code_has_the_settings_that_shape_it() {
    let scratch = Scratch::new();
    let cache = scratch.open();
    let without = stored("module.wasm", "sha256:test");
    let threads = CodeSettings { proposals: BTreeSet::from([WasmProposal::Threads]), has_fuel: false };
    for settings in [threads, CodeSettings { has_fuel: true, ..CodeSettings::default() }] {
        let module = StoredModule { settings, ..without.clone() };
        for optimization in [Optimization::Full, Optimization::None] {
            let fingerprint = |settings: &CodeSettings| {
                fingerprint_of(&Question { purpose: Purpose::Container, optimization, settings: settings.clone() }).unwrap()
            };
            let key = cache.inner.look(&module, optimization).unwrap().key;
            assert_eq!(key, module.key(&fingerprint(&module.settings)));
            assert_ne!(key, module.key(&fingerprint(&without.settings)));
            assert_ne!(module.key(""), without.key(""));
            assert_eq!(cache.inner.look(&without, optimization).unwrap().key, without.key(&fingerprint(&without.settings)));
        }
    }
}

#[test]
fn a_note_of_an_earlier_version_is_of_code_with_the_synchronous_abi() {
    let note: Note = serde_json::from_str(r#"{"kind":"http","len":1,"sha256":"00"}"#).unwrap();
    assert_eq!((note.kind, note.abi), (Kind::Http, Abi::Sync));
    let note: Note = serde_json::from_str(r#"{"kind":"service","abi":"async","len":1,"sha256":"00"}"#).unwrap();
    assert_eq!((note.kind, note.abi), (Kind::Service, Abi::Async));
}
