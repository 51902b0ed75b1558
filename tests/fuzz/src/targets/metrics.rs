//! What a node answers about its use and that of its Pods.

use std::sync::Arc;

use api_usage::{Answer, AnswerError, NodeReading, Readings};

/// The size of the pieces in which the text arrives.
const PIECE_LEN: usize = 7;
const RESOLUTION_MS: i64 = 15_000;

/// The pieces of an answer do not matter; the node speaks only of its own Pod; whatever it says has a use or none.
pub(super) fn node(input: &[u8]) {
    let whole = read(input.chunks(input.len().max(1)));
    // Which fault is found first depends on the pieces.
    assert_eq!(whole.as_ref().ok(), read(input.chunks(PIECE_LEN)).as_ref().ok(), "pieces change the answer");
    let Ok(reading) = whole else { return };
    assert!(reading.pods.iter().all(|pod| (&*pod.namespace, &*pod.name) == ("ns", "web")), "{:?}", reading.pods);
    let mut readings = Readings::default();
    for _ in 0..2 {
        readings = readings.followed_by(vec![reading.clone()], RESOLUTION_MS);
        if let Some(used) = readings.of_pod("ns", "web", "n1") {
            assert!(used.window_ms > 0 && !used.usage.is_empty(), "{used:?}");
        }
    }
    assert_eq!(readings.of_node("n1"), None, "a point that does not change has no use");
}

fn read<'i>(pieces: impl Iterator<Item = &'i [u8]>) -> Result<NodeReading, AnswerError> {
    let mut answer = Answer::new(Arc::from("n1"), [(Arc::from("ns"), Arc::from("web"))], 1_700_000_000_000);
    for piece in pieces {
        answer.read(piece)?;
    }
    answer.end()
}
