//! What a process has used, from `/proc`.

use std::time::{Duration, Instant};

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// A process that uses less than `REST` of CPU time in `QUIET` has done what there was to do.
const QUIET: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_millis(1);
/// For how many times `QUIET` a process that is never quiet is waited for.
const WAITS_MAX: usize = 100;

/// CPU time of a process, its threads' user and system time together.
pub fn cpu(pid: u32) -> Duration {
    let pid = Pid::from_raw(pid.try_into().expect("a pid"));
    clock_getcpuclockid(pid).and_then(nix::time::ClockId::now).expect("the process runs").into()
}

/// Waits until a process has done what it put off.
async fn quiet(pid: u32) {
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

/// Measures wall time and a process' CPU time of some work, what the process puts off included: a
/// checkpoint belongs to the writes before it, not to the reads behind it.
pub struct Meter {
    pid: u32,
    cpu: Duration,
    began: Instant,
}

/// What some work took.
pub struct Spent {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Duration,
}

impl Meter {
    /// Starts.
    pub async fn start(pid: u32) -> Self {
        quiet(pid).await;
        Self { pid, cpu: cpu(pid), began: Instant::now() }
    }

    /// What was spent since then.
    pub async fn spent(&self) -> Spent {
        let wall = self.began.elapsed();
        quiet(self.pid).await;
        Spent { wall, cpu: cpu(self.pid).saturating_sub(self.cpu) }
    }
}

/// The value below which that share of the sorted samples lies.
pub fn percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    let at = ((samples.len() as f64 - 1.0) * share).round() as usize;
    samples[at]
}
