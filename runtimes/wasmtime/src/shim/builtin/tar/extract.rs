//! Makes the files of an archive.

use std::io::{self, BufReader, Read, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _};
use tar::{Archive, Entry, EntryType};

use super::super::{Files, Streams};
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
    let mut archive = Archive::new(&mut input);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let member = entry.path()?.into_owned();
        if let Err(error) = extract_one(&mut entry, &member, options, files) {
            streams.messages.complain(member.display(), &error);
        }
        if options.is_verbose {
            writeln!(&streams.stdout, "{}", member.display())?;
        }
    }
    // What the client still writes has a reader.
    io::copy(&mut input, &mut io::sink()).map(drop)
}

fn extract_one<R: Read>(entry: &mut Entry<R>, member: &Path, options: &Options, files: &Files) -> io::Result<()> {
    let (dir, path) = files.locate(&options.path(&inside(member)?))?;
    let kind = entry.header().entry_type();
    if kind == EntryType::XGlobalHeader {
        return Ok(());
    }
    make_parents(dir, &path)?;
    match kind {
        EntryType::Directory => make_dir(dir, &path, entry.header().mode()?),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => make_file(dir, &path, entry, options.keeps_times),
        EntryType::Symlink => {
            let target = link_target(entry)?;
            remove_file(dir, &path)?;
            dir.symlink_contents(target, &path)
        }
        EntryType::Link => {
            let target = link_target(entry)?;
            let (target_dir, target) = files.locate(&options.path(&inside(&target)?))?;
            remove_file(dir, &path)?;
            target_dir.hard_link(target, dir, &path)
        }
        _ => Err(io::Error::other("not a file, a directory or a link; ignored")),
    }
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

/// In place of a file of the same name, so that a program that has it open keeps what it reads.
fn make_file<R: Read>(dir: &Dir, path: &Path, entry: &mut Entry<R>, keeps_time: bool) -> io::Result<()> {
    let header = entry.header();
    let (mode, modified) = (header.mode()? & PERMISSIONS, header.mtime()?);
    remove_file(dir, path)?;
    let mut file = dir.open_with(path, OpenOptions::new().write(true).create_new(true).mode(mode))?;
    io::copy(entry, &mut file)?;
    if keeps_time {
        let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(modified));
        file.into_std().set_modified(modified.ok_or(io::ErrorKind::InvalidData)?)?;
    }
    Ok(())
}

fn remove_file(dir: &Dir, path: &Path) -> io::Result<()> {
    match dir.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
