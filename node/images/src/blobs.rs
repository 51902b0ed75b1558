//! Blobs by digest. A blob appears by rename once it is complete and its digest is verified, so every blob can be trusted.

use std::io::Read;
use std::path::{Path, PathBuf};

use runtimes_host::blocking;
use sha2::{Digest, Sha256};

use crate::ImageError;

/// Largest manifest, index or configuration that is read into memory.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

pub(crate) struct Blobs {
    dir: PathBuf,
    temporary: PathBuf,
}

impl Blobs {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.join("blobs/sha256"), temporary: dir.join("tmp") }
    }

    /// The path of a blob. `None` when the digest is not a well-formed sha256.
    pub fn path(&self, digest: &str) -> Option<PathBuf> {
        Some(self.dir.join(hex(digest)?))
    }

    pub fn has(&self, digest: &str) -> bool {
        self.path(digest).is_some_and(|path| path.exists())
    }

    /// Stores a file's content, by link or copy, and returns its digest and size.
    pub async fn put_file(&self, file: &Path) -> Result<(String, u64), ImageError> {
        let doing = format!("reading {}", file.display());
        let (source, temporary) = (file.to_owned(), self.fresh());
        let copy = move || -> std::io::Result<(String, u64, Fresh)> {
            let mut reader = std::fs::File::open(source)?;
            let mut hasher = Sha256::new();
            let mut writer = std::fs::File::create(temporary.path())?;
            let mut buffer = vec![0; 1 << 16];
            let mut size = 0;
            loop {
                let read = reader.read(&mut buffer)?;
                let Some(part) = buffer.get(..read).filter(|part| !part.is_empty()) else { break };
                hasher.update(part);
                std::io::Write::write_all(&mut writer, part)?;
                size += part.len() as u64;
            }
            writer.sync_all()?;
            Ok((format!("sha256:{:x}", hasher.finalize()), size, temporary))
        };
        let (digest, size, temporary) = blocking(copy).await.map_err(ImageError::io(doing.clone()))?;
        let path = self.path(&digest).ok_or_else(|| malformed(&digest))?;
        name(temporary, path).await.map_err(ImageError::io(doing))?;
        Ok((digest, size))
    }

    /// Reads a manifest, an index or a configuration.
    pub fn document(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let path = self.path(digest).ok_or_else(|| malformed(digest))?;
        let doing = format!("reading {}", path.display());
        let read = || {
            let mut bytes = Vec::new();
            std::fs::File::open(&path)?.take(DOCUMENT_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(ImageError::io(doing))
    }

    /// A file name in the store's `tmp`.
    pub fn fresh(&self) -> Fresh {
        Fresh(self.temporary.join(api_model::meta::new_uid()))
    }

    /// Every blob's digest.
    pub fn all(&self) -> Result<Vec<String>, ImageError> {
        let doing = format!("listing {}", self.dir.display());
        let names = || -> std::io::Result<Vec<String>> {
            std::fs::read_dir(&self.dir)?.map(|entry| Ok(format!("sha256:{}", entry?.file_name().to_string_lossy()))).collect()
        };
        names().map_err(ImageError::io(doing))
    }
}

/// A file that has no name in the store yet; removed when dropped.
pub(crate) struct Fresh(PathBuf);

impl Fresh {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "half-written file stays");
            }
            _ => {}
        }
    }
}

/// The hexadecimal part of a well-formed sha256 digest; anything else could be a malicious path.
pub(crate) fn hex(digest: &str) -> Option<&str> {
    digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()))
}

pub(crate) fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

pub(crate) fn malformed(digest: &str) -> ImageError {
    ImageError::io(format!("looking up digest {digest:?}"))(std::io::Error::other("not a sha256 digest"))
}

/// Renames synced content durably: an image that is in the list after a power cut has its blobs.
pub(crate) async fn name(temporary: Fresh, path: PathBuf) -> std::io::Result<()> {
    blocking(move || runtimes_host::files::rename(temporary.path(), &path)).await
}
