//! The files of a container by the paths that its guest knows.

use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use nix::errno::Errno;

use super::super::root::Preopen;

/// The preopen of the working directory.
const WORKING_DIR: &str = ".";

/// The directories that the guest is shown. No link and no `..` leads out of one.
pub struct Files {
    dirs: Vec<(PathBuf, Dir)>,
    working_dir: PathBuf,
}

impl Files {
    /// Opens the directories.
    ///
    /// # Errors
    /// When the container's user may not open one.
    pub fn open(preopens: &[Preopen], working_dir: &Path) -> io::Result<Self> {
        let open = |preopen: &Preopen| Ok((PathBuf::from(&preopen.name), Dir::open_ambient_dir(&preopen.dir, ambient_authority())?));
        Ok(Self { dirs: preopens.iter().map(open).collect::<io::Result<_>>()?, working_dir: working_dir.to_owned() })
    }

    /// The directory that has the path, and the path from there.
    ///
    /// # Errors
    /// When the guest is shown no such directory.
    pub fn locate(&self, path: &Path) -> io::Result<(&Dir, PathBuf)> {
        let in_working_dir = || {
            let below = resolved(path).filter(|_| path.is_relative())?;
            let (_, dir) = self.dirs.iter().find(|(name, _)| name.as_os_str() == WORKING_DIR)?;
            Some((dir, below))
        };
        let in_innermost = || {
            let path = resolved(&self.working_dir.join(path))?;
            let path = Path::new("/").join(path);
            let dirs = self.dirs.iter().filter(|(name, _)| path.starts_with(name));
            let (name, dir) = dirs.max_by_key(|(name, _)| name.as_os_str().len())?;
            Some((dir, path.strip_prefix(name).ok()?.to_owned()))
        };
        let (dir, below) = in_working_dir().or_else(in_innermost).ok_or(Errno::ENOENT)?;
        Ok((dir, if below.as_os_str().is_empty() { WORKING_DIR.into() } else { below }))
    }
}

/// The path from its beginning, without `.` and `..`; `None` when a relative one leads above its beginning.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => {
                if !resolved.pop() && path.is_relative() {
                    return None;
                }
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use wasmtime_wasi::FsPerms;

    use super::*;

    #[test]
    fn a_path_is_in_the_innermost_directory_of_the_guest() {
        let root = tempfile::tempdir().unwrap();
        let preopen = |name: &str, dir: &str| {
            std::fs::create_dir(root.path().join(dir)).unwrap();
            std::fs::write(root.path().join(dir).join(dir), "").unwrap();
            Preopen { dir: root.path().join(dir), name: name.into(), permissions: FsPerms::ReadWrite }
        };
        let preopens = [preopen("/", "root"), preopen("/data", "data"), preopen(".", "own")];
        let files = Files::open(&preopens, Path::new("/app")).unwrap();
        let cases = [
            ("/", "root", "."),
            ("/x/y", "root", "x/y"),
            ("/data", "data", "."),
            ("/data/x", "data", "x"),
            ("/data/../../x", "root", "x"),
            ("/database", "root", "database"),
            ("x", "own", "x"),
            (".", "own", "."),
            ("./x/../y", "own", "y"),
            ("../x", "root", "x"),
            ("../data/x", "data", "x"),
        ];
        for (path, wanted, below) in cases {
            let (dir, path_below) = files.locate(Path::new(path)).unwrap();
            assert!(dir.exists(wanted), "{path} is not in {wanted}");
            assert_eq!(path_below, Path::new(below), "{path}");
        }
        let alone = Files::open(&preopens[1..2], Path::new("/")).unwrap();
        assert_eq!(alone.locate(Path::new("/x")).err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
