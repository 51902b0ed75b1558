//! Writes an archive.

use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

use cap_std::fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use tar::{Builder, EntryType, Header};

use super::super::{Files, Messages, Streams};
use super::Options;

/// The bytes of an archive that are sent at once.
const BUFFER_LEN: usize = 64 << 10;

/// Archives the paths of the options. A file that cannot be read is a message, and the others follow.
///
/// # Errors
/// When the archive cannot be written.
pub fn create(options: &Options, files: &Files, streams: &mut Streams) -> io::Result<()> {
    if options.paths.is_empty() {
        return Err(io::Error::other("no file is named, so it would be empty"));
    }
    let mut output = BufWriter::with_capacity(BUFFER_LEN, &streams.stdout);
    write(options, files, Archive { builder: Builder::new(&mut output), messages: &mut streams.messages, is_verbose: options.is_verbose })?;
    output.flush()
}

fn write<W: Write>(options: &Options, files: &Files, mut archive: Archive<'_, W>) -> io::Result<()> {
    for path in &options.paths {
        match files.locate(&options.path(path)) {
            Ok((dir, below)) => archive.append_all(dir, below, member(path))?,
            Err(error) => archive.messages.complain(path.display(), &error),
        }
    }
    if archive.messages.have_trouble {
        // The blocks at the end of an archive are left out: kubectl would take them for its end, and not wait for the exit code.
        std::mem::forget(archive.builder);
        Ok(())
    } else {
        archive.builder.finish()
    }
}

/// The name in the archive: without a beginning that would lead out of the directory where somebody extracts it.
fn member(path: &Path) -> PathBuf {
    let names = path.components().filter(|component| matches!(component, Component::Normal(_)));
    let member: PathBuf = names.collect();
    if member.as_os_str().is_empty() { ".".into() } else { member }
}

struct Archive<'a, W: Write> {
    builder: Builder<W>,
    messages: &'a mut Messages,
    is_verbose: bool,
}

impl<W: Write> Archive<'_, W> {
    /// Appends a file, or a directory with all that is in it: each directory before its files, and these in the order of their names.
    fn append_all(&mut self, dir: &Dir, path: PathBuf, member: PathBuf) -> io::Result<()> {
        let mut pending = vec![(path, member)];
        while let Some((path, member)) = pending.pop() {
            match Source::open(dir, &path) {
                Ok(Source { metadata, content }) => {
                    let names = self.append(&member, &metadata, content)?;
                    pending.extend(names.into_iter().rev().map(|name| (path.join(&name), member.join(&name))));
                }
                Err(error) => self.messages.complain(member.display(), &error),
            }
        }
        Ok(())
    }

    /// Returns what is in it, if it is a directory.
    fn append(&mut self, member: &Path, metadata: &Metadata, content: Content) -> io::Result<Vec<PathBuf>> {
        if self.is_verbose {
            // The client may have left.
            let _written = writeln!(&*self.messages.stderr, "{}", member.display());
        }
        let mut header = header_of(metadata);
        match content {
            Content::File(file) => {
                header.set_size(metadata.len());
                let mut content = Exactly { file, left: metadata.len(), failure: None };
                self.builder.append_data(&mut header, member, &mut content)?;
                if let Some(failure) = content.failure {
                    self.messages.complain(member.display(), &failure);
                }
                Ok(Vec::new())
            }
            Content::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                self.builder.append_link(&mut header, member, target)?;
                Ok(Vec::new())
            }
            Content::Dir(names) => {
                header.set_entry_type(EntryType::Directory);
                // A name with a slash at its end is a directory for every reader.
                self.builder.append_data(&mut header, member.join(""), io::empty())?;
                Ok(names)
            }
        }
    }
}

/// Of a file with no content yet.
fn header_of(metadata: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

/// What is archived under one name.
struct Source {
    metadata: Metadata,
    content: Content,
}

enum Content {
    File(File),
    Link(PathBuf),
    /// The names in it.
    Dir(Vec<PathBuf>),
}

impl Source {
    fn open(dir: &Dir, path: &Path) -> io::Result<Self> {
        let metadata = dir.symlink_metadata(path)?;
        if metadata.is_symlink() {
            let target = dir.read_link_contents(path)?;
            return Ok(Self { metadata, content: Content::Link(target) });
        }
        if metadata.is_dir() {
            let entries = dir.read_dir(path)?.map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())));
            let mut names = entries.collect::<io::Result<Vec<_>>>()?;
            names.sort_unstable();
            return Ok(Self { metadata, content: Content::Dir(names) });
        }
        let special = || io::Error::other("not a file, a directory or a link; ignored");
        if !metadata.is_file() {
            return Err(special());
        }
        // It may be another one by now, and opening a pipe would wait for its writer.
        let file = dir.open_with(path, OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(special());
        }
        Ok(Self { metadata, content: Content::File(file) })
    }
}

/// As many bytes as the header says, whatever happens to the file meanwhile: zeros in place of those that cannot be read.
struct Exactly {
    file: File,
    left: u64,
    /// Why there are zeros.
    failure: Option<io::Error>,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let len = match &self.failure {
            Some(_) => 0,
            None => match self.file.read(buffer) {
                Ok(0) => {
                    self.failure = Some(io::Error::other(format!("File shrank by {} bytes; padding with zeros", self.left)));
                    0
                }
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    self.failure = Some(error);
                    0
                }
            },
        };
        let len = if len == 0 {
            buffer.fill(0);
            buffer.len()
        } else {
            len
        };
        self.left -= len as u64;
        Ok(len)
    }
}
