//! The confined process: it reads an archive from its one file and writes the content below `/`, which contains nothing else.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt as _;

use nix::sys::statvfs::statvfs;
use runtimes_host::helper::{Fault, Rights, serve, size};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::Archive;

use super::entry;
use super::records::Records;
use super::verdict::Verdict;

/// The largest window of a zstd frame, as a power of two: 128 MiB, which `zstd --long` uses.
const WINDOW_LOG_MAX: u32 = 27;
/// The disk space of an entry apart from its content.
const ENTRY_COST: u64 = 1_024;
/// Content is stored in blocks.
const BLOCK_COST: u64 = 4_096;
/// The bytes after which the free space is checked again.
const LOOK_AGAIN: u64 = 64 << 20;

/// The form of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// A layer of an image: owners, modes, extended attributes and whiteouts mean something.
    Layer,
    /// A package of files.
    Package,
    /// A WebAssembly module as text.
    Text,
}

/// The path of the module of a text.
pub(crate) const TEXT_MODULE: &str = "module.wasm";
/// Longest text of a module.
const TEXT_LEN_MAX: u64 = 64 << 20;

/// The limits of unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Budget {
    /// Bytes of the archive, and of the disk.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes of the disk that stay free.
    pub free_min: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Question {
    pub form: Form,
    pub budget: Budget,
}

/// The result.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Digest of the archive without its compression.
    pub digest: String,
    /// Bytes and entries that it took.
    pub bytes: u64,
    pub entries: u64,
    /// Directories whose lower content is hidden.
    pub opaque: Vec<OsString>,
}

/// Unpacks one archive and ends the process. See [`serve`].
pub fn serve_unpack() -> ! {
    serve(Rights::Files, |question: Question, files| {
        let verdict = Verdict::default();
        let done = match question.form {
            Form::Text => text(files, &verdict),
            Form::Layer | Form::Package => unpack(&question, files, &verdict),
        };
        done.map_err(|error| verdict.fault(&error))
    })
}

fn text(files: Vec<File>, verdict: &Verdict) -> io::Result<Answer> {
    let source = files.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut text = String::new();
    source.take(TEXT_LEN_MAX).read_to_string(&mut text)?;
    let malformed = |error: wat::Error| verdict.set(Fault::Content(format!("it is not WebAssembly text: {error}")));
    let module = wat::parse_str(&text).map_err(malformed)?;
    File::create(std::path::Path::new("/").join(TEXT_MODULE))?.write_all(&module)?;
    Ok(Answer { digest: String::new(), bytes: module.len() as u64, entries: 1, opaque: Vec::new() })
}

fn unpack(question: &Question, files: Vec<File>, verdict: &Verdict) -> io::Result<Answer> {
    let source = files.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
    let Question { form, budget } = question;
    let hashing =
        Hashing { inner: decompressed(source)?, hasher: Sha256::new(), left: budget.bytes, budget: *budget, verdict: verdict.clone() };
    let mut archive = Archive::new(Records::new(hashing, verdict.clone()));
    let faithful = *form == Form::Layer;
    archive.set_preserve_permissions(faithful);
    archive.set_preserve_ownerships(faithful);
    // Not all of them are an image's to set.
    archive.set_unpack_xattrs(false);
    archive.set_overwrite(true);
    let mut meter = Meter { budget: *budget, verdict: verdict.clone(), bytes: 0, entries: 0, looked_at: 0 };
    let mut opaque = entry::Opaque::default();
    for entry in archive.entries()? {
        let mut entry = entry?;
        meter.count(entry.size())?;
        entry::unpack(&mut entry, *form, verdict, &mut opaque)?;
    }
    let mut hashing = archive.into_inner().into_inner();
    // The digest is over the whole stream, also the padding that the archive's reader leaves.
    io::copy(&mut hashing, &mut io::sink())?;
    Ok(Answer {
        digest: format!("sha256:{:x}", hashing.hasher.finalize()),
        bytes: meter.bytes,
        entries: meter.entries,
        opaque: opaque.dirs,
    })
}

/// The tar stream; its first bytes tell how it is compressed.
fn decompressed(source: File) -> io::Result<Box<dyn Read>> {
    let mut start = [0; 4];
    let read = source.read_at(&mut start, 0)?;
    let file = BufReader::with_capacity(1 << 17, source);
    Ok(match start.get(..read).unwrap_or_default() {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let mut decoder = zstd::Decoder::with_buffer(file)?;
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        _ => Box::new(file),
    })
}

/// Counts the bytes that are written.
struct Meter {
    budget: Budget,
    verdict: Verdict,
    bytes: u64,
    entries: u64,
    looked_at: u64,
}

impl Meter {
    fn count(&mut self, len: u64) -> io::Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(len.checked_next_multiple_of(BLOCK_COST).unwrap_or(u64::MAX)).saturating_add(ENTRY_COST);
        if self.entries > self.budget.entries {
            return Err(self.verdict.set(Fault::Limit(format!("it has more than {} entries", self.budget.entries))));
        }
        if self.bytes > self.budget.bytes {
            return Err(self.verdict.set(too_large(self.budget)));
        }
        if self.bytes - self.looked_at >= LOOK_AGAIN {
            self.looked_at = self.bytes;
            let disk = statvfs("/")?;
            let free = disk.blocks_available().saturating_mul(disk.fragment_size());
            if free < self.budget.free_min.saturating_add(len) {
                let words = format!("less than {} of the disk would stay free", size(self.budget.free_min));
                return Err(self.verdict.set(Fault::DiskFull(words)));
            }
        }
        Ok(())
    }
}

fn too_large(budget: Budget) -> Fault {
    Fault::Limit(format!("it is larger than {} unpacked, which is all that it may have here", size(budget.bytes)))
}

/// Hashes the bytes that are read, and limits them.
struct Hashing {
    inner: Box<dyn Read>,
    hasher: Sha256,
    left: u64,
    budget: Budget,
    verdict: Verdict,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| self.verdict.set(too_large(self.budget)))?;
        Ok(read)
    }
}
