//! A container's root file system, or the files of a WASM guest: the image's layers stacked by overlayfs below a directory of the
//! container's own. A mount is found again by its directory's name, the container's key.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};
use parking_lot::Mutex;
use runtimes_contract::{Content, ContentKind};

use crate::blobs::malformed;
use crate::{Image, ImageError, ImageStore, WritableLayer, reference, unpack};
use runtimes_host::blocking;

/// The kernel accepts mount options of at most a page.
const OPTIONS_LEN_MAX: usize = 4_095;
/// The directory of the mounts.
const DIR: &str = "mounts";

pub(crate) async fn mount(store: &ImageStore, image: &Image, key: &str) -> Result<Content, ImageError> {
    store.index.touch(image)?;
    match image.kind {
        ContentKind::Wasm => {
            let digest = image.module_digest().unwrap_or(&image.id);
            let module = store.blobs.path(digest).ok_or_else(|| malformed(digest))?;
            if image.has_guest_files() {
                stack(store, image, key).await?;
            }
            Ok(Content::Wasm { module, digest: digest.to_owned() })
        }
        ContentKind::Linux => Ok(Content::Linux { rootfs: stack(store, image, key).await? }),
    }
}

/// Mounts the layers with a writable one on top.
async fn stack(store: &ImageStore, image: &Image, key: &str) -> Result<PathBuf, ImageError> {
    let dir = dir(store, key)?;
    let options = options(store, image, &dir)?;
    present(store, image).await?;
    let merged = dir.join("merged");
    let doing = format!("mounting the root file system at {}", merged.display());
    blocking(move || overlay(&dir, &options)).await.map_err(ImageError::io(doing))?;
    Ok(merged)
}

/// Mounts the files of an image for reading. What the store holds for it is below the directory of the key: an empty layer, because the
/// kernel wants two, and the id of the image that is mounted at each place.
pub(crate) async fn mount_files(store: &ImageStore, image: &Image, key: &str, at: &Path) -> Result<(), ImageError> {
    store.index.touch(image)?;
    if image.layers.is_empty() {
        return Err(not_mountable(image, "it is a WebAssembly module without files, which cannot be a volume".to_owned()));
    }
    let dir = dir(store, key)?;
    let mut lower = lower_dirs(store, image)?;
    lower.push(dir.join("empty").display().to_string());
    let options = checked(image, format!("lowerdir={}", lower.join(":")), lower.len())?;
    // From here on a sweep leaves the layers alone.
    let empty = dir.join("empty");
    blocking(move || std::fs::create_dir_all(empty)).await.map_err(ImageError::io(format!("making a directory for {key}")))?;
    present(store, image).await?;
    let doing = format!("mounting an image at {}", at.display());
    let (at, id) = (at.to_owned(), image.id.clone());
    blocking(move || overlay_files(&dir, &at, &options, &id)).await.map_err(ImageError::io(doing))
}

fn overlay_files(dir: &Path, at: &Path, options: &str, id: &str) -> std::io::Result<()> {
    /// Containers of one Pod start at the same time.
    static MOUNTING: Mutex<()> = Mutex::new(());
    let _alone = MOUNTING.lock();
    std::fs::create_dir_all(at)?;
    let mounted = dir.join(at.file_name().unwrap_or_default()).with_extension("image");
    if is_mounted(at)? {
        if std::fs::read_to_string(&mounted).is_ok_and(|mounted| mounted == id) {
            return Ok(());
        }
        // Containers have mounts of their own, so those that run keep their files.
        umount2(at, MntFlags::MNT_DETACH)?;
    }
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    nix::mount::mount(Some("overlay"), at, Some("overlay"), flags, Some(options))?;
    std::fs::write(mounted, id)
}

/// Unpacks layers that are missing: an earlier version of Skiff gave their directories other names.
async fn present(store: &ImageStore, image: &Image) -> Result<(), ImageError> {
    let Some(name) = image.references.first().or(image.digests.first()) else { return Ok(()) };
    let is_there = |layer| unpack::dir(store, layer).is_some_and(|dir| dir.exists());
    if image.layers.iter().all(is_there) {
        return Ok(());
    }
    // A sweep would take the half-unpacked layer away.
    let _filling = store.index.filling().await?;
    let (name, allowance) = (reference::parse(name)?, unpack::Allowance::for_image(&image.id));
    for layer in &image.layers {
        unpack::layer(store, &name, layer, &allowance).await?;
    }
    Ok(())
}

pub(crate) async fn unmount(store: &ImageStore, key: &str) -> Result<(), ImageError> {
    let dir = dir(store, key)?;
    let doing = format!("unmounting {}", dir.display());
    let undo = move || {
        match umount2(&dir.join("merged"), MntFlags::empty()) {
            // Not mounted, or it does not exist: the wanted state.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT | nix::Error::ENOTDIR) => {}
            // The container is gone. A process that still has a file open there keeps it and does not delay the unmount.
            Err(nix::Error::EBUSY) => umount2(&dir.join("merged"), MntFlags::MNT_DETACH)?,
            Err(error) => return Err(error.into()),
        }
        match runtimes_host::files::remove_tree(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    blocking(undo).await.map_err(ImageError::io(doing))
}

pub(crate) fn keys(store: &ImageStore) -> Result<Vec<String>, ImageError> {
    let mounts = store.dir.join(DIR);
    let list = || -> std::io::Result<Vec<String>> {
        std::fs::read_dir(&mounts)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    list().map_err(ImageError::io(format!("listing {}", mounts.display())))
}

pub(crate) fn writable_layer(store: &ImageStore, key: &str) -> WritableLayer {
    let dir = store.dir.join(DIR).join(name(key));
    WritableLayer { upper: dir.join("upper"), merged: dir.join("merged") }
}

/// The directory of a mount. A key that leads to no directory of its own is refused: what is mounted or removed there would
/// be that of all containers.
fn dir(store: &ImageStore, key: &str) -> Result<PathBuf, ImageError> {
    let mounts = store.dir.join(DIR);
    if ["", ".", ".."].contains(&key) {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{key:?} is no key of a mount"));
        return Err(ImageError::io(format!("mounting below {}", mounts.display()))(error));
    }
    Ok(mounts.join(name(key)))
}

/// Keys are container ids, which are safe as file names; only a defect could pass a slash.
fn name(key: &str) -> String {
    key.replace('/', "_")
}

fn options(store: &ImageStore, image: &Image, dir: &Path) -> Result<String, ImageError> {
    let lower = lower_dirs(store, image)?;
    let (upper, work) = (dir.join("upper"), dir.join("work"));
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.join(":"), upper.display(), work.display());
    checked(image, options, lower.len())
}

/// The unpacked layers, the highest first.
fn lower_dirs(store: &ImageStore, image: &Image) -> Result<Vec<String>, ImageError> {
    let layers = image.layers.iter().rev();
    layers.map(|layer| unpack::dir(store, layer).map(|d| d.display().to_string()).ok_or_else(|| malformed(&layer.diff_id))).collect()
}

fn checked(image: &Image, options: String, layers: usize) -> Result<String, ImageError> {
    if options.len() > OPTIONS_LEN_MAX {
        let reason = format!("its {layers} layers need mount options of {} bytes, the kernel takes {OPTIONS_LEN_MAX}", options.len());
        return Err(not_mountable(image, reason));
    }
    Ok(options)
}

fn not_mountable(image: &Image, reason: String) -> ImageError {
    ImageError::NotRunnable { image: image.references.first().cloned().unwrap_or_default(), reason }
}

fn overlay(dir: &Path, options: &str) -> std::io::Result<()> {
    for sub in ["upper", "work", "merged"] {
        std::fs::create_dir_all(dir.join(sub))?;
    }
    let merged = dir.join("merged");
    if is_mounted(&merged)? {
        return Ok(());
    }
    nix::mount::mount(Some("overlay"), &merged, Some("overlay"), MsFlags::empty(), Some(options))?;
    Ok(())
}

/// Whether another file system is mounted there: its device differs from its parent's.
fn is_mounted(path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let parent = path.parent().unwrap_or(path);
    Ok(std::fs::metadata(path)?.dev() != std::fs::metadata(parent)?.dev())
}
