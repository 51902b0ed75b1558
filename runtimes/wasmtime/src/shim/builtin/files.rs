//! The files of a container by the paths that its guest knows.

use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use nix::errno::Errno;
use runtimes_contract::{ContainerSpec, USER_NAMESPACE_IDS};
use wasmtime_wasi::FsPerms;

use super::super::root::Preopen;
use crate::NOBODY;
use crate::innermost::innermost;

/// The preopen of the working directory.
const WORKING_DIR: &str = ".";
/// A directory from itself.
const ITSELF: &str = ".";

/// The directories that the guest is shown. No link and no `..` leads out of one.
pub struct Files {
    dirs: Vec<Mounted>,
    working_dir: PathBuf,
    /// The node's id of the Pod's id 0, if the Pod has ids of its own.
    first_id: Option<u32>,
}

struct Mounted {
    name: PathBuf,
    dir: Dir,
    permissions: FsPerms,
    /// It is part of another one.
    is_working_dir: bool,
}

/// A path of the guest, as the directory that has it and the path from there.
pub struct Location<'a> {
    pub dir: &'a Dir,
    pub path: PathBuf,
}

impl Files {
    /// Opens the directories.
    ///
    /// # Errors
    /// When the container's user may not open one.
    pub fn open(preopens: &[Preopen], spec: &ContainerSpec) -> io::Result<Self> {
        let open = |preopen: &Preopen| {
            let is_working_dir = preopen.name == WORKING_DIR;
            Ok(Mounted {
                name: if is_working_dir { spec.working_dir.clone() } else { PathBuf::from(&preopen.name) },
                dir: Dir::open_ambient_dir(&preopen.dir, ambient_authority())?,
                permissions: preopen.permissions,
                is_working_dir,
            })
        };
        Ok(Self {
            dirs: preopens.iter().map(open).collect::<io::Result<_>>()?,
            working_dir: spec.working_dir.clone(),
            first_id: spec.sandbox.user.as_ref().map(|user| user.first_id),
        })
    }

    /// The path from the root, without `.` and `..`.
    ///
    /// # Errors
    /// When the path is empty.
    pub fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT.into());
        }
        let mut absolute = PathBuf::from("/");
        for component in self.working_dir.join(path).components() {
            match component {
                Component::Normal(name) => absolute.push(name),
                // There is nothing above the root.
                Component::ParentDir => drop(absolute.pop()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        Ok(absolute)
    }

    /// Where a file is read.
    ///
    /// # Errors
    /// When the guest is shown no directory that has the path.
    pub fn locate(&self, path: &Path) -> io::Result<Location<'_>> {
        self.mounted(path).map(|(_, location)| location)
    }

    /// Where a file is written.
    ///
    /// # Errors
    /// As [`Files::locate`], and when the guest may only read there.
    pub fn locate_writable(&self, path: &Path) -> io::Result<Location<'_>> {
        match self.mounted(path)? {
            (Mounted { permissions: FsPerms::ReadWrite, .. }, location) => Ok(location),
            _ => Err(Errno::EROFS.into()),
        }
    }

    fn mounted(&self, path: &Path) -> io::Result<(&Mounted, Location<'_>)> {
        let path = self.absolute(path)?;
        let (mounted, below) = innermost(&self.dirs, |mounted| &mounted.name, &path).ok_or(Errno::ENOENT)?;
        let path = if below.as_os_str().is_empty() { ITSELF.into() } else { below.to_owned() };
        Ok((mounted, Location { dir: &mounted.dir, path }))
    }

    /// The names of directories in a directory that are others than those which a listing of it has.
    pub fn mounted_in<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let in_dir = |mounted: &&Mounted| !mounted.is_working_dir && mounted.name.parent() == Some(dir);
        self.dirs.iter().filter(in_dir).filter_map(|mounted| mounted.name.file_name().map(PathBuf::from))
    }

    /// A user or group as the Pod knows it. The Pod does not know those of the node.
    pub fn id(&self, on_node: u32) -> u32 {
        let Some(first) = self.first_id else { return on_node };
        on_node.checked_sub(first).filter(|&id| id < USER_NAMESPACE_IDS).unwrap_or(NOBODY)
    }
}

#[cfg(test)]
mod tests {
    use runtimes_battery::plain_spec;
    use runtimes_contract::UserNamespace;

    use super::*;

    #[test]
    fn a_path_is_in_the_innermost_directory_of_the_guest() {
        let root = tempfile::tempdir().unwrap();
        let preopen = |name: &str, dir: &str| {
            std::fs::create_dir(root.path().join(dir)).unwrap();
            std::fs::write(root.path().join(dir).join(dir), "").unwrap();
            let permissions = if dir == "fixed" { FsPerms::ReadOnly } else { FsPerms::ReadWrite };
            Preopen { dir: root.path().join(dir), name: name.into(), permissions }
        };
        let preopens = [preopen("/", "root"), preopen("/data", "data"), preopen("/data/fixed", "fixed"), preopen(".", "own")];
        let mut spec = plain_spec("c");
        spec.working_dir = "/app".into();
        let files = Files::open(&preopens, &spec).unwrap();
        let cases = [
            ("/", "root", "."),
            ("/x/y", "root", "x/y"),
            ("/data", "data", "."),
            ("/data/x", "data", "x"),
            ("/data/../../x", "root", "x"),
            ("/database", "root", "database"),
            ("/app/x", "own", "x"),
            ("x", "own", "x"),
            (".", "own", "."),
            ("./x/../y", "own", "y"),
            ("../x", "root", "x"),
            ("../data/x", "data", "x"),
        ];
        for (path, wanted, below) in cases {
            let location = files.locate_writable(Path::new(path)).unwrap();
            assert!(location.dir.exists(wanted), "{path} is not in {wanted}");
            assert_eq!(location.path, Path::new(below), "{path}");
        }
        assert!(files.locate(Path::new("/data/fixed/x")).is_ok());
        assert_eq!(files.locate_writable(Path::new("/data/fixed/x")).err().unwrap().raw_os_error(), Some(libc::EROFS));
        assert_eq!(files.locate(Path::new("")).err().unwrap().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(files.mounted_in(Path::new("/data")).collect::<Vec<_>>(), [PathBuf::from("fixed")]);
        assert_eq!(files.mounted_in(Path::new("/")).collect::<Vec<_>>(), [PathBuf::from("data")]);
        let alone = Files::open(&preopens[1..2], &spec).unwrap();
        assert_eq!(alone.locate(Path::new("/x")).err().unwrap().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn ids_are_those_of_the_pod() {
        let mut spec = plain_spec("c");
        let id = |spec: &ContainerSpec, on_node| Files::open(&[], spec).unwrap().id(on_node);
        assert_eq!(id(&spec, 132_072), 132_072);
        spec.sandbox.user = Some(UserNamespace { path: "/ns".into(), first_id: 131_072 });
        for (on_node, wanted) in [(132_072, 1_000), (131_072, 0), (1_000, NOBODY), (131_072 + USER_NAMESPACE_IDS, NOBODY)] {
            assert_eq!(id(&spec, on_node), wanted);
        }
    }
}
