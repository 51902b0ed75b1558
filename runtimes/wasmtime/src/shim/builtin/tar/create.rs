//! Writes an archive.

use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::vec;

use cap_std::fs::{File, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use tar::{Builder, EntryType, Header};

use super::super::files::Location;
use super::super::{Files, Messages, Streams, printable};
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
    let output = BufWriter::with_capacity(BUFFER_LEN, &streams.stdout);
    let mut archive = Archive { files, builder: Builder::new(output), messages: &mut streams.messages, is_verbose: options.is_verbose };
    let written = options.paths.iter().try_for_each(|path| archive.append_all(&options.path(path), member(path)));
    let Archive { mut builder, messages, .. } = archive;
    if written.is_ok() && !messages.have_trouble {
        return builder.into_inner()?.flush();
    }
    let flushed = builder.get_mut().flush();
    // The blocks at the end of an archive, which it writes when it is dropped, are left out: kubectl would take them for its end, and not
    // wait for the exit code.
    std::mem::forget(builder);
    written.and(flushed)
}

/// The name in the archive: without a beginning that would lead out of the directory where somebody extracts it.
fn member(path: &Path) -> PathBuf {
    let names = path.components().filter(|component| matches!(component, Component::Normal(_)));
    let member: PathBuf = names.collect();
    if member.as_os_str().is_empty() { ".".into() } else { member }
}

struct Archive<'a, W: Write> {
    files: &'a Files,
    builder: Builder<W>,
    messages: &'a mut Messages,
    is_verbose: bool,
}

/// A directory whose files are being appended.
struct OpenDir {
    path: PathBuf,
    member: PathBuf,
    names: vec::IntoIter<PathBuf>,
}

impl<W: Write> Archive<'_, W> {
    /// Appends a file, or a directory with all that the guest sees in it: each directory before its files, and these in the order of their
    /// names.
    fn append_all(&mut self, path: &Path, member: PathBuf) -> io::Result<()> {
        let mut open_dirs = Vec::from_iter(self.append_path(path, member)?);
        while let Some(dir) = open_dirs.last_mut() {
            let Some(name) = dir.names.next() else {
                open_dirs.pop();
                continue;
            };
            let (path, member) = (dir.path.join(&name), dir.member.join(&name));
            open_dirs.extend(self.append_path(&path, member)?);
        }
        Ok(())
    }

    /// Returns the directory, if it is one.
    fn append_path(&mut self, path: &Path, member: PathBuf) -> io::Result<Option<OpenDir>> {
        let source = self.files.absolute(path).and_then(|path| Ok((Source::open(self.files, &path)?, path)));
        match source {
            Ok((source, path)) => {
                let names = self.append(&member, source)?;
                Ok(names.map(|names| OpenDir { path, member, names: names.into_iter() }))
            }
            Err(error) => {
                self.messages.complain(printable(path), &error);
                Ok(None)
            }
        }
    }

    /// Returns what is in it, if it is a directory.
    fn append(&mut self, member: &Path, Source { metadata, content }: Source) -> io::Result<Option<Vec<PathBuf>>> {
        if self.is_verbose {
            // The client may have left.
            let _written = writeln!(&*self.messages.stderr, "{}", printable(member));
        }
        let mut header = self.header_of(&metadata);
        match content {
            Content::File(file) => {
                header.set_size(metadata.len());
                let mut content = Exactly { file, left: metadata.len(), failure: None };
                self.builder.append_data(&mut header, member, &mut content)?;
                if let Some(failure) = content.failure {
                    self.messages.complain(printable(member), &failure);
                }
                Ok(None)
            }
            Content::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                self.builder.append_link(&mut header, member, target)?;
                Ok(None)
            }
            Content::Dir(names) => {
                header.set_entry_type(EntryType::Directory);
                // A name with a slash at its end is a directory for every reader.
                self.builder.append_data(&mut header, member.join(""), io::empty())?;
                Ok(Some(names))
            }
        }
    }

    /// Of a file with no content yet.
    fn header_of(&self, metadata: &Metadata) -> Header {
        let mut header = Header::new_gnu();
        header.set_mode(metadata.mode() & 0o7777);
        header.set_uid(self.files.id(metadata.uid()).into());
        header.set_gid(self.files.id(metadata.gid()).into());
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        header.set_size(0);
        header
    }
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
    /// The file of an absolute path.
    fn open(files: &Files, guest_path: &Path) -> io::Result<Self> {
        let Location { dir, path } = files.locate(guest_path)?;
        let metadata = dir.symlink_metadata(&path)?;
        if metadata.is_symlink() {
            let target = dir.read_link_contents(&path)?;
            return Ok(Self { metadata, content: Content::Link(target) });
        }
        if metadata.is_dir() {
            let entries = dir.read_dir(&path)?.map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())));
            let mut names = entries.collect::<io::Result<Vec<_>>>()?;
            names.extend(files.mounted_in(guest_path));
            names.sort_unstable();
            names.dedup();
            return Ok(Self { metadata, content: Content::Dir(names) });
        }
        let special = || io::Error::other("not a file, a directory or a link; ignored");
        if !metadata.is_file() {
            return Err(special());
        }
        // It may be another one by now, and opening a pipe would wait for its writer.
        let file = dir.open_with(&path, OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK))?;
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
