//! Images made to break the unpacker: each is rejected with a message that names the limit, costs this process no memory and
//! leaves nothing on the disk.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::time::Instant;

use super::*;

/// What this process may have grown to after all of them.
const MEMORY_KIB_MAX: u64 = 256 << 10;

/// An entry whose header may say what it likes.
fn entry(kind: tar::EntryType, name: &str, size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = header();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    // The library's own function takes no name that leaves the archive.
    header.as_gnu_mut().expect("a GNU header").name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(size);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn link(kind: tar::EntryType, name: &str, target: &str) -> Vec<u8> {
    let mut header = header();
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_path(name).expect("a path");
    header.set_link_name_literal(target).expect("a link");
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// An extended header with fields of PAX.
fn pax(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in fields {
        let rest = key.len() + value.len() + 3;
        let len = (1..).find(|digits| (rest + digits).to_string().len() == *digits).expect("a length") + rest;
        text.extend(format!("{len} {key}=").bytes().chain(value.iter().copied()).chain([b'\n']));
    }
    entry(tar::EntryType::XHeader, "pax", text.len() as u64, &text)
}

fn end(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend([0; 1_024]);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("writes");
    encoder.finish().expect("finishes")
}

/// A frame that asks for a window of 2 GiB; compressed blocks need not follow.
fn zstd_with_a_huge_window() -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(31).expect("a window");
    encoder.include_contentsize(false).expect("an option");
    encoder.write_all(&vec![7; 1 << 20]).expect("writes");
    encoder.flush().expect("flushes");
    encoder.finish().expect("finishes")
}

/// A `docker save` archive of one layer, whose configuration names another digest.
fn image_of(layer: &[u8]) -> Vec<u8> {
    saved(&[layer.to_vec()], "/bin/x")
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a high-water mark");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn everything_below(dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).expect("lists") {
        let entry = entry.expect("an entry");
        let meta = entry.metadata().expect("is there");
        bytes += if meta.is_dir() { everything_below(&entry.path()) } else { meta.len() };
    }
    bytes
}

#[tokio::test]
async fn bombs_are_rejected_in_words_and_leave_nothing() {
    let bench = bench();
    let deep = format!("{}x", "d/".repeat(300));
    let long = "n".repeat(20_000);
    let attributes: Vec<(String, &[u8])> = (0..100).map(|n| (format!("SCHILY.xattr.user.{n}"), &b"1"[..])).collect();
    let attributes: Vec<(&str, &[u8])> = attributes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let opaque: Vec<u8> = (0..5_000).flat_map(|n| entry(tar::EntryType::Regular, &format!("{n}/.wh..wh..opq"), 0, b"")).collect();
    let zeros = vec![0; 1 << 20];
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a PAX record of a terabyte", entry(tar::EntryType::XHeader, "p", 1 << 40, &zeros), "an extended header of 1024 GiB"),
        ("the same, compressed", gzip(&entry(tar::EntryType::XHeader, "p", 1 << 40, &zeros)), "an extended header of 1024 GiB"),
        ("a long name", entry(tar::EntryType::GNULongName, "l", 1 << 33, &zeros), "a name of 8 GiB"),
        ("a file of a terabyte", gzip(&entry(tar::EntryType::Regular, "f", 1 << 40, &zeros)), "it is larger than 1024 MiB unpacked"),
        ("a window of 2 GiB", zstd_with_a_huge_window(), "too much memory"),
        (
            "a deep path",
            end([pax(&[("path", deep.as_bytes())]), entry(tar::EntryType::Regular, "x", 0, b"")].concat()),
            "a path of 301 levels",
        ),
        (
            "a long path",
            end([pax(&[("path", long.as_bytes())]), entry(tar::EntryType::Regular, "x", 0, b"")].concat()),
            "a path of 20000 bytes",
        ),
        ("a way up", end(entry(tar::EntryType::Regular, "a/../../b", 0, b"")), "leaves the archive"),
        ("a hard link to the node", end(link(tar::EntryType::Link, "passwd", "/etc/passwd")), "No such file"),
        (
            "many attributes",
            end([pax(&attributes), entry(tar::EntryType::Regular, "x", 0, b"")].concat()),
            "more than 64 extended attributes",
        ),
        ("many opaque directories", gzip(&end(opaque)), "more than 4096 opaque directories"),
        ("a truncated stream", gzip(&vec![b'x'; 1 << 16])[..200].to_vec(), "unpacking layer"),
    ];
    for (what, layer, wanted) in cases {
        let begun = Instant::now();
        let file = bench.file("i.tar", &image_of(&layer));
        let error = bench.store.import("x", &file).await.expect_err(what);
        let text = error.to_string();
        assert!(matches!(error, ImageError::Refused { .. }) && text.contains(wanted), "{what}: {text}");
        let again = bench.store.import("x", &file).await.expect_err(what);
        assert_eq!(again.to_string(), text, "{what}: remembered");
        assert!(begun.elapsed().as_secs() < 60, "{what}: {:?}", begun.elapsed());
        assert_eq!(bench.leftovers(), 0, "{what}");
    }
    let left = everything_below(&bench.dir.path().join("store"));
    assert!(left < 1_000, "{left} bytes are left");
    assert!(memory_kib() < MEMORY_KIB_MAX, "{} KiB", memory_kib());
}

#[tokio::test]
async fn an_image_that_would_fill_the_disk_is_rejected() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    // 8 MiB are to be had, whatever others write to this disk meanwhile.
    let store = open(dir.path()).with_free_min(move |_| {
        let disk = nix::sys::statvfs::statvfs(&path).expect("a disk");
        (disk.blocks_available() * disk.fragment_size()).saturating_sub(8 << 20)
    });
    let bench = Bench { dir, store };
    let big = gzip(&end(entry(tar::EntryType::Regular, "f", 1 << 30, &vec![0; 1 << 20])));
    let trailing = gzip(&end([end(entry(tar::EntryType::Regular, "f", 0, b"")), vec![0; 64 << 20]].concat()));
    for layer in [big, trailing] {
        let error = bench.store.import("x", &bench.file("i.tar", &image_of(&layer))).await.expect_err("too large");
        assert!(matches!(error, ImageError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("no space left on the device while unpacking layer"), "{error}");
        assert!(error.to_string().ends_with(&format!("; free space on the disk of {}", bench.store.dir().display())), "{error}");
        assert_eq!(bench.leftovers(), 0);
    }
}

#[tokio::test]
async fn what_an_image_may_have_it_has() {
    let bench = bench();
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let attributes: &[(&str, &[u8])] = &[
        ("SCHILY.xattr.user.note", b"mine"),
        ("SCHILY.xattr.security.capability", &capability),
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.security.selinux", b"u:r:t"),
    ];
    let layer = end([
        entry(tar::EntryType::Directory, "dev/", 0, b""),
        entry(tar::EntryType::Char, "dev/sda", 0, b""),
        entry(tar::EntryType::Fifo, "pipe", 0, b""),
        pax(attributes),
        entry(tar::EntryType::Regular, "bin/su", 3, b"su!"),
        entry(tar::EntryType::Regular, "bin/su", 4, b"su!!"),
        entry(tar::EntryType::Regular, "etc/.wh..wh..opq", 0, b""),
        entry(tar::EntryType::Regular, ".wh..wh.plnk", 0, b""),
        link(tar::EntryType::Link, "hard", "bin/su"),
        link(tar::EntryType::Symlink, "way", "/bin"),
        // Below a link that is absolute: in the image, not on the node.
        entry(tar::EntryType::Regular, "way/tool", 1, b"t"),
    ]
    .concat());
    let image = bench.store.import("x", &bench.file("i.tar", &image_of(&layer))).await.expect("imports");
    let top = unpack::dir(&bench.store, &image.layers[0]).expect("digests");
    let meta = |path: &str| top.join(path).symlink_metadata();
    assert!(meta("dev/sda").is_err() && meta("pipe").expect("is there").file_type().is_fifo());
    let su = meta("bin/su").expect("is there");
    assert_eq!((su.mode() & 0o7777, su.len(), su.nlink()), (0o4755, 4, 2));
    assert_eq!(std::fs::read(top.join("bin/tool")).expect("reads"), b"t");
    assert_eq!(xattr::get(top.join("etc"), "trusted.overlay.opaque").expect("reads").as_deref(), Some(&b"y"[..]));
    assert!(meta(".wh..wh.plnk").is_err() && meta("etc/.wh..wh..opq").is_err());
    // The second entry of that name had no attributes of its own.
    assert_eq!(xattr::list(top.join("bin/su")).expect("lists").count(), 0);
    let attributed = end([pax(attributes), entry(tar::EntryType::Regular, "bin/ping", 0, b"")].concat());
    let image = bench.store.import("y", &bench.file("i.tar", &image_of(&attributed))).await.expect("imports");
    let ping = unpack::dir(&bench.store, &image.layers[0]).expect("digests").join("bin/ping");
    let mut names: Vec<_> = xattr::list(&ping).expect("lists").map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["security.capability", "user.note"]);
    assert_eq!(xattr::get(&ping, "security.capability").expect("reads").as_deref(), Some(&capability[..]));
}

#[tokio::test]
async fn a_layer_whose_content_is_not_what_its_name_says_is_seen_by_no_other_image() {
    let bench = bench();
    let honest = tar_of(&[("etc/", b""), ("etc/motd", b"hello")]);
    // The same configuration, hence the same digests of the content, over other blobs.
    let config = json!({"os": "linux", "architecture": if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" },
        "rootfs": {"diff_ids": [digest_of(&honest)]}, "config": {"Entrypoint": ["/x"]}})
    .to_string();
    let manifest = json!([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": ["layer.tar"]}]).to_string();
    let image = |layer: &[u8]| tar_of(&[("config.json", config.as_bytes()), ("manifest.json", manifest.as_bytes()), ("layer.tar", layer)]);
    let forged = tar_of(&[("etc/", b""), ("etc/motd", b"hollo")]);
    let error = bench.store.import("forged", &bench.file("i.tar", &image(&forged))).await.expect_err("forged").to_string();
    assert!(error.contains("its configuration says"), "{error}");
    let plain = bench.store.import("plain", &bench.file("i.tar", &image(&honest))).await.expect("imports");
    let packed = bench.store.import("packed", &bench.file("i.tar", &image(&gzip(&honest)))).await.expect("imports");
    let dirs: Vec<_> = [&plain, &packed].iter().map(|image| unpack::dir(&bench.store, &image.layers[0]).expect("digests")).collect();
    assert_ne!(dirs[0], dirs[1], "one blob's content is not another's");
    assert!(dirs.iter().all(|dir| std::fs::read(dir.join("etc/motd")).is_ok_and(|text| text == b"hello")));
}

/// A `docker save` archive of one layer, with a configuration of one's own.
fn described(config: &serde_json::Value, layer: &[u8]) -> Vec<u8> {
    let config = config.to_string();
    let manifest = json!([{"Config": "config.json", "RepoTags": ["x:y"], "Layers": ["layer.tar"]}]).to_string();
    tar_of(&[("config.json", config.as_bytes()), ("manifest.json", manifest.as_bytes()), ("layer.tar", layer)])
}

fn config_of(diff_id: &str, more: serde_json::Value) -> serde_json::Value {
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    json!({"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": [diff_id]}, "config": more})
}

/// Anybody may name a layer that others use, and say something wrong of it.
#[tokio::test]
async fn who_describes_a_layer_wrongly_keeps_it_from_nobody_else() {
    let bench = bench();
    let base = tar_of(&[("etc/", b""), ("etc/motd", b"everybody's base")]);
    let wrong = config_of(&digest_of(b"something else"), json!({"Entrypoint": ["/x"]}));
    for _ in 0..2 {
        let error = bench.store.import("wrong", &bench.file("i.tar", &described(&wrong, &base))).await.expect_err("wrong").to_string();
        assert!(error.contains("its configuration says"), "{error}");
    }
    let right = config_of(&digest_of(&base), json!({"Entrypoint": ["/x"]}));
    bench.store.import("right", &bench.file("i.tar", &described(&right, &base))).await.expect("imports");
}

#[tokio::test]
async fn a_configuration_that_would_fill_the_list_of_images_is_rejected() {
    let bench = bench();
    let base = tar_of(&[("etc/", b"")]);
    for env in [vec!["A=".to_owned() + &"x".repeat(300 << 10)], vec![String::new(); 100_000]] {
        let config = config_of(&digest_of(&base), json!({"Entrypoint": ["/x"], "Env": env}));
        let error = bench.store.import("x", &bench.file("i.tar", &described(&config, &base))).await.expect_err("too long").to_string();
        assert!(error.contains("take more than 256 KiB"), "{error}");
    }
}

#[tokio::test]
async fn a_module_that_nobody_would_compile_is_not_stored() {
    let bench = bench();
    let mut module = EMPTY_MODULE.to_vec();
    module.resize(257 << 20, 0);
    let layer = gzip(&tar_of(&[("m.wasm", &module)]));
    let config = config_of(&digest_of(&tar_of(&[("m.wasm", &module)])), json!({"Entrypoint": ["/m.wasm"]}));
    let error = bench.store.import("x", &bench.file("i.tar", &described(&config, &layer))).await.expect_err("too long").to_string();
    assert!(error.contains("its module is 257 MiB long; at most 256 MiB are compiled"), "{error}");
}

/// Text is parsed beside this process, too.
#[tokio::test]
async fn text_that_is_no_module_is_rejected_in_words() {
    let bench = bench();
    for (what, text) in [("no module", "(nothing)"), ("half a module", "(module (func"), ("no text", "\u{0}")] {
        let error = bench.store.import("x", &bench.file("m.wat", text.as_bytes())).await.expect_err(what);
        assert!(matches!(error, ImageError::NotRunnable { .. }), "{what}: {error}");
        assert_eq!(bench.leftovers(), 0, "{what}");
    }
}
