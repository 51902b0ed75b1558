//! Garbage collection: removes the images that were not used for the longest time when the disk fills up, and blobs and layers
//! without an image.

use std::collections::HashSet;
use std::path::Path;

use runtimes_host::files::remove_tree;

use crate::index::{USE_NOTED_S, now_s};
use crate::{Image, ImageError, ImageStore, InUse, disk, mount, reference, unpack};
use runtimes_host::blocking;

/// The seconds for which an image stays after it was fetched or last used; upstream's `imageMinimumGCAge`. So there is time to
/// run an imported image.
const AGE_MIN_S: u64 = 120;

pub(crate) async fn collect(store: &ImageStore, in_use: InUse<'_>, high: u8, low: u8) -> Result<Vec<Image>, ImageError> {
    let mut removed = Vec::new();
    if used_percent(store)? < u64::from(high) {
        return Ok(removed);
    }
    // The latest use may be later than what is noted.
    let used_before = now_s().saturating_sub(AGE_MIN_S + USE_NOTED_S);
    let keys: HashSet<String> = in_use().iter().filter_map(|name| reference::key(name).ok()).collect();
    let is_in_use = |image: &Image| image.references.iter().chain(&image.digests).chain([&image.id]).any(|name| keys.contains(name));
    let unused = |image: &Image| image.used_at_s <= used_before && !is_in_use(image);
    let mut candidates: Vec<Image> = store.index.all()?.into_iter().filter(unused).collect();
    candidates.sort_by_key(|image| image.used_at_s);
    for image in candidates {
        if used_percent(store)? <= u64::from(low) {
            break;
        }
        for name in image.references.iter().chain([&image.id]) {
            store.index.remove(name)?;
        }
        sweep(store).await?;
        removed.push(image);
    }
    Ok(removed)
}

/// How full the store's disk is.
fn used_percent(store: &ImageStore) -> Result<u64, ImageError> {
    disk::look(store)?.used_percent.ok_or(ImageError::NoCapacity)
}

/// Removes what no image in the list names. Layers stay as long as there are mounts: only the kernel knows which layers a mount
/// uses.
pub(crate) async fn sweep(store: &ImageStore) -> Result<(), ImageError> {
    let Some(_sweeping) = store.index.sweeping()? else {
        tracing::debug!("images are arriving; unused blobs stay for the next sweep");
        return Ok(());
    };
    let temporary = store.dir.join("tmp");
    clear(&temporary).map_err(ImageError::io(format!("clearing {}", temporary.display())))?;
    let images = store.index.all()?;
    let blobs: HashSet<&String> = images.iter().flat_map(|image| &image.blobs).collect();
    for digest in store.blobs.all()? {
        if !blobs.contains(&digest)
            && let Some(path) = store.blobs.path(&digest)
        {
            tokio::fs::remove_file(&path).await.map_err(ImageError::io(format!("removing {}", path.display())))?;
        }
    }
    if !mount::keys(store)?.is_empty() {
        return Ok(());
    }
    let layers: HashSet<_> = images.iter().flat_map(|image| &image.layers).filter_map(|layer| unpack::dir(store, layer)).collect();
    let all = store.dir.join("layers");
    let doing = format!("removing unused layers of {}", all.display());
    let unused = std::fs::read_dir(&all)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>())
        .map_err(ImageError::io(doing.clone()))?;
    for path in unused.into_iter().filter(|path| !layers.contains(path)) {
        blocking(move || remove_tree(&path)).await.map_err(ImageError::io(doing.clone()))?;
    }
    Ok(())
}

/// Removes all that is in a directory.
pub(crate) fn clear(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        remove_tree(&entry?.path())?;
    }
    Ok(())
}
