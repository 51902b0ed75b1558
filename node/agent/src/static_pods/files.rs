//! Reads the manifests of static Pods: the files of a directory, or one file. The directory is read when the kernel reports a
//! change, and in any case in upstream's period. A file that is no Pod is reported once for each content; the Pod that it was before goes
//! on, and so do the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::manifest::{self, ManifestError, Origin};
use crate::error::chain;
use crate::logs::Changes;

/// The period in which the files are read without a notification; upstream's `fileCheckFrequency`.
const CHECK_PERIOD: Duration = Duration::from_secs(20);
/// How long nothing must have changed before the files are read, so that a file that is being written is whole, and how long that
/// may take at most.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// Most bytes of a manifest.
const MANIFEST_LEN_MAX: u64 = 1 << 20;
/// Most files of the directory that are read.
const FILES_MAX: usize = 1_000;

/// Why a file gives no Pod.
#[derive(Debug, Error)]
enum FileError {
    #[error("cannot be read")]
    Read(#[from] io::Error),
    #[error("is neither a file nor a directory")]
    NoFile,
    #[error("is a directory; directories in the manifest path are not read")]
    Directory,
    #[error("has more than {MANIFEST_LEN_MAX} bytes")]
    TooLong,
    #[error("{0} is already the Pod of another file")]
    SameName(ObjectKey),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// A file of the last reading.
#[derive(Default)]
struct ManifestFile {
    pod: Option<Arc<Pod>>,
    complaint: Option<String>,
}

/// The manifests of a node.
pub(crate) struct Manifests {
    path: PathBuf,
    node: String,
    files: BTreeMap<PathBuf, ManifestFile>,
    /// Why the path itself cannot be read.
    complaint: Option<String>,
}

/// What a reading found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reading {
    /// The Pods, each name once.
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Files with a problem that is new.
    pub(crate) complaints: Vec<(PathBuf, String)>,
}

impl Reading {
    /// Takes a problem of a path unless it is the `last` one, which it becomes.
    fn complain(&mut self, last: &mut Option<String>, path: &Path, complaint: String) {
        if last.as_ref() != Some(&complaint) {
            self.complaints.push((path.to_owned(), complaint.clone()));
            *last = Some(complaint);
        }
    }
}

impl Manifests {
    pub(crate) fn new(path: PathBuf, node: String) -> Self {
        Self { path, node, files: BTreeMap::new(), complaint: None }
    }

    /// Reads all files. Blocks.
    pub(crate) fn read(&mut self, now: Timestamp) -> Reading {
        let mut reading = Reading::default();
        match paths(&self.path) {
            Ok(paths) => {
                self.complaint = None;
                self.files.retain(|path, _| paths.contains(path));
                let mut names = BTreeSet::new();
                for path in paths {
                    self.read_file(path, now, &mut names, &mut reading);
                }
            }
            // What ran goes on: a directory that cannot be read says nothing about its files.
            Err(error) => {
                reading.complain(&mut self.complaint, &self.path, chain(&error));
            }
        }
        reading.pods = self.files.values().filter_map(|file| file.pod.clone()).collect();
        reading
    }

    fn read_file(&mut self, path: PathBuf, now: Timestamp, names: &mut BTreeSet<ObjectKey>, reading: &mut Reading) {
        let file = self.files.entry(path.clone()).or_default();
        let text = text(&path);
        let first_read = now.to_string();
        let parsed = text.and_then(|text| Ok(manifest::parse(&text, &Origin { node: &self.node, path: &path, first_read: &first_read })?));
        let parsed = parsed.and_then(|pod| {
            let name = ObjectKey::from(&pod.metadata);
            if names.contains(&name) { Err(FileError::SameName(name)) } else { Ok(pod) }
        });
        match parsed {
            Ok(pod) => {
                file.complaint = None;
                // The same content stays the same Pod, with the time at which it was first read.
                if file.pod.as_ref().is_none_or(|before| before.metadata.uid != pod.metadata.uid) {
                    file.pod = Some(Arc::new(pod));
                }
            }
            Err(error) => {
                // A second Pod of the name must not come back when the file of the first one goes on.
                if matches!(error, FileError::SameName(_)) {
                    file.pod = None;
                }
                reading.complain(&mut file.complaint, &path, chain(&error));
            }
        }
        names.extend(file.pod.as_deref().map(|pod| ObjectKey::from(&pod.metadata)));
    }

    /// The directory whose changes concern the files.
    fn watched(&self) -> &Path {
        if self.path.is_file() { self.path.parent().unwrap_or(&self.path) } else { &self.path }
    }
}

/// The files to read, in order; upstream leaves out those whose names begin with a dot. No directory is no file.
fn paths(path: &Path) -> io::Result<BTreeSet<PathBuf>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Ok(metadata) if !metadata.is_dir() => return Ok([path.to_owned()].into()),
        other => other.map(drop)?,
    }
    let entries = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut paths: BTreeSet<PathBuf> = entries.into_iter().filter(|path| !is_hidden(path)).collect();
    if paths.len() > FILES_MAX {
        tracing::warn!(dir = %path.display(), files = paths.len(), "only the first {FILES_MAX} manifests are read");
        paths = paths.into_iter().take(FILES_MAX).collect();
    }
    Ok(paths)
}

fn text(path: &Path) -> Result<Vec<u8>, FileError> {
    let check = |metadata: fs::Metadata| match metadata {
        metadata if metadata.is_file() => Ok(()),
        metadata if metadata.is_dir() => Err(FileError::Directory),
        _ => Err(FileError::NoFile),
    };
    check(fs::metadata(path)?)?;
    // It may have become a pipe since, whose opening would wait.
    let file: File = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    check(file.metadata()?)?;
    let mut text = Vec::new();
    file.take(MANIFEST_LEN_MAX + 1).read_to_end(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|len| len > MANIFEST_LEN_MAX) { Err(FileError::TooLong) } else { Ok(text) }
}

/// Reports problems of files: in the log, and by `complain`.
pub(crate) fn report(reading: &Reading, complain: &impl Fn(String)) {
    for (path, complaint) in &reading.complaints {
        tracing::warn!(path = %path.display(), error = complaint, "a manifest gives no static Pod");
        complain(format!("{}: {complaint}", path.display()));
    }
}

/// Reads the files again whenever they change, until cancelled.
pub(crate) async fn run(
    mut manifests: Manifests,
    pods: watch::Sender<Vec<Arc<Pod>>>,
    complain: impl Fn(String) + Send,
    cancel: CancellationToken,
) {
    let work = async {
        loop {
            let changes = Changes::new(manifests.watched()).ok();
            let read = api_tasks::blocking("node-agent/read-manifests", move || {
                let reading = manifests.read(api_clock::now());
                (manifests, reading)
            });
            // The reading ends only with a panic, which was logged where it happened.
            let Ok((before, reading)) = read.await else { return };
            manifests = before;
            report(&reading, &complain);
            pods.send_if_modified(|present| {
                let changed = *present != reading.pods;
                *present = reading.pods;
                changed
            });
            let _changed = tokio::time::timeout(CHECK_PERIOD, settled(changes.as_ref())).await;
        }
    };
    cancel.run_until_cancelled(work).await;
}

/// Resolves when something has changed and nothing more has changed for a while.
async fn settled(changes: Option<&Changes>) {
    let Some(changes) = changes else { return std::future::pending().await };
    if changes.next().await.is_err() {
        return std::future::pending().await;
    }
    let quiet = async { while let Ok(Ok(())) = tokio::time::timeout(SETTLED_AFTER, changes.next()).await {} };
    let _quiet = tokio::time::timeout(SETTLED_WITHIN, quiet).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, image: &str) -> String {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n")
    }

    struct Dir {
        dir: tempfile::TempDir,
        manifests: Manifests,
    }

    impl Dir {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let manifests = Manifests::new(dir.path().to_owned(), "n".to_owned());
            Self { dir, manifests }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.dir.path().join(name), text).expect("written");
        }

        /// Names and images, and the files with complaints.
        fn read(&mut self) -> (Vec<String>, Vec<String>) {
            let reading = self.manifests.read(Timestamp::UNIX_EPOCH);
            let summary = |pod: &Arc<Pod>| {
                let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default();
                format!("{}={image}", pod.metadata.name.clone().unwrap_or_default())
            };
            let file = |(path, _): &(PathBuf, String)| path.file_name().expect("a name").to_string_lossy().into_owned();
            (reading.pods.iter().map(summary).collect(), reading.complaints.iter().map(file).collect())
        }
    }

    fn texts(pods: &[&str], complaints: &[&str]) -> (Vec<String>, Vec<String>) {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        (owned(pods), owned(complaints))
    }

    #[test]
    fn a_broken_file_is_reported_once_and_leaves_its_pod_and_the_others_alone() {
        let mut dir = Dir::new();
        dir.write("a.yaml", &manifest("a", "one"));
        dir.write("b.json", &manifest("b", "one"));
        dir.write("c.yaml", "nonsense: [");
        dir.write(".hidden.yaml", &manifest("h", "one"));
        fs::create_dir(dir.dir.path().join("sub")).expect("made");
        assert_eq!(dir.read(), texts(&["a-n=one", "b-n=one"], &["c.yaml", "sub"]));
        assert_eq!(dir.read(), texts(&["a-n=one", "b-n=one"], &[]));
        dir.write("a.yaml", "kind: Pod");
        assert_eq!(dir.read(), texts(&["a-n=one", "b-n=one"], &["a.yaml"]));
        dir.write("a.yaml", &manifest("a", "two"));
        fs::remove_file(dir.dir.path().join("b.json")).expect("removed");
        assert_eq!(dir.read(), texts(&["a-n=two"], &[]));
        dir.write("c.yaml", &manifest("c", "one"));
        assert_eq!(dir.read(), texts(&["a-n=two", "c-n=one"], &[]));
    }

    #[test]
    fn of_two_files_with_one_name_the_first_counts() {
        let mut dir = Dir::new();
        dir.write("a.yaml", &manifest("web", "first"));
        dir.write("b.yaml", &manifest("web", "second"));
        assert_eq!(dir.read(), texts(&["web-n=first"], &["b.yaml"]));
        fs::remove_file(dir.dir.path().join("a.yaml")).expect("removed");
        assert_eq!(dir.read(), texts(&["web-n=second"], &[]));
    }

    #[test]
    fn hostile_files_cost_nothing() {
        let mut dir = Dir::new();
        dir.write("a.yaml", &manifest("a", "one"));
        nix::unistd::mkfifo(&dir.dir.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", dir.dir.path().join("zero")).expect("a link");
        let long = File::create(dir.dir.path().join("z-long")).expect("a file");
        long.set_len(1 << 40).expect("a long file");
        assert_eq!(dir.read(), texts(&["a-n=one"], &["pipe", "z-long", "zero"]));
    }

    #[test]
    fn no_directory_is_no_pod_and_one_file_is_one() {
        let dir = Dir::new();
        let mut absent = Manifests::new(dir.dir.path().join("absent"), "n".to_owned());
        assert_eq!(absent.read(Timestamp::UNIX_EPOCH), Reading::default());
        dir.write("a.yaml", &manifest("a", "one"));
        let mut one = Manifests::new(dir.dir.path().join("a.yaml"), "n".to_owned());
        assert_eq!(one.read(Timestamp::UNIX_EPOCH).pods.len(), 1);
        assert_eq!(one.watched(), dir.dir.path());
    }
}
