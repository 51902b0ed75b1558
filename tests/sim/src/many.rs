//! Runs many seeds, each in a process of its own, as many at a time as the machine has cores.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Runs `count` seeds from `first`. Prints the whole output of those that break a promise, and how to run them again. Returns
/// whether there are none.
pub fn run(first: u64, count: u64) -> bool {
    let next = AtomicU64::new(first);
    let failed = Mutex::new(Vec::new());
    let end = first.saturating_add(count);
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let output = process(seed);
                    if !output.status.success() {
                        let mut failed = failed.lock();
                        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                        failed.push(seed);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner();
    failed.sort_unstable();
    for seed in &failed {
        println!("seed {seed} failed; again, with every step: cargo xtask sim --seed {seed}");
    }
    println!("{count} seeds from {first}: {} failed", failed.len());
    failed.is_empty()
}

fn process(seed: u64) -> Output {
    let program = std::env::current_exe().expect("the path of this program");
    Command::new(program).args(["--seed", &seed.to_string()]).output().expect("a process")
}
