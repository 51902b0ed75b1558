//! One side of a terminal as a stream.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A terminal, or another descriptor that does not block.
pub struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// The descriptor must not block.
    ///
    /// # Errors
    /// When the kernel cannot wait for it.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is owned by the registration, stays open with it, and is never replaced.
        let registered = unsafe { AsyncFd::register(fd) };
        registered.map(Self).map_err(|error| error.into_parts().1)
    }
}

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let read = guard.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), buffer.initialize_unfilled())?));
            match read {
                Ok(Ok(len)) => {
                    buffer.advance(len);
                    return Poll::Ready(Ok(()));
                }
                // The last process on the other side has closed it.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            match guard.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), bytes)?)) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
