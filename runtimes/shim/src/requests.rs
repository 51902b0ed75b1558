//! The counters of a container's HTTP requests, for a shim that serves them itself: three numbers in a file of the container's
//! directory. The shim maps the file while it still has its rights, so that counting takes no system call and no descriptor stays open.
//! The agent reads the file, also when the shim is busy or was started by an earlier agent.
//!
//! A guest that has taken over its shim can write any number, about its own container alone. Nothing else is taken from the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::mem::size_of;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use runtimes_contract::HttpRequests;

/// The file's name in the container's directory.
const FILE: &str = "requests";
/// The bytes of the file.
const LEN: usize = size_of::<Counters>();

/// The file's content, in the machine's byte order.
#[repr(C)]
#[derive(Debug, Default)]
struct Counters {
    received: AtomicU64,
    rejected: AtomicU64,
    in_flight: AtomicU64,
}

/// The shim's side. Copies count together.
#[derive(Clone, Copy, Debug)]
pub struct RequestCounters(&'static Counters);

/// A request that has arrived, until it is dropped.
#[derive(Debug)]
pub struct InFlight(RequestCounters);

impl RequestCounters {
    /// Creates the file with zeros, or sets an existing one to zeros, and maps it until the process ends.
    pub fn create(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(dir.join(FILE))?;
        // Written, not only made longer: the page must exist, because a write to the mapping cannot report a full file system.
        file.write_all(&[0; LEN])?;
        map(&file).map(Self)
    }

    /// Counts a request that arrives.
    pub fn begin(self) -> InFlight {
        self.0.received.fetch_add(1, Ordering::Relaxed);
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    /// Counts the rejection of a request that has arrived.
    pub fn reject(self) {
        self.0.rejected.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn map(file: &File) -> io::Result<&'static Counters> {
    // SAFETY: a new mapping of a file of this length; the kernel chooses the address.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has the type's length, begins at a page, is never unmapped, and any bytes are valid numbers. Nobody makes the
    // file shorter. All accesses are atomic; the agent only reads the file.
    Ok(unsafe { &*address.cast::<Counters>() })
}

/// The counters in a container's directory; `None` when its shim has not made any.
pub fn read(dir: &Path) -> io::Result<Option<HttpRequests>> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(dir.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::with_capacity(LEN);
    file.take(u64::try_from(LEN).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    // A shim that begins has not written all of it yet.
    let number = |index: usize| bytes.chunks_exact(8).nth(index).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Ok(Some(HttpRequests { received: number(0), rejected: number(1), in_flight: number(2) }))
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_the_shim_counts_is_what_the_agent_reads() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(read(dir.path()).expect("no file"), None);
        let counters = RequestCounters::create(dir.path()).expect("a file");
        assert_eq!(read(dir.path()).expect("a file"), Some(HttpRequests::default()));
        let (first, second) = (counters.begin(), counters.begin());
        counters.reject();
        drop(first);
        let read_now = || read(dir.path()).expect("a file").expect("counters");
        assert_eq!(read_now(), HttpRequests { received: 2, rejected: 1, in_flight: 1 });
        drop(second);
        assert_eq!(read_now(), HttpRequests { received: 2, rejected: 1, in_flight: 0 });
        RequestCounters::create(dir.path()).expect("the file again");
        assert_eq!(read_now(), HttpRequests::default(), "a shim that starts again counts from zero");
    }

    #[test]
    fn a_file_of_another_length_is_read_as_far_as_it_is_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |bytes: &[u8]| std::fs::write(dir.path().join(FILE), bytes).expect("written");
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        for (bytes, wanted) in [
            (Vec::new(), HttpRequests::default()),
            (words(&[7])[..5].to_vec(), HttpRequests::default()),
            (words(&[7]), HttpRequests { received: 7, ..HttpRequests::default() }),
            (words(&[7, 1, 2, 9, 9]), HttpRequests { received: 7, rejected: 1, in_flight: 2 }),
        ] {
            write(&bytes);
            assert_eq!(read(dir.path()).expect("a file"), Some(wanted), "{} bytes", bytes.len());
        }
        std::fs::remove_file(dir.path().join(FILE)).expect("removed");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(FILE)).expect("a link");
        assert!(read(dir.path()).is_err(), "no link is followed");
    }
}
