//! Signals. SIGTERM and similar ones stop the guest: the handler records the signal, wakes the event loop, and advances the
//! epoch so that a guest that never calls the host is interrupted too. SIGUSR1 makes the next log line go to a new file.
//! Handlers only touch atomics, one eventfd and the engine's epoch counter (which wasmtime documents as signal-safe).

use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use tokio::io::unix::AsyncFd;
use wasmtime::Engine;

use super::Failure;

/// The signal that stops the guest; 0 is none yet.
static STOP: AtomicI32 = AtomicI32::new(0);
static REOPEN: AtomicBool = AtomicBool::new(false);
static WAKE: AtomicI32 = AtomicI32::new(-1);
static ENGINE: OnceLock<Engine> = OnceLock::new();

/// Handles signals from now on. Without an engine there is no guest to interrupt.
pub fn install(engine: Option<&Engine>) -> Result<(), Failure> {
    let failed = "installing signal handlers";
    let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map_err(Failure::io(failed))?;
    WAKE.store(OwnedFd::from(wake).into_raw_fd(), Ordering::SeqCst);
    if let Some(engine) = engine {
        // Only set once: `prepare` runs once.
        let _first = ENGINE.set(engine.clone());
    }
    let on = |handler| SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART | SaFlags::SA_ONSTACK, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        // SAFETY: the handler does only what is safe in one; see the head of this file.
        unsafe { sigaction(signal, &on(on_stop)) }.map_err(Failure::io(failed))?;
    }
    // SAFETY: as above.
    unsafe { sigaction(Signal::SIGUSR1, &on(on_reopen)) }.map_err(Failure::io(failed))?;
    Ok(())
}

/// The signal that stops the guest, if there was one.
pub fn stopping() -> Option<i32> {
    match STOP.load(Ordering::SeqCst) {
        0 => None,
        signal => Some(signal),
    }
}

/// Whether the log must be opened again; true once for each signal.
pub fn take_reopen() -> bool {
    REOPEN.load(Ordering::Relaxed) && REOPEN.swap(false, Ordering::SeqCst)
}

/// Waits for a signal that stops us.
pub async fn stopped() -> io::Result<i32> {
    // SAFETY: `install` made this descriptor and nothing ever closes it.
    let wake = unsafe { std::os::fd::BorrowedFd::borrow_raw(WAKE.load(Ordering::SeqCst)) };
    debug_assert!(wake.as_raw_fd() >= 0);
    // SAFETY: borrowed for ever, as above.
    let wake = unsafe { AsyncFd::register_with_interest(wake, tokio::io::Interest::READABLE) }.map_err(|error| error.into_parts().1)?;
    loop {
        if let Some(signal) = stopping() {
            return Ok(signal);
        }
        wake.readable().await?.clear_ready();
    }
}

extern "C" fn on_stop(signal: libc::c_int) {
    let _first = STOP.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    if let Some(engine) = ENGINE.get() {
        engine.increment_epoch();
    }
    wake();
}

extern "C" fn on_reopen(_: libc::c_int) {
    REOPEN.store(true, Ordering::SeqCst);
}

/// Adds one to the eventfd, leaving `errno` as it was.
fn wake() {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: writes eight bytes from the stack to a descriptor; errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(WAKE.load(Ordering::SeqCst), one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}
