//! Long runs of the stories of whole machines, and of the one that kills an agent at every step.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::build::{self, Mode};
use crate::test::EVERY_STEP;
use crate::{needs, samples, sh};

/// Runs all of them, also if one fails; without a seed, the seed is the time.
pub fn run(rounds: u32, seed: Option<u64>) -> Result<()> {
    needs::root()?;
    needs::ensure(&[needs::BUILD, needs::NODE, needs::CLIENT, needs::SAMPLES, needs::NETWORKS, needs::TEST])?;
    needs::nextest()?;
    let (machine, tools) = (needs::machine()?, needs::clients()?);
    let (programs, guests) = (build::for_tests(Mode::Plain)?, samples::build()?);
    let seed = seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()));
    sh::say(&format!("cutting the power {rounds} times; to repeat this run: cargo xtask soak --rounds {rounds} --seed {seed}"));
    // One story at a time, because each needs all cores of the machine.
    let run = |stories: &str, settings: &[(&str, String)]| {
        let mut nextest = Mode::Plain.nextest(stories);
        nextest
            .args(["--no-capture", "--no-fail-fast", "--run-ignored", "all", "--profile", "soak"])
            .env("SKIFF_PROGRAMS", &programs)
            .env("SKIFF_SAMPLES", &guests)
            .env("SKIFF_MACHINE", &machine)
            .env("SKIFF_TOOLS", &tools)
            .envs(settings.iter().map(|(variable, value)| (variable, value)));
        sh::run(&mut nextest)
    };
    let power = [("SKIFF_POWER_ROUNDS", rounds.to_string()), ("SKIFF_POWER_SEED", seed.to_string())];
    let power = run("binary(it) & test(/^power::/)", &power);
    sh::say("killing an agent at every step of the lives of Pods");
    let kills = run("binary(it) & test(/^kills::/)", &[(EVERY_STEP, "all".to_owned())]);
    power.and(kills)
}
