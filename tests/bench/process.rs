//! What a process has used, from `/proc`.

use std::time::{Duration, Instant};

/// CPU time of a process, its threads' user and system time together.
pub fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The command's name may hold spaces; fields are counted after its bracket. proc(5): utime is
    // field 14, stime 15, in ticks of a hundredth second.
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
    Duration::from_millis(ticks * 10)
}

/// Proportional set size of a process in KiB.
pub fn pss_kib(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process runs");
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).expect("a Pss line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Measures wall time and a process' CPU time of some work.
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
    pub fn start(pid: u32) -> Self {
        Self { pid, cpu: cpu(pid), began: Instant::now() }
    }

    /// What was spent since then.
    pub fn spent(&self) -> Spent {
        Spent { wall: self.began.elapsed(), cpu: cpu(self.pid).saturating_sub(self.cpu) }
    }
}

/// The value below which that share of the sorted samples lies.
pub fn percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    let at = ((samples.len() as f64 - 1.0) * share).round() as usize;
    samples[at]
}
