//! Images on a node: a content store of blobs by digest, filled from registries and from files. Runtimes get from it a WASM
//! module's file or a mounted root file system.
//!
//! The directory is the only state, so that the CLI may open it beside a running node: the list of images is one file that is
//! replaced as a whole, blobs and layers are immutable and appear by rename, and a lock file serializes changes of the list. A
//! confined process unpacks archives ([`serve_unpack`]).

mod assemble;
mod blobs;
mod collect;
mod disk;
mod docker_config;
mod error;
mod import;
mod index;
mod manifest;
mod mapped;
mod mount;
#[doc(hidden)]
pub mod promises;
mod pull;
mod reference;
mod unpack;
mod usage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use runtimes_contract::{Content, ContentKind, RuntimeError, UserNamespace};
use runtimes_host::Keyed;
use runtimes_host::files::private_dir;
use runtimes_host::helper::{Helper, Refused, Slots};
use serde::{Deserialize, Serialize};

pub use docker_config::{DockerConfigError, DockerConfigProblem};
pub use error::ImageError;
pub use pull::RegistryAuth;
pub use unpack::serve_unpack;

use blobs::Blobs;
use index::Index;
use runtimes_host::disk::Disk;
use usage::LayerUsages;

/// When an image is fetched from its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start of a container.
    Always,
    /// When it is not in the store.
    IfNotPresent,
    /// Never; it must be in the store.
    Never,
}

/// How to run an image, from its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `Entrypoint`; for WASM without one, the module's file name.
    pub entrypoint: Vec<String>,
    /// `Cmd`.
    pub cmd: Vec<String>,
    /// `Env`, in order.
    pub env: Vec<(String, String)>,
    /// `WorkingDir`; empty means `/`.
    pub working_dir: String,
    /// `User`: `uid[:gid]` or names of the image's `/etc/passwd`; empty means root.
    pub user: String,
    /// `StopSignal`; empty means `SIGTERM`.
    pub stop_signal: String,
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Digest of its configuration, or of its module when nothing else is in it: `sha256:…`.
    pub id: String,
    /// Names that lead to it, fully spelled: `docker.io/library/web:latest`.
    pub references: Vec<String>,
    /// Names by manifest digest: `docker.io/library/web@sha256:…`.
    pub digests: Vec<String>,
    /// The content of the image.
    pub kind: ContentKind,
    /// Bytes it was fetched as.
    pub size_bytes: u64,
    /// How to run it.
    pub config: ImageConfig,
    /// Layers to unpack and stack, the lowest first; empty for WASM that is a module and nothing else.
    layers: Vec<Layer>,
    /// Digest of the module of a WASM image with other files.
    #[serde(default)]
    module: Option<String>,
    /// The blobs that belong to the image.
    blobs: Vec<String>,
    /// When it was last put in the store or mounted, in s since the epoch.
    used_at_s: u64,
}

impl Image {
    /// The digest of its module; `None` for a Linux image.
    pub fn module_digest(&self) -> Option<&str> {
        (self.kind == ContentKind::Wasm).then_some(self.module.as_ref().unwrap_or(&self.id).as_str())
    }

    /// Whether it is a WASM image with files beside its module, which are the guest's root: [`WritableLayer::merged`].
    pub fn has_guest_files(&self) -> bool {
        self.kind == ContentKind::Wasm && !self.layers.is_empty()
    }
}

/// One layer of an image with a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Layer {
    /// The blob of the layer, compressed or not.
    blob: String,
    /// Digest of the tar archive within: the name of the unpacked directory.
    diff_id: String,
}

/// The directories of a container's own over its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritableLayer {
    /// The number of bytes that it has written.
    pub upper: PathBuf,
    /// Its root file system.
    pub merged: PathBuf,
}

/// Returns the names and ids of the images that Pods have. Names may be short, and more than one may lead to an image.
pub type InUse<'a> = &'a (dyn Fn() -> BTreeSet<String> + Send + Sync);

/// The images of a node.
pub struct ImageStore {
    dir: PathBuf,
    blobs: Blobs,
    index: Index,
    /// One pull of a name at a time; a second one gets the first one's result.
    pulling: Keyed<String, tokio::sync::Mutex<()>>,
    insecure: Vec<String>,
    /// Runs [`serve_unpack`].
    helper: Helper,
    /// For processes that unpack a layer or check a module.
    unpacking: Slots,
    /// Blobs that exceeded a limit or were malformed, and manifests of images that cannot run here.
    refused: Refused,
    free_min: FreeMin,
    module_check: Option<ModuleCheck>,
    layer_usages: Arc<LayerUsages>,
}

/// How many bytes of a disk of that many bytes stay free.
type FreeMin = Box<dyn Fn(u64) -> u64 + Send + Sync>;

/// Checks the file of a module, whose bytes are hostile. [`RuntimeError::BadContent`] when no runtime could run it.
type ModuleCheck = Box<dyn Fn(PathBuf) -> BoxFuture<'static, Result<(), RuntimeError>> + Send + Sync>;

impl ImageStore {
    /// Opens or creates the store in a directory. Several processes may have it open. `helper` starts a
    /// program that calls [`serve_unpack`].
    ///
    /// # Errors
    /// When the directory cannot be made or the list of images cannot be read.
    pub fn open(dir: &Path, helper: Helper) -> Result<Self, ImageError> {
        private_dir(dir).map_err(ImageError::io(format!("creating {}", dir.display())))?;
        for sub in ["blobs/sha256", "layers", "mounts", "tmp"] {
            let path = dir.join(sub);
            std::fs::create_dir_all(&path).map_err(ImageError::io(format!("creating {}", path.display())))?;
        }
        let index = Index::new(dir);
        index.put_damaged_aside()?;
        // Removes incomplete files of a process that was killed, unless another process is writing now.
        if let Some(_sweeping) = index.sweeping()? {
            let temporary = dir.join("tmp");
            collect::clear(&temporary).map_err(ImageError::io(format!("clearing {}", temporary.display())))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            blobs: Blobs::new(dir),
            index,
            pulling: Keyed::default(),
            insecure: Vec::new(),
            helper,
            unpacking: Slots::new(std::thread::available_parallelism().map_or(2, usize::from), unpack::LARGE_FROM),
            refused: Refused::default(),
            free_min: Box::new(|_| 0),
            module_check: None,
            layer_usages: Arc::default(),
        })
    }

    /// The bytes that pulls and imports leave free on a disk of that size.
    #[must_use]
    pub fn with_free_min(self, free_min: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self { free_min: Box::new(free_min), ..self }
    }

    /// What pulls and imports check of a module that is new to the store, beside its first bytes.
    #[must_use]
    pub fn with_module_check<F>(self, check: impl Fn(PathBuf) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), RuntimeError>> + Send + 'static,
    {
        Self { module_check: Some(Box::new(move |file| Box::pin(check(file)))), ..self }
    }

    /// Registries (`host:port`) that are used without TLS, in addition to those on loopback.
    #[must_use]
    pub fn with_insecure_registries(mut self, hosts: Vec<String>) -> Self {
        self.insecure = hosts;
        self
    }

    /// The image of that name, fetched according to the policy.
    ///
    /// # Errors
    /// See [`ImageError`]; a failed pull leaves the store as it was.
    pub async fn pull(&self, reference: &str, policy: PullPolicy, auth: &[RegistryAuth]) -> Result<Image, ImageError> {
        let name = reference::parse(reference)?;
        if policy != PullPolicy::Always
            && let Some(image) = self.present(&name.whole())?
        {
            return Ok(image);
        }
        if policy == PullPolicy::Never {
            return Err(ImageError::NeverPull { image: reference.to_owned() });
        }
        let pull_lock = self.pulling.get(&name.whole(), tokio::sync::Mutex::default);
        let _guard = pull_lock.lock().await;
        if policy == PullPolicy::IfNotPresent
            && let Some(image) = self.present(&name.whole())?
        {
            return Ok(image);
        }
        self.fill(pull::pull(self, &name, auth)).await
    }

    /// Puts a file into the store under a name: a `.wasm` or `.wat` file, an OCI layout (directory or
    /// tar archive) or a `docker save` archive.
    ///
    /// # Errors
    /// [`ImageError::NotRunnable`] when the file is none of these.
    pub async fn import(&self, name: &str, file: &Path) -> Result<Image, ImageError> {
        let name = reference::parse(name)?;
        self.fill(import::import(self, &name, file)).await
    }

    /// Adds the image that arrives. An image that is not runnable leaves nothing, and neither does one for which the disk has no room;
    /// blobs that were fetched before the network failed stay for the next attempt.
    async fn fill(&self, coming: impl Future<Output = Result<Image, ImageError>>) -> Result<Image, ImageError> {
        let filling = self.index.filling().await?;
        let error = match coming.await.and_then(|image| self.index.add(image)) {
            Ok(image) => return Ok(image),
            Err(error) => error.in_store(&self.dir),
        };
        drop(filling);
        let is_hopeless = matches!(error, ImageError::Refused { .. } | ImageError::NotRunnable { .. } | ImageError::DiskFull { .. });
        if is_hopeless && let Err(error) = self.sweep().await {
            tracing::warn!(%error, "what a refused image left is not removed");
        }
        Err(error)
    }

    /// All images, by name.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub async fn list(&self) -> Result<Vec<Image>, ImageError> {
        self.index.all()
    }

    /// The image of that name or id, if it is in the store.
    ///
    /// # Errors
    /// When the name is malformed or the list cannot be read.
    pub async fn get(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        if reference.starts_with("sha256:") {
            return Ok(self.index.all()?.into_iter().find(|image| image.id == reference && self.is_whole(image)));
        }
        self.present(&reference::parse(reference)?.whole())
    }

    fn present(&self, whole: &str) -> Result<Option<Image>, ImageError> {
        Ok(self.index.find(whole)?.filter(|image| self.is_whole(image)))
    }

    /// Whether all blobs of an image exist. Blobs that a user removed are fetched again; layers are unpacked again from their
    /// blobs.
    fn is_whole(&self, image: &Image) -> bool {
        let whole = image.blobs.iter().all(|blob| self.blobs.has(blob));
        if !whole {
            tracing::warn!(image = image.id, "a part of the image is missing in the store");
        }
        whole
    }

    /// Removes a name, and with an image's last name the image. Its layers are removed as soon as no mount uses them.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] when no image has that name.
    pub async fn remove(&self, reference: &str) -> Result<(), ImageError> {
        if !self.index.remove(&reference::key(reference)?)? {
            return Err(ImageError::Unknown { image: reference.to_owned() });
        }
        self.sweep().await
    }

    /// The content that a runtime runs: the module's file, or a root file system mounted for `key` alone. A second call with
    /// the same key returns the same. With a user namespace, the files have its ids.
    ///
    /// # Errors
    /// When a layer cannot be unpacked or the overlay cannot be mounted.
    pub async fn mount(&self, image: &Image, key: &str, user: Option<&UserNamespace>) -> Result<Content, ImageError> {
        mount::mount(self, image, key, user).await
    }

    /// Mounts the files of an image at a directory, which is made: nobody can change them or run a program in them. `key` stands for all
    /// directories of a Pod, and [`ImageStore::unmount`] ends what they need of the store, after they are unmounted. A second call with the
    /// same image changes nothing; another image takes the place of the one that is mounted there. With a user namespace, the files have
    /// its ids.
    ///
    /// # Errors
    /// When the image is a module without files, a layer cannot be unpacked or the files cannot be mounted.
    pub async fn mount_files(&self, image: &Image, key: &str, at: &Path, user: Option<&UserNamespace>) -> Result<(), ImageError> {
        mount::mount_files(self, image, key, at, user).await
    }

    /// The directory of a container's writable layer; it does not exist without a mount.
    pub fn writable_layer(&self, key: &str) -> WritableLayer {
        mount::writable_layer(self, key)
    }

    /// The file of a WASM image's module.
    pub fn module(&self, image: &Image) -> Option<PathBuf> {
        self.blobs.path(image.module_digest()?)
    }

    /// Notes that an image is used now without a mount.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn touch(&self, image: &Image) -> Result<(), ImageError> {
        self.index.touch(image)
    }

    /// The store's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What blobs and unpacked layers take on the disk; while another call measures it, what the last one has measured, if there was one. The
    /// first call walks through all layers, and goes on when the future is dropped; later calls walk through those that are new.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn usage(&self) -> Result<Option<Disk>, ImageError> {
        let (usages, dir) = (self.layer_usages.clone(), self.dir.clone());
        let measured = runtimes_host::blocking(move || usages.measure(&dir)).await;
        measured.map_err(ImageError::io(format!("measuring {}", self.dir.display())))
    }

    /// Undoes [`ImageStore::mount`] and removes the writable layer; idempotent.
    ///
    /// # Errors
    /// When the mount is still in use.
    pub async fn unmount(&self, key: &str) -> Result<(), ImageError> {
        mount::unmount(self, key).await
    }

    /// The keys of the mounts that exist, also those of an earlier process.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub async fn mounts(&self) -> Result<Vec<String>, ImageError> {
        mount::keys(self)
    }

    /// Removes the images unused the longest until the file system is no fuller than `low` per cent,
    /// once it is fuller than `high`. `in_use` is called only then.
    ///
    /// # Errors
    /// When the file system cannot be asked or the list cannot be written.
    pub async fn collect(&self, in_use: InUse<'_>, high: u8, low: u8) -> Result<Vec<Image>, ImageError> {
        collect::collect(self, in_use, high, low).await
    }

    /// Removes blobs and layers that no image names.
    async fn sweep(&self) -> Result<(), ImageError> {
        collect::sweep(self).await
    }

    fn temporary(&self) -> Result<tempdir::Temporary, ImageError> {
        tempdir::Temporary::new(&self.dir.join("tmp"))
    }
}

mod tempdir {
    //! A directory of the store's own `tmp`, removed when dropped.

    use std::io::ErrorKind;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use crate::ImageError;

    /// How long a killed process may still write, and the time between two checks.
    const STILL_WRITTEN_MAX: Duration = Duration::from_secs(10);
    const TRY_AGAIN: Duration = Duration::from_millis(5);

    pub(crate) struct Temporary(Option<PathBuf>);

    impl Temporary {
        pub(crate) fn new(parent: &Path) -> Result<Self, ImageError> {
            let path = parent.join(api_model::meta::new_uid());
            std::fs::create_dir(&path).map_err(ImageError::io(format!("creating {}", path.display())))?;
            Ok(Self(Some(path)))
        }

        pub(crate) fn path(&self) -> &Path {
            self.0.as_deref().unwrap_or(Path::new(""))
        }

        /// Removes it, however much is in it, and waits for that.
        pub(crate) async fn remove(mut self) {
            if let Some(path) = self.0.take() {
                // A thread that is gone has ended with the runtime; the next start removes the rest.
                let _removed = tokio::task::spawn_blocking(move || remove(&path)).await;
            }
        }
    }

    /// Incomplete files of a cancelled pull.
    impl Drop for Temporary {
        fn drop(&mut self) {
            let Some(path) = self.0.take() else { return };
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(move || remove(&path))),
                Err(_) => remove(&path),
            }
        }
    }

    /// A process that is being killed may still write into it: what appears meanwhile is removed too.
    fn remove(path: &Path) {
        let deadline = Instant::now() + STILL_WRITTEN_MAX;
        loop {
            match runtimes_host::files::remove_tree(path) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {
                    #[expect(clippy::disallowed_methods, reason = "on a thread of its own; the end of the writer is not told here")]
                    std::thread::sleep(TRY_AGAIN);
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return tracing::warn!(path = %path.display(), %error, "temporary directory left behind");
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
