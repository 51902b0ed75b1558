//! A limited number of inputs for every target, the same inputs in every run.

use super::*;

/// Number of inputs for each target.
const INPUTS: u64 = 3_000;
/// Time limit of a slow run. Such a run succeeds with the inputs that it has tried.
const TIME_MAX: Duration = Duration::from_secs(20);

fn holds(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name}"));
    let seeds = corpus(target).expect("a corpus");
    assert!(!seeds.is_empty(), "{name} has nothing to begin with");
    let deadline = Instant::now() + TIME_MAX;
    let outcome = drive(target, &seeds, 1, |tried| tried < INPUTS && Instant::now() < deadline);
    if let Err(Failure { input, why }) = outcome {
        panic!("{name}: {why}\ninput: {:?}\n{input:?}", String::from_utf8_lossy(&input));
    }
}

macro_rules! targets_hold {
    ($($name:ident)*) => {
        $(#[test] fn $name() { holds(stringify!($name)); })*

        #[test]
        fn every_target_is_tried() {
            let tried = [$(stringify!($name)),*];
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), tried);
        }
    };
}

targets_hold! {
    apply archive decode_json decode_yaml field_selector image_manifest json_patch label_selector merge_patch node_metrics protobuf spdy spdy_headers strategic_patch websocket
}

/// The target is known to break its promise. The test checks that the input which shows this is found.
#[test]
fn a_broken_promise_is_found() {
    let target = Target { name: "broken", words: &["boom"], run: |input| assert!(!input.windows(4).any(|four| four == b"boom"), "boom") };
    let seeds = [b"{\"a\": \"harmless\"}".to_vec()];
    let failure = drive(&target, &seeds, 1, |tried| tried < 10_000).expect_err("found");
    assert!(failure.why.contains("boom") && failure.input.len() <= INPUT_LEN_MAX, "{failure:?}");
    let same = drive(&target, &seeds, 1, |tried| tried < 10_000).expect_err("found again");
    assert_eq!(same.input, failure.input);
}

#[test]
fn an_input_takes_its_time_at_most() {
    let slow = Target { name: "slow", words: &[], run: |_| while_busy(COST_MAX + Duration::from_millis(10)) };
    assert!(attempt(&slow, b"").expect_err("too slow").why.starts_with("took "));
}

fn while_busy(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
