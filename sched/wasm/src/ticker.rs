//! The clock by which the calls of a scheduling cycle are bounded: while any plugin runs, it advances every [`TICK`]. Without plugins at
//! work it stands still, and without plugins at all it has no thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use wasmtime::Engine;

/// The precision of the time limits.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// The ticks without any plugin at work before the thread sleeps: cycles that follow each other need not wake it.
const IDLE_TICKS_MAX: u32 = 50;

/// The clock of one engine. A clone is the same clock.
#[derive(Clone)]
pub(crate) struct Ticker(Arc<Shared>);

struct Shared {
    engine: Engine,
    ticks: AtomicU64,
    running: AtomicUsize,
    ticking: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

/// While it lives, the clock ticks.
pub(crate) struct Running<'a>(&'a Shared);

impl Ticker {
    /// A clock that stands still.
    pub fn new(engine: &Engine) -> Self {
        Self(Arc::new(Shared {
            engine: engine.clone(),
            ticks: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            ticking: AtomicBool::new(false),
            thread: Mutex::new(None),
        }))
    }

    /// The number of ticks so far: the engine's epoch.
    pub fn now(&self) -> u64 {
        self.0.ticks.load(Ordering::SeqCst)
    }

    /// A plugin is about to run. The error is that of the thread, without which nothing would bound the plugin's time.
    pub fn run(&self) -> std::io::Result<Running<'_>> {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(&self.0);
        if !self.0.ticking.swap(true, Ordering::SeqCst) {
            wake(&self.0)?;
        }
        Ok(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

fn wake(shared: &Arc<Shared>) -> std::io::Result<()> {
    let mut thread = shared.thread.lock();
    if let Some(thread) = &*thread {
        thread.unpark();
        return Ok(());
    }
    let ours = shared.clone();
    let started = thread::Builder::new().name("plugin-ticker".into()).stack_size(256 << 10).spawn(move || tick(&ours));
    match started {
        Ok(handle) => *thread = Some(handle.thread().clone()),
        Err(error) => {
            shared.ticking.store(false, Ordering::SeqCst);
            return Err(error);
        }
    }
    Ok(())
}

fn tick(shared: &Shared) {
    let mut idle_ticks = 0;
    loop {
        thread::park_timeout(TICK);
        shared.ticks.fetch_add(1, Ordering::SeqCst);
        shared.engine.increment_epoch();
        idle_ticks = if shared.running.load(Ordering::SeqCst) == 0 { idle_ticks + 1 } else { 0 };
        if idle_ticks < IDLE_TICKS_MAX {
            continue;
        }
        shared.ticking.store(false, Ordering::SeqCst);
        // A plugin that started just now may have read that the thread ticks, and not have woken it.
        while shared.running.load(Ordering::SeqCst) == 0 && !shared.ticking.load(Ordering::SeqCst) {
            thread::park();
        }
        shared.ticking.store(true, Ordering::SeqCst);
        idle_ticks = 0;
    }
}
