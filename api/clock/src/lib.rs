//! The clocks and the random numbers of a process.
//!
//! All come from one [`Source`]. A process normally uses the clocks of the machine and a cryptographically secure generator
//! that the kernel seeds. A simulation installs a source of its own before it starts any part. Keys and signatures are rcgen's,
//! which has a generator of its own. Monotonic time is tokio's (`tokio::time::Instant`), which tests and simulations pause. Only what
//! must notice that the whole machine was suspended reads [`boottime`].
//!
//! Decisions take the time as an argument; only loops, verbs and writers of timestamps call [`now`]. Deadlines that a process sets for
//! itself, such as the end of a back-off, are times of [`steady`]: an administrator or NTP may set the machine's clock meanwhile.

use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use rand::RngCore;

pub use rand;

/// Supplies time and random bytes.
pub trait Source: Send + Sync {
    /// The present time.
    fn now(&self) -> Timestamp;

    /// The time since the machine started. It goes on while the process is stopped and while the machine is suspended, and nobody
    /// sets it.
    fn boottime(&self) -> Duration;

    /// Fills a buffer with random bytes. Outside of a simulation they must be cryptographically secure: uids, nonces and serial
    /// numbers are made of them.
    fn fill(&self, bytes: &mut [u8]);
}

static SOURCE: OnceLock<Box<dyn Source>> = OnceLock::new();

/// Replaces the source for the rest of the process. Returns false, without an effect, after the first call.
pub fn install(source: impl Source + 'static) -> bool {
    SOURCE.set(Box::new(source)).is_ok()
}

/// The present time.
pub fn now() -> Timestamp {
    SOURCE.get().map_or_else(Timestamp::now, |source| source.now())
}

/// The time since the machine started, with the times for which it was suspended: `CLOCK_BOOTTIME`.
pub fn boottime() -> Duration {
    SOURCE.get().map_or_else(machine_boottime, |source| source.boottime())
}

/// The present time by a clock that nobody sets: the wall clock as it was when this was first called, and the time since then. Another
/// process has another such clock, so it belongs in nothing that outlives this one.
pub fn steady() -> Timestamp {
    static START: OnceLock<(Timestamp, Duration)> = OnceLock::new();
    let (wall, since) = *START.get_or_init(|| (now(), boottime()));
    wall.checked_add(boottime().saturating_sub(since)).unwrap_or(Timestamp::MAX)
}

/// A time of the wall clock as [`steady`] has it.
pub fn as_steady(wall: Timestamp) -> Timestamp {
    wall.checked_add(steady().duration_since(now())).unwrap_or(wall)
}

/// The time from one moment to a later one; zero if it is not later.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

#[expect(clippy::expect_used, reason = "the kernel has this clock since 2.6.39, and the call has no other error")]
fn machine_boottime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("the clock exists").into()
}

/// A generator of random numbers.
pub fn rng() -> Rng {
    Rng
}

/// The generator of [`rng`].
#[derive(Clone, Copy, Debug)]
pub struct Rng;

impl RngCore for Rng {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill_bytes(&mut bytes);
        u32::from_ne_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        match SOURCE.get() {
            Some(source) => source.fill(bytes),
            None => rand::rng().fill_bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng as _;

    use super::*;

    struct Fixed;

    impl Source for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn boottime(&self) -> Duration {
            Duration::from_secs(3)
        }

        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    #[test]
    fn an_installed_source_supplies_time_and_chance() {
        assert_ne!(now(), Timestamp::UNIX_EPOCH);
        let before = boottime();
        assert!(before > Duration::ZERO && boottime() >= before);
        let start = steady();
        assert!(now().duration_since(start).as_secs() == 0, "it begins with the wall clock: {start}");
        assert_ne!(rng().random::<u128>(), rng().random::<u128>());
        assert!(install(Fixed));
        assert!(!install(Fixed), "the first source stays");
        assert_eq!(now(), Timestamp::UNIX_EPOCH);
        assert_eq!(boottime(), Duration::from_secs(3));
        // The wall clock went back by decades.
        let jumped = steady();
        assert!(start.duration_since(jumped).as_secs() == 0, "{start} {jumped}");
        assert_eq!(as_steady(now()), jumped);
        assert_eq!(as_steady(Timestamp::from_second(5).expect("in range")).duration_since(jumped).as_secs(), 5);
        assert_eq!(rng().random::<[u8; 4]>(), [7; 4]);
        assert_eq!(rng().next_u32(), 0x0707_0707);
    }
}
