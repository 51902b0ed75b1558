//! Fetching an image from a registry.

mod blob;
mod registry;
mod route;

use std::fmt;
use std::time::Instant;

use futures::stream::{self, StreamExt, TryStreamExt};
use oci_client::Reference;
use runtimes_host::helper::size;

use self::registry::{Credentials, RegistryError, Repository};
use crate::assemble::{self, Parts, assemble, not_runnable};
use crate::manifest::{self, Document};
use crate::reference::Name;
use crate::unpack::refusal;
use crate::{Image, ImageError, ImageStore, disk};

/// The number of blobs of one image that are fetched at the same time.
const FETCHING_MAX: usize = 3;

/// A user of a registry, as `imagePullSecrets` hold them.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// The registry's host, with its port where it has one, as in the image's name.
    pub registry: String,
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: String,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth").field("registry", &self.registry).field("username", &self.username).finish_non_exhaustive()
    }
}

/// Fetches the missing blobs and assembles the image. It tries the credentials for its registry in order, and then none.
pub(crate) async fn pull(store: &ImageStore, name: &Name, auth: &[RegistryAuth]) -> Result<Image, ImageError> {
    let registry = name.reference.registry();
    let fitting = auth
        .iter()
        .filter(|auth| host(&auth.registry) == registry || (registry == "docker.io" && host(&auth.registry) == "index.docker.io"));
    let credentials = fitting.map(|auth| Credentials { username: auth.username.clone(), password: auth.password.clone() });
    let attempts: Vec<Option<Credentials>> = credentials.map(Some).chain([None]).collect();
    let mut refused = None;
    for auth in attempts {
        match pull_as(store, name, auth).await {
            Err(PullError::Unauthorized(reason)) => refused = refused.or(Some(reason)),
            Err(PullError::Image(error)) => return Err(error),
            Ok(image) => return Ok(image),
        }
    }
    Err(failed(name, refused.unwrap_or_else(|| "unauthorized".to_owned())))
}

enum PullError {
    /// Other credentials may be accepted.
    Unauthorized(String),
    Image(ImageError),
}

impl From<ImageError> for PullError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

async fn pull_as(store: &ImageStore, name: &Name, credentials: Option<Credentials>) -> Result<Image, PullError> {
    // One provider serves the whole process; another part may have installed it already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let refused = |error: RegistryError| match error {
        RegistryError::Unauthorized(reason) => PullError::Unauthorized(reason),
        other => PullError::Image(failed(name, other.to_string())),
    };
    let repository = Repository::open(&name.reference, is_plain(store, &name.reference), credentials).await.map_err(refused)?;
    let (bytes, digest) = repository.manifest(&name.reference).await.map_err(refused)?;
    if let Some(reason) = store.refused.why(&digest, Instant::now()) {
        return Err(not_runnable(name, reason).into());
    }
    let (manifest, digest) = match parsed(name, &bytes)? {
        Document { manifests: Some(entries), .. } => {
            let entry = manifest::choose(&entries).map_err(|reason| failed(name, reason.to_string()))?;
            let reference =
                Reference::with_digest(name.reference.registry().to_owned(), name.reference.repository().to_owned(), entry.digest.clone());
            let (bytes, fetched) = repository.manifest(&reference).await.map_err(refused)?;
            if fetched != entry.digest {
                return Err(failed(name, format!("the registry sent other content than {}", entry.digest)).into());
            }
            (parsed(name, &bytes)?, digest)
        }
        manifest => (manifest, digest),
    };
    let config = manifest.config.clone().ok_or_else(|| failed(name, "its manifest has no configuration".to_owned()))?;
    blob::fetch(store, &repository, name, &config.digest, config.size).await?;
    let config_bytes = store.blobs.document(&config.digest)?;
    let parts = Parts { name, manifest, digest: Some(digest.clone()), config: (config.digest, config_bytes) };
    let sizes = |digest: &str| parts.manifest.layers.iter().find(|layer| layer.digest == digest).map_or(0, |layer| layer.size);
    let needed: Vec<(String, u64)> = assemble::needed(&parts)?.into_iter().map(|digest| (digest.clone(), sizes(&digest))).collect();
    admit(store, name, &parts.config.0, &needed)?;
    stream::iter(needed)
        .map(|(digest, size)| {
            let repository = &repository;
            async move { blob::fetch(store, repository, name, &digest, size).await }
        })
        .buffer_unordered(FETCHING_MAX)
        .try_collect::<()>()
        .await?;
    let assembled = assemble(store, parts).await;
    // All that decides it follows from the manifest: another attempt would fetch the same and fail again.
    if let Err(ImageError::NotRunnable { reason, .. }) = &assembled {
        store.refused.add(&digest, reason, Instant::now());
    }
    Ok(assembled?)
}

/// Rejects before the first fetch an image that was rejected a while ago, and one for which the disk has no room.
fn admit(store: &ImageStore, name: &Name, config: &str, needed: &[(String, u64)]) -> Result<(), ImageError> {
    for (digest, _) in needed {
        if let Some(reason) = store.refused.why(&refusal(config, digest), Instant::now()) {
            return Err(ImageError::Refused { doing: format!("unpacking layer {digest} of image {}", name.given), reason });
        }
    }
    let absent = needed.iter().filter(|(digest, _)| !store.blobs.has(digest));
    let bytes = absent.fold(0_u64, |sum, (_, size)| sum.saturating_add(*size));
    if bytes > 0 && bytes > disk::look(store)?.spare() {
        return Err(ImageError::disk_full(format!("fetching {} of image {}", size(bytes), name.given)));
    }
    Ok(())
}

fn parsed(name: &Name, bytes: &[u8]) -> Result<Document, ImageError> {
    manifest::parse(bytes).map_err(|reason| failed(name, reason.to_string()))
}

/// Whether the registry is spoken to without TLS.
fn is_plain(store: &ImageStore, reference: &Reference) -> bool {
    let registry = reference.resolve_registry();
    route::is_loopback(registry) || store.insecure.iter().any(|insecure| insecure == registry)
}

/// The host of a key in a docker configuration: `https://index.docker.io/v1/` is `index.docker.io`.
pub(crate) fn host(server: &str) -> &str {
    let bare = server.trim_start_matches("https://").trim_start_matches("http://");
    bare.split('/').next().unwrap_or(bare)
}

fn failed(name: &Name, reason: String) -> ImageError {
    ImageError::Pull { image: name.given.clone(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_docker_configurations_are_found() {
        for (server, wanted) in
            [("https://index.docker.io/v1/", "index.docker.io"), ("r.example:5000", "r.example:5000"), ("http://r.example/v2", "r.example")]
        {
            assert_eq!(host(server), wanted);
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let auth = RegistryAuth { registry: "r".to_owned(), username: "u".to_owned(), password: "hush".to_owned() };
        assert!(!format!("{auth:?}").contains("hush"));
    }
}
