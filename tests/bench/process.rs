//! Resource use of a process, from `/proc`.

use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// A process that uses less than `REST` of CPU time in `QUIET` is idle.
const QUIET: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_millis(1);
/// Maximum number of `QUIET` periods to wait for an idle process.
const WAITS_MAX: usize = 100;

/// CPU time of a process, its threads' user and system time together.
pub fn cpu(pid: u32) -> Duration {
    let pid = Pid::from_raw(pid.try_into().expect("a pid"));
    clock_getcpuclockid(pid).and_then(nix::time::ClockId::now).expect("the process runs").into()
}

/// Waits until a process is idle, so that its deferred work is done.
pub async fn quiet(pid: u32) {
    for _ in 0..WAITS_MAX {
        let before = cpu(pid);
        tokio::time::sleep(QUIET).await;
        if cpu(pid) - before < REST {
            break;
        }
    }
}

/// Proportional set size of a process in KiB.
pub fn pss_kib(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process runs");
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).expect("a Pss line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Measures the wall time and a process' CPU time of some work, with the work that the process defers: a checkpoint
/// belongs to the writes before it, not to the reads after it.
pub struct Meter {
    pid: u32,
    cpu: Duration,
    began: Instant,
}

/// The cost of some work.
pub struct Spent {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Duration,
}

impl Meter {
    /// Waits until the process is idle, then starts the measurement.
    pub async fn start(pid: u32) -> Self {
        quiet(pid).await;
        Self { pid, cpu: cpu(pid), began: Instant::now() }
    }

    /// The cost since the start. The wall time ends at the call; the CPU time includes deferred work.
    pub async fn spent(&self) -> Spent {
        let wall = self.began.elapsed();
        quiet(self.pid).await;
        Spent { wall, cpu: cpu(self.pid).saturating_sub(self.cpu) }
    }
}

/// A percentile of the samples, which it sorts.
pub fn percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    let at = ((samples.len() as f64 - 1.0) * share).round() as usize;
    samples[at]
}
