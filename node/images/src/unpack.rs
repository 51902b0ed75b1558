//! Unpacks a layer into a directory that overlayfs can stack: with owners, modes and extended attributes, and with whiteouts in
//! overlayfs' form. A confined process unpacks ([`process`]). This half passes it the blob and an empty directory, verifies
//! what it reports, and renames the directory once the archive is completely in it.
//!
//! The name of the directory is the blob's digest, which was verified here, and not the digest of its content, which only that
//! process has computed: whatever it makes of a layer is visible to images with that very blob only.

mod bounds;
mod entry;
mod process;
mod records;
mod verdict;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use runtimes_host::helper::{Fault, HelperError, Job};
use sha2::{Digest as _, Sha256};
use xattr::FileExt as _;

pub(crate) use process::TEXT_MODULE;
pub use process::serve_unpack;
pub(crate) use records::Records;
pub(crate) use verdict::Verdict;

pub(crate) use bounds::LARGE_FROM;

use self::process::{Answer, Form, Question};
use crate::blobs::{hex, malformed};
use crate::reference::Name;
use crate::{ImageError, ImageStore, Layer, disk};
use runtimes_host::blocking;

/// Hex digits of a layer's directory. Few, because overlayfs' option string is bounded by a page.
const DIR_LEN: usize = 32;

/// The bytes that an image's layers may still use, and the name under which rejections of them are remembered.
pub(crate) struct Allowance {
    left: AtomicU64,
    image: String,
}

impl Allowance {
    /// All of it, for the image with that configuration.
    pub(crate) fn for_image(config: &str) -> Self {
        Self { left: AtomicU64::new(bounds::IMAGE_BYTES_MAX), image: config.to_owned() }
    }
}

/// The key of a remembered rejection. Whether a layer fits depends on its image's description of it and on the image's other
/// layers: an image that names the layers of others must not prevent their unpacking.
pub(crate) fn refusal(config: &str, blob: &str) -> String {
    format!("{config} {blob}")
}

/// The directory of a layer; `None` when a digest is malformed.
pub(crate) fn dir(store: &ImageStore, layer: &Layer) -> Option<PathBuf> {
    let name = Sha256::digest(format!("{}\n{}", hex(&layer.blob)?, hex(&layer.diff_id)?));
    let name: String = name.iter().take(DIR_LEN / 2).map(|byte| format!("{byte:02x}")).collect();
    Some(store.dir.join("layers").join(name))
}

/// Unpacks a layer unless its directory exists.
pub(crate) async fn layer(store: &ImageStore, name: &Name, layer: &Layer, allowance: &Allowance) -> Result<(), ImageError> {
    let target = dir(store, layer).ok_or_else(|| malformed(&layer.diff_id))?;
    if target.exists() {
        return Ok(());
    }
    let source = store.blobs.path(&layer.blob).ok_or_else(|| malformed(&layer.blob))?;
    let doing = format!("unpacking layer {} of image {}", layer.blob, name.given);
    let refusal = refusal(&allowance.image, &layer.blob);
    if let Some(reason) = store.refused.why(&refusal, Instant::now()) {
        return Err(refused(&doing, reason));
    }
    let temporary = store.temporary()?;
    let root = temporary.path().join("root");
    let done = fill(store, Form::Layer, Some(&refusal), &doing, &source, &root, allowance).await.and_then(|answer| {
        match answer.digest == layer.diff_id {
            true => Ok(answer),
            false => Err(refused(&doing, format!("its content is {}, its configuration says {}", answer.digest, layer.diff_id))),
        }
    });
    let done = match done {
        Ok(answer) => {
            let (root, target) = (root.clone(), target.clone());
            blocking(move || settle(&root, &answer, &target)).await.map_err(ImageError::io(doing))
        }
        Err(error) => {
            if let ImageError::Refused { reason, .. } = &error {
                store.refused.add(&refusal, reason, Instant::now());
            }
            Err(error)
        }
    };
    temporary.remove().await;
    done
}

/// Unpacks a package of files into a directory that does not exist yet.
pub(crate) async fn package(store: &ImageStore, file: &Path, target: &Path) -> Result<(), ImageError> {
    let doing = format!("unpacking {}", file.display());
    fill(store, Form::Package, None, &doing, file, target, &Allowance::for_image("package")).await.map(drop)
}

/// Compiles a text to a binary module, which is then [`TEXT_MODULE`] in a directory that does not exist yet.
pub(crate) async fn text_module(store: &ImageStore, file: &Path, target: &Path) -> Result<(), ImageError> {
    let doing = format!("reading {}", file.display());
    fill(store, Form::Text, None, &doing, file, target, &Allowance::for_image("text")).await.map(drop)
}

async fn fill(
    store: &ImageStore,
    form: Form,
    refusal: Option<&str>,
    doing: &str,
    source: &Path,
    root: &Path,
    allowance: &Allowance,
) -> Result<Answer, ImageError> {
    let made = {
        let (source, root) = (source.to_owned(), root.to_owned());
        blocking(move || {
            fs::create_dir(root)?;
            let file = File::open(source)?;
            Ok((file.metadata()?.len(), OwnedFd::from(file)))
        })
    };
    let (len, file) = made.await.map_err(ImageError::io(doing))?;
    let _slot = store.unpacking.acquire(len).await;
    // Others may have waited for a permit with the same layer, and one of them may have found out what it is.
    if let Some(reason) = refusal.and_then(|refusal| store.refused.why(refusal, Instant::now())) {
        return Err(refused(doing, reason));
    }
    let disk = disk::look(store)?;
    let budget = bounds::budget(len, allowance.left.load(Ordering::Relaxed), disk.spare(), disk.free_min);
    let job = Job { root, bounds: bounds::bounds(len, budget), question: Question { form, budget }, files: vec![file] };
    let answer: Answer = store.helper.run(job).await.map_err(|error| failed(doing, error, budget.bytes == disk.spare()))?;
    let left = |left: u64| Some(left.saturating_sub(answer.bytes));
    // `left` always returns a value.
    let _before = allowance.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    tracing::debug!(doing, bytes = answer.bytes, entries = answer.entries, "unpacked");
    Ok(answer)
}

fn refused(doing: &str, reason: String) -> ImageError {
    ImageError::Refused { doing: doing.to_owned(), reason }
}

/// `by_disk`: it was the free space that set the limit.
fn failed(doing: &str, error: HelperError, by_disk: bool) -> ImageError {
    match error {
        HelperError::Fault(Fault::DiskFull(_)) => ImageError::disk_full(doing),
        HelperError::Fault(Fault::Limit(_)) if by_disk => ImageError::disk_full(doing),
        error if error.is_inputs_fault() => refused(doing, error.to_string()),
        error => ImageError::io(doing)(io::Error::other(error)),
    }
}

/// Does the part that needs more privileges than the process has, and renames the directory.
fn settle(root: &Path, answer: &Answer, target: &Path) -> io::Result<()> {
    let top = File::open(root)?;
    for dir in &answer.opaque {
        set_opaque(&top, Path::new(dir))?;
    }
    // All files are synced before the rename: a directory of that name is trusted for ever after a power failure.
    nix::unistd::syncfs(&top)?;
    match runtimes_host::files::rename(root, target) {
        // Another process unpacked the same layer meanwhile.
        Err(_) if target.exists() => Ok(()),
        renamed => renamed,
    }
}

/// The path comes from the process: it must lead to a directory of the layer, without links.
fn set_opaque(top: &File, dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC).resolve(inside);
    let dir = File::from(openat2(top, dir, how)?);
    dir.set_xattr("trusted.overlay.opaque", b"y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_opaque_only_in_its_layer() {
        let dir = tempfile::tempdir().expect("a directory");
        let (layer, outside) = (dir.path().join("layer"), dir.path().join("outside"));
        fs::create_dir_all(layer.join("etc/deep")).expect("made");
        fs::create_dir(&outside).expect("made");
        std::os::unix::fs::symlink(&outside, layer.join("way")).expect("linked");
        let top = File::open(&layer).expect("opens");
        for (path, is_in_it) in [("etc/deep", true), ("", true), ("way", false), ("../outside", false), ("/tmp", false)] {
            assert_eq!(set_opaque(&top, Path::new(path)).is_ok(), is_in_it, "{path:?}");
        }
        assert_eq!(xattr::get(layer.join("etc/deep"), "trusted.overlay.opaque").expect("reads").as_deref(), Some(&b"y"[..]));
        assert_eq!(xattr::get(&outside, "trusted.overlay.opaque").expect("reads"), None);
    }
}
