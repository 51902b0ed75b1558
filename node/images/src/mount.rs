//! A container's root file system, or the files of a WASM guest: the image's layers stacked by overlayfs below a directory of the
//! container's own. A mount is found again by its directory's name, the container's key.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, umount2};
use parking_lot::Mutex;
use runtimes_contract::{Content, ContentKind, UserNamespace};

use crate::blobs::malformed;
use crate::mapped::{Overlay, places};
use crate::{Image, ImageError, ImageStore, WritableLayer, reference, unpack};
use runtimes_host::blocking;

/// The kernel accepts mount options of at most a page.
const OPTIONS_LEN_MAX: usize = 4_095;
/// The directory of the mounts.
const DIR: &str = "mounts";
/// The directory of a mount below which its layers are attached while it is mounted.
const LAYERS: &str = "layers";
/// The flags of the files of an image.
const OF_FILES: MsFlags = MsFlags::MS_RDONLY.union(MsFlags::MS_NOSUID).union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

pub(crate) async fn mount(store: &ImageStore, image: &Image, key: &str, user: Option<&UserNamespace>) -> Result<Content, ImageError> {
    store.index.touch(image)?;
    match image.kind {
        ContentKind::Wasm => {
            let digest = image.module_digest().unwrap_or(&image.id);
            let module = store.blobs.path(digest).ok_or_else(|| malformed(digest))?;
            if image.has_guest_files() {
                stack(store, image, key, user).await?;
            }
            Ok(Content::Wasm { module, digest: digest.to_owned() })
        }
        ContentKind::Linux => Ok(Content::Linux { rootfs: stack(store, image, key, user).await? }),
    }
}

/// Mounts the layers with a writable one on top.
async fn stack(store: &ImageStore, image: &Image, key: &str, user: Option<&UserNamespace>) -> Result<PathBuf, ImageError> {
    let dir = dir(store, key)?;
    let lower = lower_dirs(store, image)?;
    let (upper, work) = (dir.join("upper"), dir.join("work"));
    let others = format!(",upperdir={},workdir={}", upper.display(), work.display());
    let mapped = user.map(|_| places(&dir.join(LAYERS), lower.len()));
    let options = format!("lowerdir={}{others}", mapped.as_ref().unwrap_or(&lower).join(":"));
    let options = checked(image, options, lower.len())?;
    present(store, image).await?;
    let merged = dir.join("merged");
    let doing = format!("mounting the root file system at {}", merged.display());
    let user = user.cloned();
    blocking(move || {
        if !make_dirs(&dir)? {
            return Ok(());
        }
        let merged = dir.join("merged");
        let Some(user) = user else { return mount_overlay(&merged, MsFlags::empty(), &options) };
        // The container's root directory has the owner of this one.
        std::os::unix::fs::chown(&upper, Some(user.first_id), Some(user.first_id))?;
        Overlay { lower: &lower, others: &others, flags: MsFlags::empty(), user: &user }.mount(&merged, &dir.join(LAYERS))
    })
    .await
    .map_err(ImageError::io(doing))?;
    Ok(merged)
}

/// Mounts the files of an image for reading. What the store holds for it is below the directory of the key: an empty layer, because the
/// kernel wants two, and the id of the image that is mounted at each place.
pub(crate) async fn mount_files(
    store: &ImageStore,
    image: &Image,
    key: &str,
    at: &Path,
    user: Option<&UserNamespace>,
) -> Result<(), ImageError> {
    store.index.touch(image)?;
    if image.layers.is_empty() {
        return Err(not_mountable(image, "it is a WebAssembly module without files, which cannot be a volume".to_owned()));
    }
    let dir = dir(store, key)?;
    let mut lower = lower_dirs(store, image)?;
    lower.push(dir.join("empty").display().to_string());
    let mapped = user.map(|_| places(&dir.join(LAYERS), lower.len()));
    let options = checked(image, format!("lowerdir={}", mapped.as_ref().unwrap_or(&lower).join(":")), lower.len())?;
    // From here on a sweep leaves the layers alone.
    let of_store = [dir.join("empty"), dir.join(LAYERS)];
    blocking(move || of_store.iter().try_for_each(std::fs::create_dir_all))
        .await
        .map_err(ImageError::io(format!("making a directory for {key}")))?;
    present(store, image).await?;
    let doing = format!("mounting an image at {}", at.display());
    let (at, id, user) = (at.to_owned(), image.id.clone(), user.cloned());
    let mount = move |dir: &Path, at: &Path| match &user {
        None => mount_overlay(at, OF_FILES, &options),
        Some(user) => Overlay { lower: &lower, others: "", flags: OF_FILES, user }.mount(at, &dir.join(LAYERS)),
    };
    blocking(move || overlay_files(&dir, &at, &id, mount)).await.map_err(ImageError::io(doing))
}

fn overlay_files(dir: &Path, at: &Path, id: &str, mount: impl Fn(&Path, &Path) -> std::io::Result<()>) -> std::io::Result<()> {
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
    mount(dir, at)?;
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

/// Makes the directories of a container's root file system. Whether it is not mounted yet.
fn make_dirs(dir: &Path) -> std::io::Result<bool> {
    for sub in ["upper", "work", "merged", LAYERS] {
        std::fs::create_dir_all(dir.join(sub))?;
    }
    Ok(!is_mounted(&dir.join("merged"))?)
}

fn mount_overlay(at: &Path, flags: MsFlags, options: &str) -> std::io::Result<()> {
    Ok(nix::mount::mount(Some("overlay"), at, Some("overlay"), flags, Some(options))?)
}

/// Whether another file system is mounted there: its device differs from its parent's.
fn is_mounted(path: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let parent = path.parent().unwrap_or(path);
    Ok(std::fs::metadata(path)?.dev() != std::fs::metadata(parent)?.dev())
}
