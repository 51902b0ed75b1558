//! One entry of an archive, written below `/`. Whiteouts get overlayfs' form; entries that a container cannot use or must not
//! have are left out. <https://github.com/opencontainers/image-spec/blob/main/layer.md>

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use runtimes_host::helper::Fault;
use tar::{Entry, EntryType};

use super::process::Form;
use super::verdict::Verdict;

/// The longest path that the kernel accepts.
const PATH_LEN_MAX: usize = 4_095;
/// Directories in a path.
const DEPTH_MAX: usize = 256;
/// The extended attributes of one file.
const XATTRS_MAX: usize = 64;
/// The directories of one layer whose lower content is hidden, and the bytes of their names.
const OPAQUE_MAX: usize = 4_096;
const OPAQUE_LEN_MAX: usize = 64 << 10;
/// Marks a file that upper layers hide.
const WHITEOUT: &[u8] = b".wh.";
/// Marks a directory whose lower content is hidden.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of aufs' own files.
const OF_AUFS: &[u8] = b".wh..wh.";
/// How PAX names an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// The opaque directories, and the bytes of their names.
#[derive(Default)]
pub(super) struct Opaque {
    pub dirs: Vec<OsString>,
    len: usize,
}

/// Unpacks one entry.
pub(super) fn unpack<R: Read>(entry: &mut Entry<'_, R>, form: Form, verdict: &Verdict, opaque: &mut Opaque) -> io::Result<()> {
    let path = entry.path()?.into_owned();
    let relative = relative(&path).map_err(|fault| verdict.set(fault))?;
    let kind = entry.header().entry_type();
    let name = relative.file_name().unwrap_or_default().as_bytes();
    if form == Form::Layer && name.starts_with(WHITEOUT) {
        return whiteout(&relative, name, verdict, opaque);
    }
    match kind {
        // It is about archives, not files.
        EntryType::XGlobalHeader => Ok(()),
        // A container gets its own device files from its runtime; it could not open others.
        EntryType::Block | EntryType::Char => Ok(()),
        EntryType::Fifo => fifo(entry, &relative),
        _ => {
            if !entry.unpack_in("/")? {
                return Err(verdict.set(escape(&path)));
            }
            if form == Form::Layer && matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::Directory) {
                set_xattrs(entry, &Path::new("/").join(&relative), verdict)?;
            }
            Ok(())
        }
    }
}

/// The path below the root, or why it is invalid.
fn relative(path: &Path) -> Result<PathBuf, Fault> {
    let len = path.as_os_str().len();
    if len > PATH_LEN_MAX {
        return Err(Fault::Limit(format!("a path of {len} bytes; at most {PATH_LEN_MAX} are possible")));
    }
    let mut relative = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => relative.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(escape(path)),
        }
    }
    let depth = relative.components().count();
    if depth > DEPTH_MAX {
        return Err(Fault::Limit(format!("a path of {depth} levels; at most {DEPTH_MAX} are unpacked")));
    }
    Ok(relative)
}

fn escape(path: &Path) -> Fault {
    Fault::Content(format!("{} leaves the archive", path.display()))
}

fn whiteout(relative: &Path, name: &[u8], verdict: &Verdict, opaque: &mut Opaque) -> io::Result<()> {
    let parent = relative.parent().unwrap_or(Path::new(""));
    let dir = plain(parent).map_err(|fault| verdict.set(fault))?;
    if name == OPAQUE {
        fs::create_dir_all(&dir)?;
        opaque.dirs.push(parent.as_os_str().to_owned());
        opaque.len += parent.as_os_str().len();
        if opaque.dirs.len() > OPAQUE_MAX || opaque.len > OPAQUE_LEN_MAX {
            return Err(verdict.set(Fault::Limit(format!("more than {OPAQUE_MAX} opaque directories, or names of more than 64 KiB"))));
        }
        return Ok(());
    }
    let hidden = name.strip_prefix(WHITEOUT).unwrap_or_default();
    if name.starts_with(OF_AUFS) || matches!(hidden, b"" | b"." | b"..") {
        return Ok(());
    }
    fs::create_dir_all(&dir)?;
    match mknod(&dir.join(OsStr::from_bytes(hidden)), SFlag::S_IFCHR, Mode::empty(), makedev(0, 0)) {
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A directory that no symbolic link leads to.
fn plain(relative: &Path) -> Result<PathBuf, Fault> {
    let mut path = PathBuf::from("/");
    for part in relative.components() {
        path.push(part);
        if path.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
            return Err(escape(relative));
        }
    }
    Ok(path)
}

fn fifo<R: Read>(entry: &Entry<'_, R>, relative: &Path) -> io::Result<()> {
    let path = Path::new("/").join(relative);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let header = entry.header();
    nix::unistd::mkfifo(&path, Mode::empty())?;
    let owner = |id: u64| u32::try_from(id).map_err(io::Error::other);
    std::os::unix::fs::lchown(&path, Some(owner(header.uid()?)?), Some(owner(header.gid()?)?))?;
    fs::set_permissions(&path, Permissions::from_mode(header.mode()? & 0o7777))
}

fn set_xattrs<R: Read>(entry: &mut Entry<'_, R>, path: &Path, verdict: &Verdict) -> io::Result<()> {
    let Some(fields) = entry.pax_extensions()? else { return Ok(()) };
    let mut count = 0;
    for field in fields.flatten() {
        let Some(name) = field.key_bytes().strip_prefix(XATTR) else { continue };
        count += 1;
        if count > XATTRS_MAX {
            let words = format!("{} has more than {XATTRS_MAX} extended attributes", path.display());
            return Err(verdict.set(Fault::Limit(words)));
        }
        if !is_allowed(name, field.value_bytes()) {
            continue;
        }
        match xattr::set(path, OsStr::from_bytes(name), field.value_bytes()) {
            // As containerd: not all file systems have them.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            set => set?,
        }
    }
    Ok(())
}

/// Whether an image may set that attribute: user attributes and file capabilities. The attributes of the kernel's overlayfs and
/// security modules belong to the node.
fn is_allowed(name: &[u8], value: &[u8]) -> bool {
    match name {
        // Revisions 2 and 3 of `struct vfs_cap_data`.
        b"security.capability" => matches!(value.len(), 20 | 24),
        _ => name.starts_with(b"user.") && !name.starts_with(b"user.overlay."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root_and_within_their_limits() {
        let deep = vec!["d"; 257].join("/");
        let long = "x/".repeat(2_100);
        for (path, wanted) in [
            ("./etc//passwd", Ok("etc/passwd")),
            ("/usr/bin/x", Ok("usr/bin/x")),
            ("../x", Err("leaves the archive")),
            ("a/../../x", Err("leaves the archive")),
            (deep.as_str(), Err("a path of 257 levels; at most 256")),
            (long.as_str(), Err("a path of 4200 bytes; at most 4095")),
        ] {
            match (relative(Path::new(path)), wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, Path::new(wanted)),
                (Err(fault), Err(wanted)) => assert!(fault.to_string().contains(wanted), "{fault}"),
                (found, wanted) => panic!("{path}: {found:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn only_attributes_that_are_an_images_own_are_set() {
        for (name, len, wanted) in [
            ("user.note", 3, true),
            ("security.capability", 20, true),
            ("security.capability", 4_000, false),
            ("security.selinux", 20, false),
            ("security.ima", 20, false),
            ("trusted.overlay.opaque", 1, false),
            ("trusted.overlay.redirect", 4, false),
            ("user.overlay.opaque", 1, false),
            ("system.posix_acl_access", 44, false),
        ] {
            assert_eq!(is_allowed(name.as_bytes(), &vec![0; len]), wanted, "{name}");
        }
    }
}
