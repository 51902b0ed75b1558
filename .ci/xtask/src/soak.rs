//! Long runs of the stories of whole machines.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::build::{self, Mode};
use crate::{needs, samples, sh};

/// Runs them; without a seed, the seed is the time.
pub fn run(rounds: u32, seed: Option<u64>) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES, needs::NETWORKS])?;
    needs::nextest()?;
    let (machine, tools) = (needs::machine()?, needs::clients()?);
    let (programs, guests) = (build::for_tests(Mode::Plain)?, samples::build()?);
    let seed = seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()));
    sh::say(&format!("cutting the power {rounds} times; to repeat this run: cargo xtask soak --rounds {rounds} --seed {seed}"));
    let stories = "binary(it) & test(/^power::/)";
    // One story at a time, because each needs all cores of the machine.
    let mut nextest = Mode::Plain.nextest(stories);
    nextest
        .args(["--no-capture", "--no-fail-fast", "--run-ignored", "all", "--profile", "soak"])
        .env("SKIFF_PROGRAMS", &programs)
        .env("SKIFF_SAMPLES", &guests)
        .env("SKIFF_MACHINE", &machine)
        .env("SKIFF_TOOLS", &tools);
    sh::run(nextest.env("SKIFF_POWER_ROUNDS", rounds.to_string()).env("SKIFF_POWER_SEED", seed.to_string()))
}
