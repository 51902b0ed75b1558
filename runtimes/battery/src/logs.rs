//! The content of logs.

use crate::*;

/// Time, stream, tag, text.
pub async fn log_lines_are_cri_lines(harness: &dyn Harness) {
    if !harness.abilities().real {
        return;
    }
    let hello = start(harness, "cri", Program::Hello).await;
    hello.end().await;
    for line in hello.log() {
        let (time, _) = line.split_once(' ').expect("a time first");
        // 2016-10-06T00:17:09.669794202Z
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000000Z", "{line}");
    }
    hello.remove().await;
}

/// The old file gets no more lines, the new one gets all further lines.
pub async fn a_rotated_log_is_reopened(harness: &dyn Harness) {
    if !harness.abilities().real {
        return;
    }
    let ticks = start(harness, "rotated", Program::Ticks).await;
    until("it ticks", || !ticks.log().is_empty()).await;
    let rotated = ticks.spec.log_path.with_extension("log.1");
    std::fs::rename(&ticks.spec.log_path, &rotated).expect("rename");
    within(ticks.runtime.reopen_log(ticks.id())).await.expect("reopen");
    until("the new file has lines", || !ticks.log().is_empty()).await;
    let len = std::fs::metadata(&rotated).expect("the old file").len();
    let lines = ticks.log().len();
    until("more lines", || ticks.log().len() > lines + 2).await;
    assert_eq!(std::fs::metadata(&rotated).expect("the old file").len(), len);
    assert!(ticks.said().iter().all(|line| line == "stdout F tick"));
    ticks.remove().await;
}

/// 40,000 bytes are two pieces and a rest; text without a newline is a piece too.
pub async fn long_lines_are_cut_and_the_rest_is_partial(harness: &dyn Harness) {
    if !harness.abilities().real {
        return;
    }
    let long = start(harness, "long", Program::LongLine).await;
    assert_eq!(long.end().await.code, 0);
    let shape: Vec<_> = long.said().iter().map(|line| (line[..8].to_owned(), line.len() - 9)).collect();
    let wanted = [("stdout P", 16_384), ("stdout P", 16_384), ("stdout F", 7_232), ("stdout P", 3)];
    assert_eq!(shape, wanted.map(|(head, len)| (head.to_owned(), len)));
    long.remove().await;
}
