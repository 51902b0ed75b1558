//! Unpacking a layer into a directory that overlayfs can stack: owners, modes and extended
//! attributes kept, whiteouts turned into overlayfs' own. The directory appears by rename once the
//! whole archive is in it and its digest is right.
//! <https://github.com/opencontainers/image-spec/blob/main/layer.md>

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use sha2::{Digest, Sha256};
use tar::{Archive, Entry};

use crate::blobs::{blocking, hex, malformed, name as rename};
use crate::reference::Name;
use crate::{ImageError, ImageStore};

/// Entries in one layer; more is refused.
const ENTRIES_MAX: usize = 2_000_000;
/// Bytes in one unpacked layer; more is refused, so that a small archive cannot fill the disk.
const UNPACKED_BYTES_MAX: u64 = 64 << 30;
/// Marks a file that upper layers hide.
const WHITEOUT: &str = ".wh.";
/// Marks a directory whose lower content is hidden.
const OPAQUE: &str = ".wh..wh..opq";

/// Where a layer is unpacked; `None` when the digest is malformed. Short, because overlayfs' option
/// string is bounded by a page.
pub(crate) fn dir(store: &ImageStore, diff_id: &str) -> Option<PathBuf> {
    Some(store.dir.join("layers").join(hex(diff_id)?.get(..32)?))
}

/// Unpacks a layer unless it is there.
pub(crate) async fn layer(store: &ImageStore, name: &Name, blob: &str, diff_id: &str) -> Result<(), ImageError> {
    let target = dir(store, diff_id).ok_or_else(|| malformed(diff_id))?;
    if target.exists() {
        return Ok(());
    }
    let source = store.blobs.path(blob).ok_or_else(|| malformed(blob))?;
    let temporary = store.temporary()?;
    let doing = format!("unpacking layer {blob} of image {}", name.given);
    let (root, wanted) = (temporary.path().join("root"), diff_id.to_owned());
    let unpacking = {
        let root = root.clone();
        move || {
            std::fs::create_dir(&root)?;
            let found = archive(&source, &root)?;
            if found != wanted {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("its content is {found}, its configuration says {wanted}")));
            }
            // All of its files at once, before its name says that they are there: what is found under that
            // name after a power failure is believed for ever.
            nix::unistd::syncfs(File::open(&root)?)?;
            Ok(())
        }
    };
    blocking(unpacking).await.map_err(ImageError::io(doing.clone()))?;
    match rename(root, target.clone()).await {
        // Another process unpacked the same layer meanwhile.
        Err(_) if target.exists() => Ok(()),
        renamed => renamed.map_err(ImageError::io(doing)),
    }
}

/// Unpacks an archive, compressed or not, and answers the digest of the tar stream.
fn archive(source: &Path, root: &Path) -> io::Result<String> {
    let hashing = Hashing { inner: decompressed(source)?, hasher: Sha256::new(), left: UNPACKED_BYTES_MAX };
    let mut archive = Archive::new(hashing);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    archive.set_unpack_xattrs(true);
    archive.set_overwrite(true);
    for (count, entry) in archive.entries()?.enumerate() {
        if count == ENTRIES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {ENTRIES_MAX} entries")));
        }
        unpack(&mut entry?, root)?;
    }
    let mut hashing = archive.into_inner();
    // The digest is over the whole stream, also the padding that the archive's reader leaves.
    io::copy(&mut hashing, &mut io::sink())?;
    Ok(format!("sha256:{:x}", hashing.hasher.finalize()))
}

fn unpack<R: Read>(entry: &mut Entry<'_, R>, root: &Path) -> io::Result<()> {
    let path = entry.path()?.into_owned();
    let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
        return entry.unpack_in(root).map(drop);
    };
    let Some(hidden) = file_name.strip_prefix(WHITEOUT) else {
        return entry.unpack_in(root).map(drop);
    };
    let parent = contained(root, path.parent().unwrap_or(Path::new("")))?;
    std::fs::create_dir_all(&parent)?;
    if file_name == OPAQUE {
        return set_opaque(&parent);
    }
    match mknod(&parent.join(hidden), SFlag::S_IFCHR, Mode::empty(), makedev(0, 0)) {
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A directory below `root`, or an error when the path would leave it, also through a symbolic link.
fn contained(root: &Path, relative: &Path) -> io::Result<PathBuf> {
    let mut path = root.to_owned();
    for component in relative.components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(escape(relative)),
        }
        if path.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
            return Err(escape(relative));
        }
    }
    Ok(path)
}

fn escape(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} leaves the layer", path.display()))
}

fn set_opaque(dir: &Path) -> io::Result<()> {
    xattr::set(dir, "trusted.overlay.opaque", b"y")
}

/// The tar stream of a layer, told by its first bytes.
fn decompressed(source: &Path) -> io::Result<Box<dyn Read>> {
    let mut start = [0; 4];
    let read = File::open(source)?.read(&mut start)?;
    let file = BufReader::with_capacity(1 << 17, File::open(source)?);
    Ok(match start.get(..read).unwrap_or_default() {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(file)?),
        _ => Box::new(file),
    })
}

/// Hashes what is read, and bounds it.
struct Hashing<R> {
    inner: R,
    hasher: Sha256,
    left: u64,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("larger than {UNPACKED_BYTES_MAX} bytes")))?;
        Ok(read)
    }
}
