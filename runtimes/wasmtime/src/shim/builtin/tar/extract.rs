//! Makes the files of an archive.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use tar::{Archive, Entry, EntryType};

use super::super::files::Location;
use super::super::{Files, Streams, printable};
use super::Options;

/// The bytes of an archive that are received at once.
const BUFFER_LEN: usize = 64 << 10;
/// The bits of a mode that count.
const PERMISSIONS: u32 = 0o777;
/// The owner's bits of a directory whose files come after it.
const OWNER: u32 = 0o700;

/// Makes every file of the archive. One that cannot be made is a message, and the others follow.
///
/// # Errors
/// When the archive cannot be read.
pub fn extract(options: &Options, files: &Files, streams: &mut Streams) -> io::Result<()> {
    if !options.paths.is_empty() {
        return Err(io::Error::other("Skiff's own tar extracts all of an archive, not some of its files"));
    }
    let mut input = BufReader::with_capacity(BUFFER_LEN, &streams.stdin);
    if input.fill_buf()?.is_empty() {
        return Err(io::Error::other("This does not look like a tar archive: it is empty"));
    }
    let mut archive = Archive::new(&mut input);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let member = entry.path()?.into_owned();
        if let Err(error) = extract_one(&mut entry, &member, options, files) {
            streams.messages.complain(printable(&member), &error);
        }
        if options.is_verbose {
            writeln!(&streams.stdout, "{}", printable(&member))?;
        }
    }
    // What the client still writes has a reader.
    io::copy(&mut input, &mut io::sink()).map(drop)
}

fn extract_one<R: Read>(entry: &mut Entry<R>, member: &Path, options: &Options, files: &Files) -> io::Result<()> {
    let kind = entry.header().entry_type();
    if kind == EntryType::XGlobalHeader {
        return Ok(());
    }
    // Its holes would be written as zeros, as many as the archive says.
    if kind == EntryType::GNUSparse || is_sparse(entry)? {
        return Err(io::Error::other("a sparse file; ignored. Make the archive without S"));
    }
    let Location { dir, path } = files.locate_writable(&options.path(&inside(member)?))?;
    make_parents(dir, &path)?;
    match kind {
        EntryType::Directory => make_dir(dir, &path, entry.header().mode()?),
        EntryType::Regular | EntryType::Continuous => make_file(dir, &path, entry, options.keeps_times),
        EntryType::Symlink => {
            let target = link_target(entry)?;
            replacing(dir, &path, || dir.symlink_contents(&target, &path))
        }
        EntryType::Link => {
            let target = files.locate_writable(&options.path(&inside(&link_target(entry)?)?))?;
            make_link(&target, dir, &path)
        }
        _ => Err(io::Error::other("not a file, a directory or a link; ignored")),
    }
}

fn is_sparse<R: Read>(entry: &mut Entry<R>) -> io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(false) };
    Ok(extensions.flatten().any(|extension| extension.key_bytes().starts_with(b"GNU.sparse.")))
}

/// The path below the directory where the archive is extracted.
fn inside(member: &Path) -> io::Result<PathBuf> {
    if member.components().any(|component| component == Component::ParentDir) {
        return Err(io::Error::other("Member name contains '..'"));
    }
    Ok(member.components().filter(|component| matches!(component, Component::Normal(_))).collect())
}

fn link_target<R: Read>(entry: &Entry<R>) -> io::Result<PathBuf> {
    let target = entry.link_name()?.ok_or_else(|| io::Error::other("a link without a target"))?;
    Ok(target.into_owned())
}

fn make_parents(dir: &Dir, path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
        return Ok(());
    };
    match dir.metadata(parent) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        // What is in the way is the error of the directory.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => dir.create_dir_all(parent),
    }
}

fn make_dir(dir: &Dir, path: &Path, mode: u32) -> io::Result<()> {
    if dir.is_dir(path) {
        return Ok(());
    }
    dir.create_dir_with(path, DirBuilder::new().mode(mode & PERMISSIONS | OWNER))
}

/// A file that is a link to itself stays.
fn make_link(target: &Location<'_>, dir: &Dir, path: &Path) -> io::Result<()> {
    let linked = target.dir.symlink_metadata(&target.path)?;
    let is_itself = |there: Metadata| (there.dev(), there.ino()) == (linked.dev(), linked.ino());
    if dir.symlink_metadata(path).is_ok_and(is_itself) {
        return Ok(());
    }
    replacing(dir, path, || target.dir.hard_link(&target.path, dir, path))
}

/// A program that has the file open which was there before keeps what it reads.
fn make_file<R: Read>(dir: &Dir, path: &Path, entry: &mut Entry<R>, keeps_time: bool) -> io::Result<()> {
    let header = entry.header();
    let (mode, modified) = (header.mode()? & PERMISSIONS, header.mtime()?);
    let mut file = replacing(dir, path, || dir.open_with(path, OpenOptions::new().write(true).create_new(true).mode(mode)))?;
    io::copy(entry, &mut file)?;
    if keeps_time {
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified));
        file.into_std().set_modified(modified.ok_or(io::ErrorKind::InvalidData)?)?;
    }
    Ok(())
}

/// Makes a file, in place of one of the same name if there is one.
fn replacing<T>(dir: &Dir, path: &Path, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            dir.remove_file(path)?;
            make()
        }
        made => made,
    }
}
