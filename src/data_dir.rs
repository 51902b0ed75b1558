//! The data directory and the names that follow from it. They keep several clusters on one machine apart, and lead from
//! a directory to its cluster's resources.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use runtimes_host::files::{PRIVATE, write_atomic};
use sha2::{Digest, Sha256};

/// The default directory gives the plain prefix; other directories give a hash of their path.
const DEFAULT_DIR: &str = "/var/lib/skiff";

/// Parent of the run directories, one for each node of the machine. It is a tmpfs on any Linux.
const RUN_DIR: &str = "/run/skiff";

/// Files that only a data directory has. Other directories may contain `images`, too.
const MARKS: [&str; 4] = ["server.lock", "node.lock", "images/blobs/sha256", "pki/apiserver-kubelet-client.key"];

/// Number of digits of the largest process id.
const PID_LEN: usize = 10;

/// A data directory.
#[derive(Clone, Debug)]
pub struct DataDir {
    /// Absolute, without symbolic links.
    pub dir: PathBuf,
    /// Prefix in the names of this cluster's interfaces, nftables tables and cgroups on this machine.
    pub prefix: String,
}

impl DataDir {
    /// Opens a directory. Creates it if it does not exist.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let dir = dir.canonicalize()?;
        close_to_others(&dir)?;
        let prefix = prefix(&dir);
        Ok(Self { dir, prefix })
    }

    /// A path in the directory.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The default directory for a node's data that is valid until the next boot.
    pub fn run_dir_default(&self) -> PathBuf {
        Path::new(RUN_DIR).join(&self.prefix)
    }

    /// Keeps other processes of the same role out until the returned file is closed.
    pub fn lock(&self, role: &str) -> anyhow::Result<File> {
        let path = self.at(&format!("{role}.lock"));
        let file = File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
        match file.try_lock() {
            Ok(()) => {
                // The id is overwritten in place, because a full disk has no space for a new file. The id is only for
                // people; the lock keeps other processes out.
                if let Err(error) = (&file).write_all(format!("{:<PID_LEN$}", std::process::id()).as_bytes()) {
                    tracing::warn!(%error, path = %path.display(), "the process' id could not be written down");
                }
                Ok(file)
            }
            Err(TryLockError::WouldBlock) => {
                let pid = std::fs::read_to_string(&path).unwrap_or_default();
                let pid = pid.trim();
                bail!("{} is in use by another skiff process (pid {pid}); stop it, or give this one another --data-dir", self.dir.display())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
        }
    }

    /// Writes a file that only its owner may read, completely or not at all.
    pub fn write_private(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.at(name);
        write_atomic(&path, content.as_bytes(), PRIVATE).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// [`DataDir::write_private`] for a file that is renewed from time to time: if the disk is full, the old file
    /// stays.
    pub fn renew_private(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let is_full = |error: &anyhow::Error| {
            let cause = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            matches!(cause, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
        };
        match self.write_private(name, content) {
            Err(error) if is_full(&error) && self.at(name).exists() => {
                tracing::warn!(error = format!("{error:#}"), "the old one is kept");
                Ok(self.at(name))
            }
            written => written,
        }
    }
}

/// Makes a data directory accessible only to its owner, also one that an earlier version left open. A directory with
/// other contents (`/srv`) stays as it is, because skiff's files in it are private by themselves. But if other users
/// may write to such a directory, this is an error.
fn close_to_others(dir: &Path) -> anyhow::Result<()> {
    let mode = dir.metadata()?.permissions().mode();
    let mut entries = std::fs::read_dir(dir)?;
    let is_ours = MARKS.iter().any(|mark| dir.join(mark).exists()) || entries.next().is_none();
    let is_shared = mode & 0o1000 != 0 || !is_ours;
    if is_shared && mode & 0o022 != 0 {
        bail!("{} may be written by other users (mode {:o}): chmod 700 it, or choose another --data-dir", dir.display(), mode & 0o7777);
    }
    if is_ours && mode & 0o7777 != 0o700 {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o700)).with_context(|| format!("closing {} to others", dir.display()))?;
    }
    Ok(())
}

fn prefix(dir: &Path) -> String {
    if dir == Path::new(DEFAULT_DIR) {
        return "skiff".to_owned();
    }
    let hash = Sha256::digest(dir.as_os_str().as_encoded_bytes());
    let hex: String = hash.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    format!("sk{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_names_of_their_own_that_fit_an_interface() {
        assert_eq!(prefix(Path::new(DEFAULT_DIR)), "skiff");
        let (a, b) = (prefix(Path::new("/tmp/a")), prefix(Path::new("/tmp/b")));
        assert!(a != b && a.len() == 8 && a == prefix(Path::new("/tmp/a")));
    }

    #[test]
    fn a_data_directory_is_its_owners_alone() {
        let (parent, mode) =
            (tempfile::tempdir().expect("a directory"), |path: &Path| path.metadata().expect("there").permissions().mode() & 0o7777);
        let open = |name: &str, bits: u32, file: Option<&str>| {
            let dir = parent.path().join(name);
            let file = file.map(|file| dir.join(file));
            std::fs::create_dir_all(file.as_deref().and_then(Path::parent).unwrap_or(&dir)).expect("makes");
            file.iter().for_each(|file| std::fs::write(file, "").expect("writes"));
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(bits)).expect("its mode");
            DataDir::open(&dir).map(|data_dir| mode(&data_dir.dir)).map_err(|error| error.to_string())
        };
        assert_eq!(mode(&DataDir::open(&parent.path().join("fresh")).expect("opens").dir), 0o700);
        assert_eq!(open("empty", 0o755, None), Ok(0o700));
        assert_eq!(open("ours", 0o755, Some("server.lock")), Ok(0o700));
        assert_eq!(open("imported", 0o755, Some("images/blobs/sha256/00")), Ok(0o700));
        for other in ["else", "images/logo.png", "pki/ca.crt"] {
            assert_eq!(open(&other.replace('/', "-"), 0o755, Some(other)), Ok(0o755), "{other} is not ours");
        }
        let refused = open("open", 0o1777, None).expect_err("is refused");
        assert!(refused.contains("may be written by other users (mode 1777)"), "{refused}");
    }

    #[test]
    fn a_second_process_of_a_role_fails_with_advice() {
        let dir = tempfile::tempdir().expect("a directory");
        let data_dir = DataDir::open(dir.path()).expect("opens");
        let _lock = data_dir.lock("node").expect("is free");
        let error = data_dir.lock("node").expect_err("is held").to_string();
        assert!(error.contains("--data-dir") && error.contains(&std::process::id().to_string()), "{error}");
    }
}
