//! The store on real files: what goes in, what comes out, what is rejected and what is left behind.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde_json::json;

use super::*;
use crate::blobs::digest_of;

mod bombs;
mod checks;
mod full_disk;

const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// The test program is its own helper: started with this argument it serves before any test begins.
const SERVE: &str = "serve-unpack";

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_TESTS: extern "C" fn() = before_tests;

/// The C library has given the arguments to the standard library by now.
extern "C" fn before_tests() {
    if std::env::args().nth(1).as_deref() == Some(SERVE) {
        serve_unpack();
    }
}

fn helper() -> Helper {
    Helper::new(std::env::current_exe().expect("a program"), &[SERVE])
}

pub(crate) fn open(dir: &Path) -> ImageStore {
    ImageStore::open(&dir.join("store"), helper()).expect("opens")
}

struct Bench {
    dir: tempfile::TempDir,
    store: ImageStore,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    Bench { dir, store }
}

impl Bench {
    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::File::create(&path).and_then(|mut file| file.write_all(content)).expect("writes");
        path
    }

    fn leftovers(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("store/tmp")).expect("lists").count()
    }
}

fn header() -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A tar archive of files; a name that ends in a slash is a directory.
fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = header();
        header.set_size(content.len() as u64);
        header.set_mode(if name.ends_with('/') { 0o755 } else { 0o644 });
        header.set_entry_type(if name.ends_with('/') { tar::EntryType::Directory } else { tar::EntryType::Regular });
        builder.append_data(&mut header, name, *content).expect("appends");
    }
    builder.into_inner().expect("finishes")
}

/// A `docker save` archive of one image.
fn saved(layers: &[Vec<u8>], entrypoint: &str) -> Vec<u8> {
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let diff_ids: Vec<String> = layers.iter().map(|layer| digest_of(layer)).collect();
    let config =
        json!({"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": diff_ids}, "config": {"Entrypoint": [entrypoint]}})
            .to_string();
    let names: Vec<String> = (0..layers.len()).map(|n| format!("{n}/layer.tar")).collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": names}]).to_string();
    let mut files: Vec<(&str, &[u8])> = vec![("config.json", config.as_bytes()), ("manifest.json", manifest.as_bytes())];
    files.extend(names.iter().map(String::as_str).zip(layers.iter().map(Vec::as_slice)));
    tar_of(&files)
}

/// Needs the right to mount.
#[tokio::test]
async fn the_files_of_an_image_have_the_ids_of_a_user_namespace() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = bench();
    let owned = runtimes_host::user_namespace::Owned::make(131_072, nix::sched::CloneFlags::empty()).expect("made");
    let user = UserNamespace { path: owned.namespace("user"), first_id: 131_072 };
    let layers = [tar_of(&[("etc/", b""), ("etc/gone", b"1"), ("etc/kept", b"2")]), tar_of(&[("etc/", b""), ("etc/.wh.gone", b"")])];
    let image = bench.store.import("two", &bench.file("two.tar", &saved(&layers, "/bin/x"))).await.expect("imports");
    let layer = unpack::dir(&bench.store, &image.layers[0]).expect("a digest");
    std::os::unix::fs::chown(layer.join("etc/kept"), Some(7), Some(8)).expect("owned");
    let owner = |path: &std::path::Path| std::fs::metadata(path).map(|state| (state.uid(), state.gid())).expect("there");
    let mounts = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
        table.lines().filter(|line| line.contains(bench.dir.path().to_str().expect("UTF-8"))).count()
    };
    let at = bench.dir.path().join("volumes/v");
    for _ in 0..2 {
        let Content::Linux { rootfs } = bench.store.mount(&image, "k", Some(&user)).await.expect("mounts") else { panic!("not Linux") };
        bench.store.mount_files(&image, "volumes_u", &at, Some(&user)).await.expect("mounts");
        assert_eq!(mounts(), 2, "its layers are mounted nowhere");
        for root in [&rootfs, &at] {
            assert_eq!((owner(root), owner(&root.join("etc"))), ((131_072, 131_072), (131_072, 131_072)), "{}", root.display());
            assert_eq!((owner(&root.join("etc/kept")), root.join("etc/gone").exists()), ((131_079, 131_080), false), "{}", root.display());
        }
        assert!(std::fs::write(at.join("etc/kept"), "x").is_err(), "for reading");
        std::fs::write(rootfs.join("etc/kept"), "changed").expect("for writing");
        assert_eq!(owner(&rootfs.join("etc/kept")), (131_079, 131_080), "also in the layer for writing");
    }
    assert_eq!((std::fs::read(layer.join("etc/kept")).expect("read"), owner(&layer.join("etc/kept"))), (b"2".to_vec(), (7, 8)));
    nix::mount::umount2(&at, nix::mount::MntFlags::empty()).expect("one mount");
    for key in ["k", "volumes_u"] {
        bench.store.unmount(key).await.expect("unmounts");
    }
    assert_eq!((mounts(), bench.store.mounts().await.expect("lists").len()), (0, 0));
    let gone = UserNamespace { path: bench.dir.path().join("nowhere"), first_id: 131_072 };
    bench.store.mount(&image, "k", Some(&gone)).await.expect_err("no namespace");
    assert_eq!(mounts(), 0);
}

#[tokio::test]
async fn modules_come_in_as_text_and_as_binary() {
    let bench = bench();
    let text = bench.store.import("text", &bench.file("a.wat", b"(module)")).await.expect("imports");
    let binary = bench.store.import("binary:v2", &bench.file("b.wasm", EMPTY_MODULE)).await.expect("imports");
    assert_eq!(text.id, binary.id, "the same module has one id");
    assert_eq!(binary.kind, ContentKind::Wasm);
    let found = bench.store.pull("text", PullPolicy::Never, &[]).await.expect("is there");
    assert_eq!(found.references, ["docker.io/library/binary:v2", "docker.io/library/text:latest"]);
    match bench.store.mount(&found, "k", None).await.expect("mounts") {
        Content::Wasm { module, digest } => {
            assert_eq!((std::fs::read(module).expect("reads"), digest), (EMPTY_MODULE.to_vec(), digest_of(EMPTY_MODULE)))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_saved_linux_image_is_unpacked_with_its_whiteouts() {
    let bench = bench();
    let lower = tar_of(&[("etc/", b""), ("etc/gone", b"1"), ("etc/kept", b"2")]);
    let upper = tar_of(&[("etc/", b""), ("etc/.wh.gone", b""), ("new", b"3")]);
    let image = bench.store.import("linux", &bench.file("i.tar", &saved(&[lower, upper], "/bin/x"))).await.expect("imports");
    assert_eq!((image.kind, image.layers.len(), image.config.entrypoint.as_slice()), (ContentKind::Linux, 2, &["/bin/x".to_owned()][..]));
    let top = unpack::dir(&bench.store, &image.layers[1]).expect("a digest");
    use std::os::unix::fs::FileTypeExt;
    assert!(top.join("etc/gone").symlink_metadata().expect("is there").file_type().is_char_device());
    assert_eq!(bench.leftovers(), 0);
}

/// Needs the right to mount.
#[tokio::test]
async fn the_files_of_an_image_are_mounted_for_reading() {
    let bench = bench();
    let (lower, upper) =
        (tar_of(&[("etc/", b""), ("etc/gone", b"1"), ("etc/kept", b"2")]), tar_of(&[("etc/", b""), ("etc/.wh.gone", b"")]));
    let two = bench.store.import("two", &bench.file("two.tar", &saved(&[lower, upper], ""))).await.expect("imports");
    let one = bench.store.import("one", &bench.file("one.tar", &saved(&[tar_of(&[("new", b"3")])], ""))).await.expect("imports");
    let module = bench.store.import("module", &bench.file("a.wasm", EMPTY_MODULE)).await.expect("imports");
    let at = bench.dir.path().join("volumes/v");
    for _ in 0..2 {
        bench.store.mount_files(&two, "key", &at, None).await.expect("mounts");
        assert_eq!(std::fs::read(at.join("etc/kept")).expect("reads"), b"2");
        assert!(!at.join("etc/gone").exists());
        let error = std::fs::write(at.join("etc/kept"), "x").expect_err("read-only");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    bench.store.mount_files(&one, "key", &at, None).await.expect("another image");
    assert_eq!(std::fs::read_dir(&at).expect("lists").map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>(), ["new"]);
    bench.store.remove("one").await.expect("removed");
    assert_eq!(std::fs::read(at.join("new")).expect("the layers stay"), b"3");
    let error = bench.store.mount_files(&module, "key", &bench.dir.path().join("volumes/m"), None).await.expect_err("no files").to_string();
    assert!(error.contains("a WebAssembly module without files"), "{error}");
    nix::mount::umount2(&at, nix::mount::MntFlags::empty()).expect("one mount");
    assert!(std::fs::read_dir(&at).expect("lists").next().is_none(), "nothing was below it");
    bench.store.unmount("key").await.expect("unmounts");
    assert_eq!(bench.store.mounts().await.expect("lists"), [""; 0]);
}

#[tokio::test]
async fn a_linux_style_image_with_a_wasm_entrypoint_is_wasm() {
    let bench = bench();
    let layer = tar_of(&[("app/", b""), ("app/run.wasm", EMPTY_MODULE)]);
    let image = bench.store.import("compat", &bench.file("i.tar", &saved(&[layer], "/app/run.wasm"))).await.expect("imports");
    assert!(!image.has_guest_files(), "nothing else is in it");
    assert_eq!((image.kind, image.id), (ContentKind::Wasm, digest_of(EMPTY_MODULE)));
}

/// Two images with the same module and different files are two images.
#[tokio::test]
async fn the_other_files_of_a_wasm_image_stay_with_it() {
    let bench = bench();
    let mut ids = Vec::new();
    for content in ["1", "2"] {
        let lower = tar_of(&[("app/", b""), ("app/run.wasm", EMPTY_MODULE), ("app/text", b"lower"), ("gone", b"x")]);
        let upper = tar_of(&[("app/", b""), ("app/text", content.as_bytes()), (".wh.gone", b"")]);
        let file = bench.file("i.tar", &saved(&[lower, upper], "/app/run.wasm"));
        let image = bench.store.import(&format!("files:{content}"), &file).await.expect("imports");
        assert!(image.kind == ContentKind::Wasm && image.has_guest_files());
        ids.push(image.id);
    }
    assert_ne!(ids[0], ids[1]);
    for (content, id) in ["1", "2"].iter().zip(&ids) {
        let image = bench.store.pull(&format!("files:{content}"), PullPolicy::Never, &[]).await.expect("is there");
        assert_eq!(image.id, *id);
        assert_eq!(std::fs::read(bench.store.module(&image).expect("a module")).expect("reads"), EMPTY_MODULE);
        let key = format!("k{content}");
        let Content::Wasm { module, digest } = bench.store.mount(&image, &key, None).await.expect("mounts") else { panic!("not WASM") };
        assert_eq!((std::fs::read(module).expect("reads"), digest), (EMPTY_MODULE.to_vec(), digest_of(EMPTY_MODULE)));
        let root = bench.store.writable_layer(&key).merged;
        assert_eq!(std::fs::read_to_string(root.join("app/text")).expect("reads"), *content);
        assert!(!root.join("gone").exists());
        bench.store.unmount(&key).await.expect("unmounts");
        assert!(!root.exists());
    }
    // Removing one sweeps neither the module nor the layers of the other.
    bench.store.remove("files:1").await.expect("removes");
    let left = bench.store.pull("files:2", PullPolicy::Never, &[]).await.expect("is whole");
    bench.store.mount(&left, "k", None).await.expect("mounts");
    assert_eq!(std::fs::read_to_string(bench.store.writable_layer("k").merged.join("app/text")).expect("reads"), "2");
    bench.store.unmount("k").await.expect("unmounts");
}

/// A mount with such a key would be over the directory of all mounts, and an unmount would remove it.
#[tokio::test]
async fn a_key_that_leads_to_no_directory_of_its_own_is_refused() {
    let bench = bench();
    let layer = tar_of(&[("app/", b""), ("app/run.wasm", EMPTY_MODULE), ("app/text", b"1")]);
    let image = bench.store.import("files", &bench.file("i.tar", &saved(&[layer], "/app/run.wasm"))).await.expect("imports");
    let mounts = bench.dir.path().join("store/mounts");
    let others = mounts.join("k/merged");
    std::fs::create_dir_all(&others).expect("makes");
    for key in ["", ".", ".."] {
        let error = bench.store.mount(&image, key, None).await.expect_err(key).to_string();
        assert!(error.contains(&format!("{key:?} is no key")), "{error}");
        bench.store.unmount(key).await.expect_err(key);
        assert!(others.exists() && bench.store.dir().join("blobs").exists(), "{key:?}");
        assert_eq!(bench.store.mounts().await.expect("lists"), ["k"], "{key:?}");
    }
}

#[tokio::test]
async fn a_wasm_entrypoint_is_of_the_image_itself() {
    let bench = bench();
    let secret = bench.file("secret.wasm", EMPTY_MODULE);
    let mut builder = tar::Builder::new(Vec::new());
    let mut link = header();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "way", bench.dir.path()).expect("appends");
    let layer = builder.into_inner().expect("finishes");
    for entrypoint in ["/../../../secret.wasm", "/way/secret.wasm"] {
        let image = bench.store.import("x", &bench.file("i.tar", &saved(std::slice::from_ref(&layer), entrypoint))).await;
        let error = image.expect_err(entrypoint).to_string();
        assert!(error.contains("is not in it"), "{entrypoint}: {error}");
    }
    assert!(secret.exists());
}

#[tokio::test]
async fn what_a_killed_process_left_half_written_is_removed_unless_somebody_writes() {
    let bench = bench();
    let temporary = bench.dir.path().join("store/tmp");
    let leave = || {
        std::fs::write(temporary.join("half"), "x").expect("writes");
        std::fs::create_dir_all(temporary.join("layer/root/etc")).expect("makes");
    };
    leave();
    let filling = bench.store.index.filling().await.expect("a lock");
    open(bench.dir.path());
    assert_eq!(bench.leftovers(), 2, "they may be somebody's");
    drop(filling);
    open(bench.dir.path());
    assert_eq!(bench.leftovers(), 0);
    leave();
    bench.store.import("a", &bench.file("a.wat", b"(module)")).await.expect("imports");
    bench.store.remove("a").await.expect("removes");
    assert_eq!(bench.leftovers(), 0);
}

#[tokio::test]
async fn what_is_no_image_is_rejected_and_leaves_nothing() {
    let bench = bench();
    let windows = tar_of(&[("manifest.json", b"[{\"Config\":\"../../etc/passwd\",\"Layers\":[]}]")]);
    let broken = saved(&[b"this is no tar archive, however long it may be".repeat(40)], "/bin/x");
    for (file, content, wanted) in [
        ("a.wasm", &b"not wasm"[..], "does not begin with"),
        ("b.wasm", &b""[..], "does not begin with"),
        ("c.wat", &b"(modul)"[..], "not WebAssembly text"),
        ("d.tar", &b"text"[..], "no .wasm or .wat file"),
        ("e.tar", &tar_of(&[("readme", b"x")])[..], "neither an oci-layout"),
        ("f.tar", &windows[..], "not in the archive"),
        ("g.tar", &broken[..], "unpacking layer"),
    ] {
        let error = bench.store.import("x", &bench.file(file, content)).await.expect_err(file).to_string();
        assert!(error.contains(wanted), "{file}: {error}");
        assert!(bench.store.get("x").await.expect("reads").is_none(), "{file}");
        assert_eq!(bench.leftovers(), 0, "{file}");
    }
}

/// The runtime of this test has one thread. A sweep holds its lock across awaits: a task that waits for the lock must leave the
/// thread to the sweep.
#[tokio::test]
async fn an_image_that_arrives_during_a_sweep_waits_for_it() {
    let bench = bench();
    let sweeping = bench.store.index.sweeping().expect("a lock");
    assert!(sweeping.is_some());
    let end_of_sweep = async move {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(sweeping);
    };
    let (imported, ()) = tokio::join!(bench.store.import("a", Path::new("/dev/null/nothing")), end_of_sweep);
    assert!(matches!(imported, Err(ImageError::Io { .. })), "{imported:?}");
}

/// An archive in which a file has links for content that is the node's own.
#[tokio::test]
async fn an_archive_gives_nothing_of_the_node_for_its_own() {
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), EMPTY_MODULE).expect("writes");
    let digest = digest_of(EMPTY_MODULE);
    let blob = format!("blobs/sha256/{}", &digest[7..]);
    let document = json!({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 8}]});
    let document = document.to_string();
    let special = |kind: tar::EntryType, name: &str, target: Option<&Path>| {
        let mut header = header();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_mode(0o644);
        let mut builder = tar::Builder::new(Vec::new());
        match target {
            Some(target) => builder.append_link(&mut header, name, target).expect("appends"),
            None => builder.append_data(&mut header, name, &b""[..]).expect("appends"),
        }
        let mut bytes = builder.into_inner().expect("finishes");
        bytes.truncate(bytes.len() - 1_024);
        bytes
    };
    let layout = tar_of(&[("oci-layout", b"{}"), ("index.json", document.as_bytes())]);
    let bare = tar_of(&[("oci-layout", b"{}")]);
    for (what, archive, wanted) in [
        ("a blob that is a link", [special(tar::EntryType::Symlink, &blob, Some(secret.path())), layout.clone()], "is not in the archive"),
        (
            "a blob that never ends",
            [special(tar::EntryType::Symlink, &blob, Some(Path::new("/dev/zero"))), layout.clone()],
            "is not in the archive",
        ),
        ("a blob that is a pipe", [special(tar::EntryType::Fifo, &blob, None), layout], "or is no file there"),
        (
            "an index that is a link",
            [special(tar::EntryType::Symlink, "index.json", Some(secret.path())), bare.clone()],
            "is not in the archive",
        ),
        ("an index that is a pipe", [special(tar::EntryType::Fifo, "index.json", None), bare], "or is no file there"),
    ] {
        let bench = bench();
        let file = bench.file("i.tar", &archive.concat());
        let import = bench.store.import("x", &file);
        let imported = tokio::time::timeout(std::time::Duration::from_secs(20), import).await.expect(what);
        let error = imported.expect_err(what).to_string();
        assert!(error.contains(wanted), "{what}: {error}");
    }
}

/// A helper that notes each of its runs in a file.
fn counted(log: &Path) -> Helper {
    let program = std::env::current_exe().expect("a program");
    let script = format!("echo run >> {}; exec {} {SERVE}", log.display(), program.display());
    Helper::new("/bin/sh", &["-c", &script])
}

#[tokio::test]
async fn a_bad_layer_is_not_tried_again_for_each_who_waits_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("runs");
    let store = ImageStore::open(&dir.path().join("store"), counted(&log)).expect("opens");
    let bad = vec![b'x'; 100_000];
    let config = json!({"os": "linux", "architecture": if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" },
        "rootfs": {"diff_ids": [digest_of(&bad)]}, "config": {"Entrypoint": ["/x"]}});
    let image = dir.path().join("image");
    std::fs::create_dir(&image).expect("made");
    let manifest = json!([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": ["layer.tar"]}]);
    for (name, content) in [("config.json", config.to_string()), ("manifest.json", manifest.to_string())] {
        std::fs::write(image.join(name), content).expect("written");
    }
    std::fs::write(image.join("layer.tar"), &bad).expect("written");
    let places = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    let names: Vec<String> = (0..places + 3).map(|number| format!("x{number}")).collect();
    let all = futures::future::join_all(names.iter().map(|name| store.import(name, &image))).await;
    for imported in all {
        assert!(matches!(imported, Err(ImageError::Refused { .. })), "{imported:?}");
    }
    let runs = std::fs::read_to_string(&log).expect("reads").lines().count();
    assert!((1..=places).contains(&runs), "{runs} runs for {} images", names.len());
}

#[tokio::test]
async fn a_layer_cannot_write_outside_itself() {
    let bench = bench();
    let outside = bench.dir.path().join("outside");
    let mut builder = tar::Builder::new(Vec::new());
    let mut link = header();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "way", bench.dir.path()).expect("appends");
    let mut file = header();
    file.set_size(1);
    file.set_mode(0o644);
    builder.append_data(&mut file, "way/outside", &b"x"[..]).expect("appends");
    let layer = builder.into_inner().expect("finishes");
    assert!(bench.store.import("x", &bench.file("i.tar", &saved(&[layer], "/x"))).await.is_err());
    assert!(!outside.exists());
}

#[tokio::test]
async fn removing_the_last_name_removes_the_blobs() {
    let bench = bench();
    bench.store.import("a", &bench.file("a.wat", b"(module)")).await.expect("imports");
    bench.store.import("b", &bench.file("a.wat", b"(module)")).await.expect("imports");
    bench.store.remove("a").await.expect("removes");
    assert!(bench.store.blobs.has(&digest_of(EMPTY_MODULE)));
    bench.store.remove("b").await.expect("removes");
    assert!(!bench.store.blobs.has(&digest_of(EMPTY_MODULE)));
    assert!(matches!(bench.store.remove("b").await, Err(ImageError::Unknown { .. })));
}

#[tokio::test]
async fn policies_and_names_are_stored() {
    let bench = bench();
    assert!(matches!(bench.store.pull("absent", PullPolicy::Never, &[]).await, Err(ImageError::NeverPull { .. })));
    assert!(matches!(bench.store.pull("Bad Name", PullPolicy::Always, &[]).await, Err(ImageError::InvalidName { .. })));
    let error = bench.store.pull("127.0.0.1:1/x", PullPolicy::IfNotPresent, &[]).await.expect_err("nobody listens").to_string();
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn an_image_that_has_just_come_is_no_garbage() {
    let bench = bench();
    bench.store.import("young", &bench.file("b.wasm", EMPTY_MODULE)).await.expect("imports");
    assert_eq!(bench.store.collect(&BTreeSet::new, 0, 0).await.expect("collects"), []);
    assert_eq!(bench.store.list().await.expect("lists").len(), 1);
}

#[tokio::test]
async fn what_pods_use_by_any_of_its_names_is_no_garbage() {
    let bench = bench();
    let list = bench.dir.path().join("store/images.json");
    // Modules of the same content would be one image.
    for name in ["by-name", "by-id", "unused", "last"] {
        let module = wat::parse_str(format!("(module (func (export \"{name}\")))")).expect("a module");
        bench.store.import(name, &bench.file(&format!("{name}.wasm"), &module)).await.expect("imports");
    }
    let id = bench.store.get("by-id").await.expect("reads").expect("it is there").id;
    let mut images: serde_json::Value = serde_json::from_slice(&std::fs::read(&list).expect("read")).expect("JSON");
    images.as_array_mut().expect("images").iter_mut().for_each(|image| image["used_at_s"] = 0.into());
    std::fs::write(&list, images.to_string()).expect("written");
    let in_use = || ["docker.io/library/by-name:latest", &id, "last", "Not A Name"].map(str::to_owned).into();
    assert_eq!(bench.store.collect(&in_use, 101, 0).await.expect("collects"), [], "the disk has room");
    let removed = bench.store.collect(&in_use, 0, 0).await.expect("collects");
    let names: Vec<_> = removed.iter().flat_map(|image| &image.references).collect();
    assert_eq!(names, ["docker.io/library/unused:latest"]);
}

#[tokio::test]
async fn a_damaged_list_is_put_aside_and_the_images_come_anew() {
    let bench = bench();
    let file = bench.file("m.wasm", EMPTY_MODULE);
    let list = bench.dir.path().join("store/images.json");
    for torn in [&b""[..], b"[{\"id\": \"sha", b"\0\0\0\0"] {
        bench.store.import("m:1", &file).await.expect("imports");
        std::fs::write(&list, torn).expect("written");
        let store = open(bench.dir.path());
        assert_eq!(store.list().await.expect("lists"), []);
        assert_eq!(std::fs::read(list.with_extension("json.damaged")).expect("is kept"), torn);
        store.import("m:1", &file).await.expect("imports");
        assert!(store.get("m:1").await.expect("reads").is_some());
    }
}

#[tokio::test]
async fn an_image_of_which_a_part_is_missing_is_not_present() {
    let bench = bench();
    let saved = bench.file("i.tar", &saved(&[tar_of(&[("bin/", b""), ("bin/x", b"x")])], "/bin/x"));
    let file = bench.file("m.wasm", EMPTY_MODULE);
    for (name, file) in [("i:1", &saved), ("m:1", &file)] {
        let image = bench.store.import(name, file).await.expect("imports");
        assert!(bench.store.get(name).await.expect("reads").is_some());
        for layer in &image.layers {
            std::fs::remove_dir_all(unpack::dir(&bench.store, layer).expect("a digest")).expect("removes");
        }
        for blob in &image.blobs {
            std::fs::remove_file(bench.store.blobs.path(blob).expect("a digest")).expect("removes");
        }
        assert!(bench.store.get(name).await.expect("reads").is_none(), "{name}");
        let refused = bench.store.pull(name, PullPolicy::Never, &[]).await.expect_err("it is not there");
        assert!(matches!(refused, ImageError::NeverPull { .. }), "{refused}");
        bench.store.import(name, file).await.expect("imports again");
        assert!(bench.store.get(name).await.expect("reads").is_some(), "{name}");
    }
}
