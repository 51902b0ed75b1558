//! Fuzz targets: what takes bytes from strangers, each as a plain function that panics where a promise is broken.
//!
//! A promise is more than "does not panic": a patch that says nothing changes nothing, what is shown parses to the
//! same, what was decoded can be decoded again. [`drive`] feeds a target with its corpus (`corpus/NAME/`, a file an
//! input) and with mutations of it that follow from a seed, so that a failure is found again. The crate's own
//! tests do that for a moment; `cargo xtask fuzz NAME SECONDS` for as long as one likes. Inputs that were found to
//! break something are kept in the corpus. Each target has libFuzzer's signature, for whoever drives it so.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a broken promise is told by a panic")]

mod mutate;
pub mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use targets::{TARGETS, Target};

use mutate::Mutator;

/// What one input of at most [`INPUT_LEN_MAX`] bytes may take in a debug build on a busy machine.
const COST_MAX: Duration = Duration::from_secs(10);
/// Longest input that is made. Costs that grow faster than inputs show well before.
pub const INPUT_LEN_MAX: usize = 16 * 1024;

/// An input that broke a promise.
#[derive(Debug)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// How.
    pub why: String,
}

/// The inputs that a target's corpus holds, in the order of their names.
///
/// # Errors
/// When it cannot be read.
pub fn corpus(target: &Target) -> std::io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

/// Tries the corpus, then mutations of it for as long as `go_on` says so; answers how many inputs were tried.
///
/// # Errors
/// The first input that breaks a promise.
pub fn drive(target: &Target, seeds: &[Vec<u8>], seed: u64, mut go_on: impl FnMut(u64) -> bool) -> Result<u64, Failure> {
    let mut tried = 0;
    for input in seeds {
        attempt(target, input)?;
        tried += 1;
    }
    let mut mutator = Mutator::new(seed, seeds, target.words);
    while go_on(tried) {
        attempt(target, &mutator.next())?;
        tried += 1;
    }
    Ok(tried)
}

/// Tries one input.
///
/// # Errors
/// When it breaks a promise.
pub fn attempt(target: &Target, input: &[u8]) -> Result<(), Failure> {
    let started = Instant::now();
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let why = match ended {
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned()),
        Ok(()) if started.elapsed() > COST_MAX => format!("took {:?}", started.elapsed()),
        Ok(()) => return Ok(()),
    };
    Err(Failure { input: input.to_vec(), why })
}

#[cfg(test)]
mod tests;
