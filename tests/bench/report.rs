//! The output of a bench: Markdown tables, so that a run can be kept as a page.

use std::time::Duration;

use crate::process::{Spent, percentile};

/// A table. Each row is printed at once.
pub struct Table;

impl Table {
    /// Work in many units. The last column is what kube-apiserver and etcd took for the same work, where known.
    pub fn work() -> Self {
        println!("\n| work | units | wall | units a second | server's CPU a unit | kube-apiserver + etcd |");
        println!("|---|---:|---:|---:|---:|---:|");
        Self
    }

    /// Times of single units.
    pub fn latency() -> Self {
        println!("\n| from, to | samples | p50 | p99 |");
        println!("|---|---:|---:|---:|");
        Self
    }

    /// HTTP requests to a server of one process.
    pub fn requests() -> Self {
        println!(
            "\n| requests on 32 connections | number | wall | a second | server's CPU each | load's CPU each | server's memory (PSS) |"
        );
        println!("|---|---:|---:|---:|---:|---:|---:|");
        Self
    }

    /// Sizes and shares.
    pub fn sizes() -> Self {
        println!("\n| what | is |");
        println!("|---|---:|");
        Self
    }

    /// A row of [`Table::work`]: what `count` units took.
    pub fn spent(&self, spent: &Spent, work: &str, count: usize, upstream: Option<Duration>) {
        let units = count as f64;
        println!(
            "| {work} | {count} | {} | {:.0} | {} | {} |",
            human(spent.wall),
            units / spent.wall.as_secs_f64(),
            human(spent.cpu.div_f64(units)),
            upstream.map_or_else(String::new, human)
        );
    }

    /// A row of [`Table::requests`]: what the server took for `count` requests, the CPU time of the load, and the memory afterwards.
    pub fn answered(&self, spent: &Spent, load: Duration, what: &str, count: usize, memory: &str) {
        let units = count as f64;
        let (wall, each, a_second) = (human(spent.wall), human(spent.cpu.div_f64(units)), units / spent.wall.as_secs_f64());
        println!("| {what} | {count} | {wall} | {a_second:.0} | {each} | {} | {memory} |", human(load.div_f64(units)));
    }

    /// A row of [`Table::latency`].
    pub fn took(&self, what: &str, mut samples: Vec<Duration>) {
        let (p50, p99) = (percentile(&mut samples, 0.5), percentile(&mut samples, 0.99));
        println!("| {what} | {} | {} | {} |", samples.len(), human(p50), human(p99));
    }

    /// A row of [`Table::sizes`].
    pub fn is(&self, what: &str, value: &str) {
        println!("| {what} | {value} |");
    }
}

/// A duration with three digits.
pub fn human(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    let (value, unit) = if micros < 1e3 {
        (micros, "µs")
    } else if micros < 1e6 {
        (micros / 1e3, "ms")
    } else {
        (micros / 1e6, "s")
    };
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

/// A size in the unit that suits it.
pub fn mib(kib: u64) -> String {
    if kib < 1024 { format!("{kib} KiB") } else { format!("{:.1} MiB", kib as f64 / 1024.0) }
}

/// The head of the page with the results of all parts.
pub fn head() -> String {
    let first = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.rsplit_once(':').map_or("", |(_, value)| value).trim().to_owned()
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory: u64 = first("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or_default();
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`. Skiff {} on {} ({cores} cores, {:.0} GiB), Linux {}, SQLite on the local disk with every\n\
         write synced. Load comes from a process of its own over HTTPS/2 on the same machine; CPU is that of the skiff process.\n\
         The last column of the first table is what kube-apiserver with etcd took on a machine of this size.\n",
        env!("CARGO_PKG_VERSION"),
        first("/proc/cpuinfo", "model name"),
        memory as f64 / 1024.0 / 1024.0,
        kernel.trim(),
    )
}
