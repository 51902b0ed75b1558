//! The size of the history, and the decision when to compact.
//!
//! The history has two limits: a number of revisions, and half the bytes of the current entries (but at least a few
//! MiB). So the file stays within a small multiple of the live data, both in a cluster that renews many small Leases
//! and in a cluster that changes a few large objects.

use std::collections::VecDeque;

use crate::Revision;

/// Bytes that SQLite needs for a row, without key and value.
const ROW_BYTES: u64 = 32;
/// Revisions that one slice compacts between two batches. This takes well under a millisecond.
const SLICE_LEN: usize = 1_000;

/// The sizes of the current entries and of the history.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Revisions since the last compaction, with the bytes that a compaction up to each frees.
    superseded: VecDeque<(Revision, u64)>,
    bytes: u64,
    live_bytes: u64,
}

/// The size of a row.
pub(super) fn row_bytes(key: &str, value: Option<&[u8]>) -> u64 {
    ROW_BYTES + key.len() as u64 + value.map_or(0, |value| value.len() as u64)
}

impl History {
    /// Reads the state of the database at the start: the bytes of the current rows, and the rows superseded since the
    /// last compaction.
    pub(super) fn new(live_bytes: u64, superseded: VecDeque<(Revision, u64)>) -> Self {
        let bytes = superseded.iter().map(|(_, bytes)| bytes).sum();
        Self { superseded, bytes, live_bytes }
    }

    /// Records a row of `row` bytes, which replaces a row of `replaced` bytes.
    pub(super) fn stored(&mut self, revision: Revision, row: u64, is_deletion: bool, replaced: Option<u64>) {
        let replaced = replaced.unwrap_or_default();
        self.live_bytes = self.live_bytes.saturating_sub(replaced);
        let freed = if is_deletion { replaced + row } else { replaced };
        if !is_deletion {
            self.live_bytes += row;
        }
        if freed > 0 {
            self.superseded.push_back((revision, freed));
            self.bytes += freed;
        }
    }

    /// Records a compaction up to the given revision.
    pub(super) fn compacted(&mut self, upto: Revision) {
        while let Some((_, bytes)) = self.superseded.pop_front_if(|(revision, _)| *revision <= upto) {
            self.bytes -= bytes;
        }
    }

    /// The revision to which the writer compacts now. It is at most one slice ahead, even if more is due. `None` if no
    /// compaction is due.
    pub(super) fn due(&self, head: Revision, compacted: Revision, history_len: u64, bytes_min: u64) -> Option<Revision> {
        let slice = compacted + SLICE_LEN as u64;
        let too_long =
            (head.saturating_sub(compacted) >= history_len.saturating_mul(2)).then(|| slice.min(head.saturating_sub(history_len)));
        let bound = (self.live_bytes / 2).max(bytes_min);
        let too_big = (self.bytes > bound).then(|| self.leaving(bound / 2)).flatten();
        too_long.max(too_big).filter(|upto| *upto > compacted)
    }

    /// The revision to compact to, so that at most `bytes` bytes of history are left. It is within one slice.
    fn leaving(&self, bytes: u64) -> Option<Revision> {
        let mut left = self.bytes;
        let mut upto = None;
        for (revision, freed) in self.superseded.iter().take(SLICE_LEN) {
            left = left.saturating_sub(*freed);
            upto = Some(*revision);
            if left <= bytes {
                break;
            }
        }
        upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MIN: u64 = 4 << 20;

    /// Updates of one key with rows of one size, after other keys with `live` bytes.
    fn updates(live: u64, count: u64, row: u64) -> History {
        let mut history = History::new(live, VecDeque::new());
        history.stored(1, row, false, None);
        (2..=count).for_each(|revision| history.stored(revision, row, false, Some(row)));
        history
    }

    #[test]
    fn history_is_due_by_its_length() {
        let history = updates(0, 30, 10);
        assert_eq!(history.due(30, 0, 100, BYTES_MIN), None);
        assert_eq!(history.due(30, 0, 15, BYTES_MIN), Some(15));
        assert_eq!(history.due(30, 15, 15, BYTES_MIN), None);
        // One slice at a time.
        assert_eq!(updates(0, 9_000, 10).due(9_000, 0, 100, BYTES_MIN), Some(1_000));
    }

    #[test]
    fn history_is_due_by_its_size() {
        const MIB: u64 = 1 << 20;
        assert_eq!(updates(0, 5, MIB).due(5, 0, 1_000, BYTES_MIN), None);
        assert_eq!(updates(0, 6, MIB).due(6, 0, 1_000, BYTES_MIN), Some(4), "more than the least: the half of that is left");
        assert_eq!(updates(20 * MIB, 6, MIB).due(6, 0, 1_000, BYTES_MIN), None, "less than half of the live data");
        // One row alone may exceed the limit.
        assert_eq!(updates(0, 2, 100 * MIB).due(2, 0, 1_000, BYTES_MIN), Some(2));
        let mut history = updates(0, 2, 9 * MIB);
        history.stored(3, 32, true, Some(9 * MIB));
        assert_eq!(history.due(3, 0, 1_000, BYTES_MIN), Some(3));
        history.compacted(3);
        assert_eq!((history.bytes, history.live_bytes, history.due(3, 3, 1_000, BYTES_MIN)), (0, 0, None));
    }
}
