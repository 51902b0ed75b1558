//! Runs of the simulation: many seeds, and one seed twice.
//!
//! `SKIFF_SIM_SEEDS` is the number of seeds, `SKIFF_SIM_FIRST` the first of them; `SKIFF_SIM_SEED` runs that one alone.

#![allow(clippy::expect_used, reason = "tests")]

use std::process::Command;

const SEEDS: &str = "50";

fn simulation(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_skiff-sim")).args(args).output().expect("the simulation runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[test]
fn the_control_plane_keeps_its_promises_whatever_fails() {
    let (seeds, first) = (variable("SKIFF_SIM_SEEDS", SEEDS), variable("SKIFF_SIM_FIRST", "1"));
    let (is_good, output) = match std::env::var("SKIFF_SIM_SEED") {
        Ok(seed) => simulation(&["--seed", &seed]),
        Err(_) => simulation(&["--seeds", &seeds, "--first", &first]),
    };
    assert!(is_good, "{output}");
}

#[test]
fn a_seed_is_a_whole_run() {
    for seed in ["3", "4", "10"] {
        let (once, again) = (simulation(&["--seed", seed, "--trace"]), simulation(&["--seed", seed, "--trace"]));
        let differs = once.1.lines().zip(again.1.lines()).find(|(once, again)| once != again);
        assert!(once == again, "seed {seed} ran in two ways: {differs:?}");
    }
    assert_ne!(simulation(&["--seed", "1"]).1, simulation(&["--seed", "2"]).1.replace("seed 2", "seed 1"));
}
