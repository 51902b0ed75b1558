//! Which limit was met first. Readers that lie below others leave it here, since what wraps their errors on the
//! way up keeps the words and not the type.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use runtimes_host::helper::Fault;

use crate::error::with_causes;

/// Characters of what is said of an archive: names in it are the archive's to choose.
const WORDS_LEN_MAX: usize = 1_024;

/// Shared by what reads one archive.
#[derive(Clone, Default)]
pub(crate) struct Verdict(Rc<RefCell<Option<Fault>>>);

impl Verdict {
    /// Leaves a fault, unless there is one; answers the error that ends the reading.
    pub(super) fn set(&self, fault: Fault) -> io::Error {
        let error = io::Error::other(fault.clone());
        self.0.borrow_mut().get_or_insert(fault);
        error
    }

    pub(super) fn take(&self) -> Option<Fault> {
        self.0.borrow_mut().take()
    }

    /// What an error means for the image: the fault that was left, or what the system says.
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
