//! Putting files into the store: WASM modules as text or binary, OCI layouts (a directory or its tar
//! archive) and `docker save` archives.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::assemble::{Parts, assemble, module, needed, not_runnable};
use crate::blobs::DOCUMENT_BYTES_MAX;
use crate::manifest::{self, Descriptor, Document};
use crate::reference::Name;
use crate::{Image, ImageConfig, ImageError, ImageStore, unpack};

pub(crate) async fn import(store: &ImageStore, name: &Name, file: &Path) -> Result<Image, ImageError> {
    let kind = std::fs::metadata(file).map_err(ImageError::io(format!("reading {}", file.display())))?;
    if kind.is_dir() {
        return directory(store, name, file).await;
    }
    match file.extension().and_then(|e| e.to_str()) {
        Some("wat") => text_module(store, name, file).await,
        Some("wasm") => binary_module(store, name, file).await,
        _ => archive(store, name, file).await,
    }
}

async fn binary_module(store: &ImageStore, name: &Name, file: &Path) -> Result<Image, ImageError> {
    let (digest, size) = store.blobs.put_file(file).await?;
    named_module(store, name, file, digest, size).await
}

async fn text_module(store: &ImageStore, name: &Name, file: &Path) -> Result<Image, ImageError> {
    let temporary = store.temporary()?;
    let made = temporary.path().join("made");
    let put = match unpack::text_module(store, file, &made).await {
        Ok(()) => store.blobs.put_file(&made.join(unpack::TEXT_MODULE)).await,
        Err(ImageError::Refused { reason, .. }) => Err(not_runnable(name, reason)),
        Err(error) => Err(error),
    };
    temporary.remove().await;
    let (digest, size) = put?;
    named_module(store, name, file, digest, size).await
}

async fn named_module(store: &ImageStore, name: &Name, file: &Path, digest: String, size_bytes: u64) -> Result<Image, ImageError> {
    let argv0 = file.with_extension("wasm").file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let config = ImageConfig { entrypoint: vec![argv0], ..ImageConfig::default() };
    let image = module(store, name, digest, config).await?;
    Ok(Image { references: vec![name.whole()], size_bytes, ..image })
}

async fn archive(store: &ImageStore, name: &Name, file: &Path) -> Result<Image, ImageError> {
    let temporary = store.temporary()?;
    let files = temporary.path().join("files");
    let image = match unpack::package(store, file, &files).await {
        Ok(()) => directory(store, name, &files).await,
        Err(ImageError::Refused { reason, .. }) => {
            Err(not_runnable(name, format!("{} is no .wasm or .wat file, OCI layout or docker-save archive: {reason}", file.display())))
        }
        Err(error) => Err(error),
    };
    temporary.remove().await;
    image
}

async fn directory(store: &ImageStore, name: &Name, dir: &Path) -> Result<Image, ImageError> {
    let parts = if dir.join("oci-layout").exists() {
        oci_layout(store, name, dir).await?
    } else if dir.join("manifest.json").exists() {
        docker_save(store, name, dir).await?
    } else {
        return Err(not_runnable(name, "it holds neither an oci-layout nor a manifest.json".to_owned()));
    };
    for layer in &parts.manifest.layers {
        if needed(&parts)?.contains(&layer.digest) && !store.blobs.has(&layer.digest) {
            put_checked(store, name, dir, &layer.digest).await?;
        }
    }
    assemble(store, parts).await
}

async fn oci_layout<'a>(store: &ImageStore, name: &'a Name, dir: &Path) -> Result<Parts<'a>, ImageError> {
    let mut document = parsed(name, &read(&inside(name, dir, "index.json")?)?)?;
    let mut digest = None;
    // An index may name indexes; three levels are more than any tool writes.
    for _level in 0..3 {
        let Some(entries) = document.manifests.take() else { break };
        let entry: &Descriptor = match entries.as_slice() {
            [one] => one,
            several => manifest::choose(several).map_err(|reason| not_runnable(name, reason.to_string()))?,
        };
        put_checked(store, name, dir, &entry.digest).await?;
        document = parsed(name, &store.blobs.document(&entry.digest)?)?;
        digest = Some(entry.digest.clone());
    }
    let config = document.config.clone().ok_or_else(|| not_runnable(name, "its manifest has no configuration".to_owned()))?;
    put_checked(store, name, dir, &config.digest).await?;
    let bytes = store.blobs.document(&config.digest)?;
    Ok(Parts { name, manifest: document, digest, config: (config.digest, bytes) })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// A `docker save` archive names its files freely: they are stored first and then described by a
/// manifest of the usual form.
async fn docker_save<'a>(store: &ImageStore, name: &'a Name, dir: &Path) -> Result<Parts<'a>, ImageError> {
    let saved: Vec<Saved> = serde_json::from_slice(&read(&inside(name, dir, "manifest.json")?)?)
        .map_err(|error| not_runnable(name, format!("its manifest.json is malformed: {error}")))?;
    let [saved] = saved.as_slice() else {
        return Err(not_runnable(name, format!("the archive holds {} images; save one at a time", saved.len())));
    };
    let (config, _) = store.blobs.put_file(&inside(name, dir, &saved.config)?).await?;
    let mut layers = Vec::new();
    for layer in &saved.layers {
        let (digest, size) = store.blobs.put_file(&inside(name, dir, layer)?).await?;
        layers.push(Descriptor { media_type: "application/vnd.docker.image.rootfs.diff.tar".to_owned(), digest, size, platform: None });
    }
    let bytes = store.blobs.document(&config)?;
    let descriptor = Descriptor {
        media_type: "application/vnd.docker.container.image.v1+json".to_owned(),
        digest: config.clone(),
        size: bytes.len() as u64,
        platform: None,
    };
    Ok(Parts { name, manifest: Document { manifests: None, config: Some(descriptor), layers }, digest: None, config: (config, bytes) })
}

/// A regular file of the archive by its path, which must stay inside: links are followed (`docker save` writes some), but
/// neither a link to the node's own files nor a pipe is read.
fn inside(name: &Name, dir: &Path, path: &str) -> Result<PathBuf, ImageError> {
    let outside = || not_runnable(name, format!("{path:?} is not in the archive, or is no file there"));
    let whole = dir.join(path).canonicalize().map_err(|_| outside())?;
    let root = dir.canonicalize().map_err(|_| outside())?;
    if whole.starts_with(root) && whole.is_file() { Ok(whole) } else { Err(outside()) }
}

async fn put_checked(store: &ImageStore, name: &Name, dir: &Path, wanted: &str) -> Result<(), ImageError> {
    if store.blobs.has(wanted) {
        return Ok(());
    }
    let file = inside(name, dir, &blob_path(wanted))?;
    let (found, _) = store.blobs.put_file(&file).await?;
    if found == wanted { Ok(()) } else { Err(not_runnable(name, format!("blob {wanted} has the content of {found}"))) }
}

fn blob_path(digest: &str) -> String {
    // A digest with a path in it leads to no file of the layout, and its content would not fit it.
    format!("blobs/sha256/{}", crate::blobs::hex(digest).unwrap_or("malformed"))
}

fn parsed(name: &Name, bytes: &[u8]) -> Result<Document, ImageError> {
    manifest::parse(bytes).map_err(|reason| not_runnable(name, reason.to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(DOCUMENT_BYTES_MAX).read_to_end(&mut bytes).map(|_| bytes)
    };
    read().map_err(ImageError::io(format!("reading {}", path.display())))
}
