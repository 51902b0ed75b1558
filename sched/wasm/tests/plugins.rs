//! Plugins as the scheduler uses them: guests from WAT, good and hostile, behind the traits of the framework.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "tests")]

#[path = "plugins/guests.rs"]
mod guests;
#[path = "plugins/harness.rs"]
mod harness;
#[path = "plugins/hostile.rs"]
mod hostile;
#[path = "plugins/results.rs"]
mod results;
#[path = "plugins/versions.rs"]
mod versions;
