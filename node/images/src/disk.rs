//! The use of the store's disk.

use nix::sys::statvfs::statvfs;

use crate::{ImageError, ImageStore};

/// The size and free space as `df` shows them: blocks that only root may use do not count.
pub(crate) struct FileSystem {
    /// How full it is; `None` when it has no size.
    pub used_percent: Option<u64>,
    /// Bytes that are free.
    available: u64,
    /// Bytes that are to stay free.
    pub free_min: u64,
}

impl FileSystem {
    /// Bytes that may be used.
    pub(crate) fn spare(&self) -> u64 {
        self.available.saturating_sub(self.free_min)
    }
}

pub(crate) fn look(store: &ImageStore) -> Result<FileSystem, ImageError> {
    let stat = statvfs(&store.dir)
        .map_err(|error| ImageError::io(format!("asking for the free space of {}", store.dir.display()))(error.into()))?;
    let used = stat.blocks().saturating_sub(stat.blocks_free());
    let all = used.saturating_add(stat.blocks_available());
    let used_percent = used.saturating_mul(100).checked_div(all);
    let bytes = |blocks: u64| blocks.saturating_mul(stat.fragment_size());
    Ok(FileSystem { used_percent, available: bytes(stat.blocks_available()), free_min: (store.free_min)(bytes(stat.blocks())) })
}
