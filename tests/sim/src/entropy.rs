//! Every random choice of a run, from its seed; and the time, from the paused clock of the runtime.
//!
//! The parts under test draw from `api_clock`, kube's back-off from `fastrand`, and the hash maps of the standard library and tokio's
//! `select!` from the system call `getrandom`. All three are replaced here. So the order of a hash map's entries follows from
//! the seed too, and another seed is another order.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use api_clock::rand::rngs::StdRng;
use api_clock::rand::{RngCore as _, SeedableRng as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// When every run begins.
const BEGIN: i64 = 1_767_225_600;

/// The seed of the process; zero before the run begins.
static SEED: AtomicU64 = AtomicU64::new(0);
static ORIGIN: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// A stream of random numbers for one purpose: draws of one purpose do not shift those of another.
pub fn stream(purpose: &str) -> StdRng {
    let seed = purpose.bytes().fold(SEED.load(Ordering::Relaxed), |sum, byte| mix(sum ^ u64::from(byte)));
    StdRng::seed_from_u64(seed)
}

/// Makes the process a run of that seed. The thread of the run starts after this.
pub fn begin(seed: u64) {
    SEED.store(mix(seed), Ordering::Relaxed);
}

/// Replaces time and chance of the parts under test. The runtime of the run calls this first.
pub fn install() {
    ORIGIN.get_or_init(Instant::now);
    fastrand::seed(stream("fastrand").next_u64());
    assert!(api_clock::install(Simulated(Mutex::new(stream("clock")))), "one run a process");
}

/// The time since the run began.
pub fn elapsed() -> std::time::Duration {
    ORIGIN.get().map(Instant::elapsed).unwrap_or_default()
}

struct Simulated(Mutex<StdRng>);

impl api_clock::Source for Simulated {
    fn now(&self) -> Timestamp {
        let begin = Timestamp::from_second(BEGIN).expect("in range");
        begin.checked_add(elapsed()).expect("a run is short")
    }

    fn boottime(&self) -> std::time::Duration {
        elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().fill_bytes(bytes);
    }
}

/// SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The C library's `getrandom`, as the linker finds it for the whole program. Each thread has a stream of its own.
///
/// # Safety
/// `buffer` points to `len` writable bytes, as the caller of the C function promises.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, len: libc::size_t, _flags: libc::c_uint) -> libc::ssize_t {
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    let seed = SEED.load(Ordering::Relaxed);
    for chunk in bytes.chunks_mut(8) {
        let call = CALLS.get() + 1;
        CALLS.set(call);
        let random = mix(seed ^ mix(call)).to_le_bytes();
        chunk.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
    }
    libc::ssize_t::try_from(len).unwrap_or(libc::ssize_t::MAX)
}
