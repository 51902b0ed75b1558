//! Images that lost a part of their bytes: in the storage of the registry, which the digest tells, and before they were pushed, which only
//! the structure of the module tells. The Pod says so with the name of the image, and the node stores nothing of them. The image that was
//! damaged in the registry runs once it is there again.

use std::fs;
use std::path::{Path, PathBuf};

use tests::{Cluster, Kubectl, cluster, eventually};

use super::{OPEN, Registry, digest, is_not_pulled, pod, says};

/// A section with the name `x` that nothing reads: the node has no other image of the module.
const SECTION: [u8; 4] = [0, 2, 1, b'x'];

pub(super) fn images_that_lost_bytes_say_so(cluster: &Cluster, registry: &Registry) {
    let (net, kubectl, dir) = (&cluster.net, cluster.kubectl(), tempfile::tempdir().expect("a directory"));
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("written");
        path
    };
    let sample = |name: &str| fs::read(cluster::sample(name)).expect("a sample");
    let module = [&sample("hello.wasm")[..], &SECTION].concat();
    let whole = file("whole", &module);
    registry.push_module(net, "cut-later", &whole);
    let blob = stored(registry, &whole);
    fs::write(&blob, &module[..module.len() / 2]).expect("written");
    let message = refused(&kubectl, "cut-later");
    let words = format!("the registry sent other content than {}: {} of {} bytes ", digest(&whole), module.len() / 2, module.len());
    assert!(message.contains(&words) && message.contains("push the image again"), "{message}");
    until_absent(cluster, &whole);

    let component = sample("echo.wasm");
    let begins = &module[..3];
    for (name, bytes, words) in [
        ("cut-module", &module[..module.len() / 2], "cannot run here: invalid WebAssembly: unexpected end-of-file (at offset 0x"),
        ("cut-component", &component[..component.len() / 2], "cannot run here: invalid WebAssembly: "),
        ("cut-header", begins, "cannot run here: its layer is not a WASM module: it does not begin with \\0asm"),
    ] {
        let cut = file(name, bytes);
        registry.push_module(net, name, &cut);
        let message = refused(&kubectl, name);
        assert!(message.contains(words), "{name}: {message}");
        until_absent(cluster, &cut);
    }

    fs::write(&blob, &module).expect("written");
    pod(&kubectl, "mended", "wasmtime", &format!("{OPEN}/cut-later:v1"), "");
    says(&kubectl, "mended", "Hello from WebAssembly!");
}

/// Has a Pod pull the image of its name; returns why it cannot, which the events say, too.
#[track_caller]
fn refused(kubectl: &Kubectl<'_>, name: &str) -> String {
    let image = format!("{OPEN}/{name}:v1");
    pod(kubectl, name, "wasmtime", &image, "");
    let message = is_not_pulled(kubectl, name, &image);
    eventually("the event of a failed pull", || {
        let events = kubectl.ok(&format!("events --for pod/{name}"));
        if events.contains(&format!("Failed to pull image \"{image}\"")) { Ok(()) } else { Err(events) }
    });
    message
}

/// The file of a blob in the storage of the registry.
fn stored(registry: &Registry, of: &Path) -> PathBuf {
    let digest = digest(of);
    let hex = digest.strip_prefix("sha256:").expect("a digest");
    let path = registry.dir.path().join(format!("data/docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]));
    assert!(path.exists(), "{}", path.display());
    path
}

/// Waits until the node has no blob of that content, and no file that is being written.
fn until_absent(cluster: &Cluster, of: &Path) {
    let images = cluster.data_dir().join("images");
    let blob = images.join("blobs/sha256").join(digest(of).trim_start_matches("sha256:"));
    eventually("the store has nothing of the image", || {
        let written: Vec<_> = fs::read_dir(images.join("tmp")).expect("lists").flatten().map(|entry| entry.path()).collect();
        if written.is_empty() && !blob.exists() { Ok(()) } else { Err(format!("{written:?}, {}", blob.display())) }
    });
}
