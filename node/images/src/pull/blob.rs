//! Fetches one blob into the store: not longer than its manifest says, not slower than a limit, and only with the content of
//! its digest.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::Response;
use runtimes_host::helper::size;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use super::failed;
use super::registry::{MANIFEST_BYTES_MAX, RegistryError, Repository};
use crate::reference::Name;
use crate::{ImageError, ImageStore, blobs, disk};

/// The attempts at one blob when the connection breaks.
const ATTEMPTS: usize = 3;
/// The least that must arrive in each such period: a registry that sends a byte a minute would block other pulls.
const LOOKED_AT: Duration = Duration::from_secs(60);
const PROGRESS_MIN: u64 = 1 << 20;

/// The bytes after which the free space is checked again: several images arrive at the same time, and each of them alone had
/// room when it began.
const LOOK_AGAIN: u64 = 16 << 20;

/// Fetches a blob unless it exists.
pub(super) async fn fetch(store: &ImageStore, repository: &Repository, name: &Name, digest: &str, len: u64) -> Result<(), ImageError> {
    let path = store.blobs.path(digest).ok_or_else(|| failed(name, format!("{digest:?} is not a sha256 digest")))?;
    if store.blobs.has(digest) {
        return Ok(());
    }
    let mut attempt = 1;
    loop {
        let temporary = store.blobs.fresh();
        let doing = format!("writing {}", temporary.path().display());
        let error = match receive(store, repository, digest, len, temporary.path()).await {
            Ok(()) => return blobs::name(temporary, path).await.map_err(ImageError::io(doing)),
            Err(error) => error,
        };
        match error {
            BlobError::Registry(RegistryError::Network(_)) if attempt < ATTEMPTS => attempt += 1,
            BlobError::Registry(error) => return Err(failed(name, error.to_string())),
            BlobError::Io(error) => return Err(ImageError::io(doing)(error)),
            BlobError::Store(error) => return Err(error),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum BlobError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] ImageError),
}

async fn receive(store: &ImageStore, repository: &Repository, digest: &str, len: u64, to: &Path) -> Result<(), BlobError> {
    let answer = repository.blob(digest).await?;
    let mut file = tokio::fs::File::create(to).await?;
    // A blob without a size is a document, which is at most as long as a manifest.
    let len_max = if len > 0 { len } else { MANIFEST_BYTES_MAX as u64 };
    let (received, received_len) = copy(store, answer, len_max, &mut file).await?;
    if received != digest {
        return Err(RegistryError::Refused(damaged(digest, len, &received, received_len)).into());
    }
    file.flush().await?;
    Ok(file.sync_all().await?)
}

/// Registries skip the push of a blob that they have, damaged or not. So the blob has to be deleted before.
fn damaged(digest: &str, len: u64, received: &str, received_len: u64) -> String {
    let of_all = if len > 0 { format!(" of {len}") } else { String::new() };
    format!(
        "the registry sent other content than {digest}: {received_len}{of_all} bytes with the digest {received}; \
         the blob is damaged in the registry or on the way: delete it in the registry and push the image again"
    )
}

/// Writes a body and returns its digest and its length.
async fn copy(store: &ImageStore, answer: Response, len_max: u64, file: &mut tokio::fs::File) -> Result<(String, u64), BlobError> {
    let mut chunks = answer.bytes_stream();
    let (mut hasher, mut len) = (Sha256::new(), 0_u64);
    let (mut looked_at, mut len_then) = (Instant::now(), 0);
    let mut room_until = LOOK_AGAIN;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(RegistryError::from)?;
        len += chunk.len() as u64;
        if len > len_max {
            return Err(RegistryError::Refused("the registry sends more than the manifest says".to_owned()).into());
        }
        if looked_at.elapsed() >= LOOKED_AT {
            if len - len_then < PROGRESS_MIN {
                let least = size(PROGRESS_MIN);
                return Err(RegistryError::Refused(format!("the registry sends less than {least} in {} s", LOOKED_AT.as_secs())).into());
            }
            (looked_at, len_then) = (Instant::now(), len);
        }
        if len >= room_until {
            if disk::look(store)?.spare() == 0 {
                return Err(ImageError::disk_full("fetching an image").into());
            }
            room_until = len.saturating_add(LOOK_AGAIN);
        }
        hasher.update(&chunk);
        file.write_all(&chunk).await?;
    }
    Ok((format!("sha256:{:x}", hasher.finalize()), len))
}
