//! Images that are built for other machines alone: the Pod says for which one, and what this node runs.

use std::fs;

use serde_json::json;
use tests::{Kubectl, Net};

use super::{MANIFEST, OPEN, Registry, archive, digest, is_not_pulled, pod};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

pub(super) fn images_for_other_machines_say_so(net: &Net, kubectl: &Kubectl<'_>, registry: &Registry) {
    let here = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let files = tempfile::tempdir().expect("a directory");
    fs::write(files.path().join("program"), "of a mainframe").expect("written");
    let layer = registry.dir.path().join("foreign.tar");
    let diff_id = archive(files.path(), "program", &layer);
    let config = json!({"architecture": "s390x", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff_id]}});
    let layer = ("application/vnd.oci.image.layer.v1.tar", layer.as_path());
    registry.push(net, "foreign", ("application/vnd.oci.image.config.v1+json", &config), layer);

    // The same image in an index that has no other.
    let manifest = registry.dir.path().join("manifest.json");
    let entry = json!({"mediaType": MANIFEST, "digest": digest(&manifest), "size": manifest.metadata().expect("a file").len(),
        "platform": {"os": "linux", "architecture": "s390x"}});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    let (kind, url) = (format!("Content-Type: {INDEX}"), format!("http://{OPEN}/v2/foreign/manifests/index"));
    registry.curl(net, &["-X", "PUT", "-H", &kind, "--data-binary", &index, &url]);

    for (name, tag, words) in [
        ("foreign", "v1", format!("cannot run here: it is built for linux/s390x, this node runs linux/{here} and WASM")),
        ("foreign-index", "index", format!("no matching manifest for linux/{here} or wasi/wasm in the manifest list entries")),
    ] {
        pod(kubectl, name, "runc", &format!("{OPEN}/foreign:{tag}"), "");
        is_not_pulled(kubectl, name, &words);
    }
}
