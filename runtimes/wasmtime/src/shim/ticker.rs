//! Shares one thread fairly among requests: while any guest runs, the epoch advances every [`TICK`], and at each advance a
//! guest that computes yields. A server without requests has no ticks, and before its first request not even the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use wasmtime::Engine;

/// How long a guest computes before others have their turn.
const TICK: Duration = Duration::from_millis(10);
/// The ticks without any guest before the thread sleeps: under load no request has to wake it.
const IDLE_TICKS_MAX: u32 = 20;

/// The clock of one engine.
pub struct Ticker(Arc<Shared>);

struct Shared {
    engine: Engine,
    running: AtomicUsize,
    ticking: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

/// While it lives, the clock ticks.
pub struct Running(Arc<Shared>);

impl Ticker {
    /// A clock that stands still.
    pub fn new(engine: &Engine) -> Self {
        Self(Arc::new(Shared {
            engine: engine.clone(),
            running: AtomicUsize::new(0),
            ticking: AtomicBool::new(false),
            thread: Mutex::new(None),
        }))
    }

    /// A guest is about to run.
    pub fn run(&self) -> Running {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        if !self.0.ticking.swap(true, Ordering::SeqCst) {
            wake(&self.0);
        }
        Running(self.0.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wake(shared: &Arc<Shared>) {
    let mut thread = shared.thread.lock();
    if let Some(thread) = &*thread {
        thread.unpark();
        return;
    }
    let ours = shared.clone();
    match thread::Builder::new().name("ticker".into()).stack_size(64 << 10).spawn(move || tick(&ours)) {
        Ok(handle) => *thread = Some(handle.thread().clone()),
        // Guests then run one after the other; the next request tries again.
        Err(_) => shared.ticking.store(false, Ordering::SeqCst),
    }
}

fn tick(shared: &Shared) {
    let mut idle_ticks = 0;
    loop {
        thread::park_timeout(TICK);
        shared.engine.increment_epoch();
        idle_ticks = if shared.running.load(Ordering::SeqCst) == 0 { idle_ticks + 1 } else { 0 };
        if idle_ticks < IDLE_TICKS_MAX {
            continue;
        }
        shared.ticking.store(false, Ordering::SeqCst);
        // A guest that started just now may have seen the thread running and may not have woken it.
        while shared.running.load(Ordering::SeqCst) == 0 && !shared.ticking.load(Ordering::SeqCst) {
            thread::park();
        }
        shared.ticking.store(true, Ordering::SeqCst);
        idle_ticks = 0;
    }
}
