//! Makes an image from blobs in the store: unpacks its layers, or extracts and checks its module.

use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use runtimes_contract::{ContentKind, RuntimeError};

use crate::blobs::malformed;
use crate::manifest::{self, Document, Shape};
use crate::reference::Name;
use crate::{Image, ImageConfig, ImageError, ImageStore, Layer, unpack};
use runtimes_host::blocking;

/// Layers unpacked at once.
const UNPACKING_MAX: usize = 2;
/// An image of a module alone has no more directory entries than that.
const ENTRIES_MAX: usize = 64;
/// The first bytes of every WASM module and component.
const WASM_MAGIC: &[u8] = b"\0asm";

/// An image's documents, all in the store.
pub(crate) struct Parts<'a> {
    pub name: &'a Name,
    pub manifest: Document,
    /// The digest of the manifest, if there is one.
    pub digest: Option<String>,
    /// Digest and content of the configuration.
    pub config: (String, Vec<u8>),
}

/// The blobs of a manifest that must be in the store before [`assemble`].
pub(crate) fn needed(parts: &Parts<'_>) -> Result<Vec<String>, ImageError> {
    let (shape, _) = read(parts)?;
    Ok(match shape {
        Shape::Module { layer } => vec![layer],
        Shape::Layers { layers, .. } => layers.into_iter().map(|(blob, _)| blob).collect(),
    })
}

pub(crate) async fn assemble(store: &ImageStore, parts: Parts<'_>) -> Result<Image, ImageError> {
    let (shape, config) = read(&parts)?;
    let size_bytes = parts.manifest.layers.iter().map(|layer| layer.size).sum();
    let image = match shape {
        Shape::Module { layer } => module(store, parts.name, layer, config).await?,
        Shape::Layers { layers, wasm_file: Some(file) } => {
            let mut blobs = blobs_of(&layers, &parts.config.0);
            let layers = unpacked(store, parts.name, &parts.config.0, layers).await?;
            let found =
                find(store, &layers, &file).ok_or_else(|| not_runnable(parts.name, format!("its entrypoint /{file} is not in it")))?;
            let len = found.metadata().map_err(ImageError::io(format!("reading {}", found.display())))?.len();
            manifest::check_module_len(len).map_err(|reason| not_runnable(parts.name, reason.to_string()))?;
            let (digest, _) = store.blobs.put_file(&found).await?;
            let image = module(store, parts.name, digest.clone(), config).await?;
            let dirs: Vec<_> = layers.iter().filter_map(|layer| unpack::dir(store, layer)).collect();
            let is_alone = blocking(move || is_alone(&dirs, &found));
            if is_alone.await.map_err(ImageError::io(format!("reading the layers of image {}", parts.name.given)))? {
                image
            } else {
                blobs.push(digest.clone());
                Image { id: parts.config.0, module: Some(digest), layers, blobs, ..image }
            }
        }
        Shape::Layers { layers, wasm_file: None } => {
            let blobs = blobs_of(&layers, &parts.config.0);
            let layers = unpacked(store, parts.name, &parts.config.0, layers).await?;
            Image { layers, blobs, id: parts.config.0, kind: ContentKind::Linux, ..blank(config) }
        }
    };
    let references = vec![parts.name.whole()];
    let digests = parts.digest.iter().map(|digest| parts.name.at(digest)).collect();
    Ok(Image { references, digests, size_bytes, ..image })
}

/// An image of one module, in whichever form it came; the caller sets `size_bytes` and the names.
pub(crate) async fn module(store: &ImageStore, name: &Name, digest: String, config: ImageConfig) -> Result<Image, ImageError> {
    let path = store.blobs.path(&digest).ok_or_else(|| malformed(&digest))?;
    let doing = format!("reading {}", path.display());
    let file = path.clone();
    let magic = blocking(move || {
        let mut start = [0; WASM_MAGIC.len()];
        std::io::Read::read_exact(&mut std::fs::File::open(path)?, &mut start).map(|()| start)
    });
    let magic = match magic.await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Vec::new(),
        other => other.map_err(ImageError::io(doing))?.to_vec(),
    };
    if magic != WASM_MAGIC {
        return Err(not_runnable(name, "its layer is not a WASM module: it does not begin with \\0asm".to_owned()));
    }
    check(store, name, &digest, file).await?;
    let mut config = config;
    if config.entrypoint.is_empty() && config.cmd.is_empty() {
        config.entrypoint = vec![file_name(&name.given)];
    }
    Ok(Image { id: digest.clone(), blobs: vec![digest], kind: ContentKind::Wasm, ..blank(config) })
}

/// A module that is in an image of the store was checked when it came: an image that is pulled again costs no process. The caller
/// has no slot of `unpacking`.
async fn check(store: &ImageStore, name: &Name, digest: &str, file: PathBuf) -> Result<(), ImageError> {
    let Some(module_check) = &store.module_check else { return Ok(()) };
    if store.index.all()?.iter().any(|image| image.id == digest || image.module.as_deref() == Some(digest)) {
        return Ok(());
    }
    let doing = format!("checking {}", file.display());
    let len = tokio::fs::metadata(&file).await.map_err(ImageError::io(doing.clone()))?.len();
    let _slot = store.unpacking.acquire(len).await;
    module_check(file).await.map_err(|error| match error {
        RuntimeError::BadContent(why) => not_runnable(name, why),
        error => ImageError::io(doing)(std::io::Error::other(error)),
    })
}

/// The blobs of an image with layers.
fn blobs_of(layers: &[(String, String)], config: &str) -> Vec<String> {
    layers.iter().map(|(blob, _)| blob.clone()).chain([config.to_owned()]).collect()
}

/// Whether nothing but directories is in the layers beside the module. An image with many directories counts as one with files.
fn is_alone(layers: &[PathBuf], module: &Path) -> std::io::Result<bool> {
    let (mut dirs, mut entries) = (layers.to_vec(), 0);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            entries += 1;
            match entry.file_type()?.is_dir() {
                _ if entries > ENTRIES_MAX => return Ok(false),
                true => dirs.push(entry.path()),
                false if entry.path() == module => {}
                false => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// The name of a module whose image names none: the image's name. Without it a program would take the first argument of a
/// container for its own name.
fn file_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or_default();
    let bare = last.split([':', '@']).next().unwrap_or_default();
    format!("{bare}.wasm")
}

fn blank(config: ImageConfig) -> Image {
    Image {
        id: String::new(),
        references: Vec::new(),
        digests: Vec::new(),
        kind: ContentKind::Linux,
        size_bytes: 0,
        config,
        layers: Vec::new(),
        module: None,
        blobs: Vec::new(),
        used_at_s: 0,
    }
}

fn read(parts: &Parts<'_>) -> Result<(Shape, ImageConfig), ImageError> {
    manifest::shape(&parts.manifest, &parts.config.1).map_err(|reason| not_runnable(parts.name, reason.to_string()))
}

pub(crate) fn not_runnable(name: &Name, reason: String) -> ImageError {
    ImageError::NotRunnable { image: name.given.clone(), reason }
}

async fn unpacked(store: &ImageStore, name: &Name, config: &str, layers: Vec<(String, String)>) -> Result<Vec<Layer>, ImageError> {
    let allowance = unpack::Allowance::for_image(config);
    stream::iter(layers)
        .map(|(blob, diff_id)| {
            let (layer, allowance) = (Layer { blob, diff_id }, &allowance);
            async move { unpack::layer(store, name, &layer, allowance).await.map(|()| layer) }
        })
        .buffered(UNPACKING_MAX)
        .try_collect()
        .await
}

/// A file of the stacked layers: the highest layer with the file wins. The image chooses its path: a `..` or a link in it must
/// not lead out of the image.
fn find(store: &ImageStore, layers: &[Layer], file: &str) -> Option<PathBuf> {
    let inside = |dir: PathBuf| {
        let dir = dir.canonicalize().ok()?;
        let path = dir.join(file).canonicalize().ok()?;
        (path.starts_with(&dir) && path.is_file()).then_some(path)
    };
    layers.iter().rev().filter_map(|layer| unpack::dir(store, layer)).find_map(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_a_name_is_called_after_its_image() {
        let cases = [("r.example:5000/apps/web:v1", "web.wasm"), ("web", "web.wasm"), ("r.example/a@sha256:00", "a.wasm")];
        for (image, wanted) in cases {
            assert_eq!(file_name(image), wanted);
        }
    }
}
