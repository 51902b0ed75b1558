//! The first limit that was reached. Readers below other readers record it here, because readers that wrap their errors keep
//! the text and lose the type.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use runtimes_host::helper::Fault;

use crate::error::with_causes;

/// The characters of a message about an archive: the archive chooses the names in it.
const WORDS_LEN_MAX: usize = 1_024;

/// Shared by the readers of one archive.
#[derive(Clone, Default)]
pub(crate) struct Verdict(Rc<RefCell<Option<Fault>>>);

impl Verdict {
    /// Records a fault, unless there is one; returns the error that ends the reading.
    pub(super) fn set(&self, fault: Fault) -> io::Error {
        let error = io::Error::other(fault.clone());
        self.0.borrow_mut().get_or_insert(fault);
        error
    }

    pub(super) fn take(&self) -> Option<Fault> {
        self.0.borrow_mut().take()
    }

    /// The meaning of an error for the image: the recorded fault, or the system's error.
    pub(super) fn fault(&self, error: &io::Error) -> Fault {
        if let Some(fault) = self.take() {
            return fault;
        }
        let text: String = with_causes(error).chars().filter(|one| !one.is_control()).take(WORDS_LEN_MAX).collect();
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _) => Fault::DiskFull(text),
            (io::ErrorKind::ReadOnlyFilesystem, _) | (_, Some(libc::EIO)) => Fault::System(text),
            _ => Fault::Content(text),
        }
    }
}
