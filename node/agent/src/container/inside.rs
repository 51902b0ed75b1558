//! Reads a file of a directory whose content is a container's: no link leads out of the directory, and only a regular file is
//! read, because reading a named pipe would wait for a writer.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// The first bytes of a file, at most `len_max`. A link with an absolute path starts at the directory.
pub(crate) fn read(dir: &Path, file: &str, len_max: u64) -> io::Result<Vec<u8>> {
    let root = File::open(dir)?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let found = File::from(openat2(&root, file, how)?);
    if !found.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    found.take(len_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
