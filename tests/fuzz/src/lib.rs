//! Fuzz targets: parsers and decoders of untrusted bytes. Each target is a plain function that panics when a promise is
//! broken.
//!
//! A promise is more than "does not panic": a patch without changes changes nothing, printed text parses to the same
//! value, decoded data can be decoded again. [`drive`] runs a target with its corpus (`corpus/NAME/`, one file an
//! input) and with mutations of the corpus. The mutations follow from a seed, so a failure can be reproduced. The
//! crate's own tests do that for a short time, `cargo xtask fuzz NAME SECONDS` for any time. An input that broke a
//! promise stays in the corpus. Each target has libFuzzer's signature, so libFuzzer can run it too.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a broken promise is told by a panic")]

mod mutate;
pub mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use targets::{TARGETS, Target};

use mutate::Mutator;

/// Time limit for one input of at most [`INPUT_LEN_MAX`] bytes, in a debug build on a busy machine.
const COST_MAX: Duration = Duration::from_secs(10);
/// Longest mutated input, in bytes. A cost that grows faster than the input is visible at much shorter inputs.
pub const INPUT_LEN_MAX: usize = 16 * 1024;

/// An input that broke a promise.
#[derive(Debug)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// Which promise it broke.
    pub why: String,
}

/// The inputs of a target's corpus, ordered by name.
///
/// # Errors
/// When the corpus cannot be read.
pub fn corpus(target: &Target) -> std::io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<PathBuf>, _>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

/// Tries the corpus, then mutations of it while `go_on` returns true; returns the number of inputs.
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
