//! Fetching an image from a registry by the OCI distribution protocol.

mod bounded;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OciDescriptor;
use oci_client::{Client, Reference};
use tokio::io::AsyncWriteExt;

use self::bounded::{AtMost, MANIFEST_BYTES_MAX, Manifests};
use crate::assemble::{self, Parts, assemble};
use crate::blobs;
use crate::manifest::{self, Document};
use crate::reference::Name;
use crate::{Image, ImageError, ImageStore};

/// Blobs of one image fetched at once.
const FETCHING_MAX: usize = 3;
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the registry may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at one blob when the connection breaks off.
const BLOB_ATTEMPTS: usize = 3;

/// A user of a registry, as `imagePullSecrets` hold them.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// Registry host, with its port where it has one, as in the image's name.
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

/// Fetches what is missing and assembles the image. Credentials for its registry are tried in
/// order, and then none.
pub(crate) async fn pull(store: &ImageStore, name: &Name, auth: &[RegistryAuth]) -> Result<Image, ImageError> {
    let registry = name.reference.registry();
    let fitting = auth
        .iter()
        .filter(|auth| host(&auth.registry) == registry || (registry == "docker.io" && host(&auth.registry) == "index.docker.io"));
    let mut attempts: Vec<oci_client::secrets::RegistryAuth> =
        fitting.map(|auth| oci_client::secrets::RegistryAuth::Basic(auth.username.clone(), auth.password.clone())).collect();
    attempts.push(oci_client::secrets::RegistryAuth::Anonymous);
    let mut refused = None;
    for auth in attempts {
        match pull_as(store, name, &auth).await {
            Err(PullError::Unauthorized(reason)) => refused = refused.or(Some(reason)),
            Err(PullError::Image(error)) => return Err(error),
            Ok(image) => return Ok(image),
        }
    }
    Err(failed(name, refused.unwrap_or_else(|| "unauthorized".to_owned())))
}

enum PullError {
    /// Other credentials may be let in.
    Unauthorized(String),
    Image(ImageError),
}

impl From<ImageError> for PullError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

async fn pull_as(store: &ImageStore, name: &Name, auth: &oci_client::secrets::RegistryAuth) -> Result<Image, PullError> {
    let insecure = insecure(store, &name.reference);
    let scheme = if insecure.iter().any(|registry| registry == name.reference.resolve_registry()) { "http" } else { "https" };
    let client = client(insecure);
    let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT).build();
    let http = http.map_err(|error| failed(name, error.to_string()))?;
    let manifests = Manifests { client: &client, http, scheme, auth };
    let refused = |error: OciDistributionError| match error {
        OciDistributionError::AuthenticationFailure(_) | OciDistributionError::UnauthorizedError { .. } => {
            PullError::Unauthorized(reason(&error))
        }
        other => PullError::Image(failed(name, reason(&other))),
    };
    let (bytes, digest) = manifests.fetch(&name.reference).await.map_err(refused)?;
    let (manifest, digest) = match parsed(name, &bytes)? {
        Document { manifests: Some(entries), .. } => {
            let entry = manifest::choose(&entries).map_err(|reason| failed(name, reason))?;
            let reference =
                Reference::with_digest(name.reference.registry().to_owned(), name.reference.repository().to_owned(), entry.digest.clone());
            let (bytes, fetched) = manifests.fetch(&reference).await.map_err(refused)?;
            if fetched != entry.digest {
                return Err(failed(name, format!("the registry sent other content than {}", entry.digest)).into());
            }
            (parsed(name, &bytes)?, digest)
        }
        manifest => (manifest, digest),
    };
    let config = manifest.config.clone().ok_or_else(|| failed(name, "its manifest has no configuration".to_owned()))?;
    fetch(store, &client, name, &config.digest, config.size).await?;
    let config_bytes = store.blobs.document(&config.digest)?;
    let parts = Parts { name, manifest, digest: Some(digest), config: (config.digest, config_bytes) };
    let sizes = |digest: &str| parts.manifest.layers.iter().find(|layer| layer.digest == digest).map_or(0, |layer| layer.size);
    let needed: Vec<(String, u64)> = assemble::needed(&parts)?.into_iter().map(|digest| (digest.clone(), sizes(&digest))).collect();
    stream::iter(needed)
        .map(|(digest, size)| {
            let client = &client;
            async move { fetch(store, client, name, &digest, size).await }
        })
        .buffer_unordered(FETCHING_MAX)
        .try_collect::<()>()
        .await?;
    Ok(assemble(store, parts).await?)
}

fn parsed(name: &Name, bytes: &[u8]) -> Result<Document, ImageError> {
    manifest::parse(bytes).map_err(|reason| failed(name, reason))
}

/// Fetches a blob unless it is there; its digest is checked while it arrives.
async fn fetch(store: &ImageStore, client: &Client, name: &Name, digest: &str, size: u64) -> Result<(), ImageError> {
    let path = store.blobs.path(digest).ok_or_else(|| failed(name, format!("{digest:?} is not a sha256 digest")))?;
    if store.blobs.has(digest) {
        return Ok(());
    }
    let descriptor = OciDescriptor { digest: digest.to_owned(), size: i64::try_from(size).unwrap_or(i64::MAX), ..OciDescriptor::default() };
    let temporary = store.blobs.fresh();
    let doing = format!("writing {}", temporary.display());
    let mut attempt = 1;
    loop {
        let mut file = tokio::fs::File::create(&temporary).await.map_err(ImageError::io(doing.clone()))?;
        // Without a size it is a document, which is as long as a manifest at most.
        let len_max = if size > 0 { size } else { MANIFEST_BYTES_MAX.try_into().unwrap_or(u64::MAX) };
        match client.pull_blob(&name.reference, &descriptor, AtMost::new(&mut file, len_max)).await {
            Ok(()) => {
                file.flush().await.map_err(ImageError::io(doing.clone()))?;
                file.sync_all().await.map_err(ImageError::io(doing.clone()))?;
                return blobs::name(temporary, path).await.map_err(ImageError::io(doing));
            }
            Err(error) => {
                tokio::fs::remove_file(&temporary).await.map_err(ImageError::io(doing.clone()))?;
                match error {
                    OciDistributionError::IoError(source) if source.kind() == std::io::ErrorKind::FileTooLarge => {
                        return Err(failed(name, source.to_string()));
                    }
                    OciDistributionError::IoError(source) => return Err(ImageError::io(doing)(source)),
                    OciDistributionError::RequestError(_) if attempt < BLOB_ATTEMPTS => attempt += 1,
                    error => return Err(failed(name, reason(&error))),
                }
            }
        }
    }
}

/// Registries that are spoken to without TLS.
fn insecure(store: &ImageStore, reference: &Reference) -> Vec<String> {
    let registry = reference.resolve_registry();
    let mut insecure = store.insecure.clone();
    if is_loopback(registry) {
        insecure.push(registry.to_owned());
    }
    insecure
}

fn client(insecure: Vec<String>) -> Client {
    // One provider serves the whole process; another part may have installed it already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    Client::new(ClientConfig {
        protocol: ClientProtocol::HttpsExcept(insecure),
        connect_timeout: Some(CONNECT_TIMEOUT),
        read_timeout: Some(READ_TIMEOUT),
        ..ClientConfig::default()
    })
}

/// Whether a registry is on this machine: spoken to without TLS, as Docker does.
fn is_loopback(registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The host of a key in a docker configuration: `https://index.docker.io/v1/` is `index.docker.io`.
fn host(server: &str) -> &str {
    let bare = server.trim_start_matches("https://").trim_start_matches("http://");
    bare.split('/').next().unwrap_or(bare)
}

fn failed(name: &Name, reason: String) -> ImageError {
    ImageError::Pull { image: name.given.clone(), reason }
}

/// An error with its causes: reqwest keeps "connection refused" three levels down.
fn reason(error: &OciDistributionError) -> String {
    if let OciDistributionError::RegistryError { envelope, .. } = error {
        let texts: Vec<String> = envelope.errors.iter().map(|e| format!("{:?}: {}", e.code, e.message)).collect();
        return texts.join(", ");
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_on_this_machine_need_no_tls() {
        for (registry, wanted) in [
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("[::1]:5000", true),
            ("localhost", true),
            ("10.0.0.1:5000", false),
            ("r.example", false),
        ] {
            assert_eq!(is_loopback(registry), wanted, "{registry}");
        }
    }

    #[test]
    fn hosts_of_docker_configurations_are_found() {
        for (server, wanted) in
            [("https://index.docker.io/v1/", "index.docker.io"), ("r.example:5000", "r.example:5000"), ("http://r.example/v2", "r.example")]
        {
            assert_eq!(host(server), wanted);
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let auth = RegistryAuth { registry: "r".to_owned(), username: "u".to_owned(), password: "hush".to_owned() };
        assert!(!format!("{auth:?}").contains("hush"));
    }
}
