//! How much history there is beside what is current, and when some of it has to go.
//!
//! Two bounds: so many revisions, and half as many bytes as what is current has (or a few MiB, where
//! that is little). So the file stays within a small multiple of the live data, whether a cluster
//! renews many small Leases or changes few big objects.

use std::collections::VecDeque;

use crate::Revision;

/// What SQLite spends on a row besides key and value.
const ROW_BYTES: u64 = 32;
/// Revisions compacted between two batches: well under a millisecond's work.
const SLICE_LEN: usize = 1_000;

/// The size of what is current and of what is not.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Revisions since compaction, with the bytes that compacting up to them sets free.
    superseded: VecDeque<(Revision, u64)>,
    bytes: u64,
    live_bytes: u64,
}

/// The size of a row.
pub(super) fn row_bytes(key: &str, value: Option<&[u8]>) -> u64 {
    ROW_BYTES + key.len() as u64 + value.map_or(0, |value| value.len() as u64)
}

impl History {
    /// What was found at the start: the current rows' bytes, and rows superseded since compaction.
    pub(super) fn new(live_bytes: u64, superseded: VecDeque<(Revision, u64)>) -> Self {
        let bytes = superseded.iter().map(|(_, bytes)| bytes).sum();
        Self { superseded, bytes, live_bytes }
    }

    /// A row was stored: of `row` bytes, a deletion or not, in place of one of `replaced` bytes.
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

    /// Everything up to a revision was compacted.
    pub(super) fn compacted(&mut self, upto: Revision) {
        while let Some((_, bytes)) = self.superseded.pop_front_if(|(revision, _)| *revision <= upto) {
            self.bytes -= bytes;
        }
    }

    /// Up to where history should be compacted now, if at all: one slice, even when more is due.
    pub(super) fn due(&self, head: Revision, compacted: Revision, history_len: u64, bytes_min: u64) -> Option<Revision> {
        let slice = compacted + SLICE_LEN as u64;
        let too_long =
            (head.saturating_sub(compacted) >= history_len.saturating_mul(2)).then(|| slice.min(head.saturating_sub(history_len)));
        let bound = (self.live_bytes / 2).max(bytes_min);
        let too_big = (self.bytes > bound).then(|| self.leaving(bound / 2)).flatten();
        too_long.max(too_big).filter(|upto| *upto > compacted)
    }

    /// Up to where to compact so that no more than so many bytes are left, within a slice.
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

    /// Updates of one key of a size, after other keys of `live` bytes.
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
        // A slice at a time.
        assert_eq!(updates(0, 9_000, 10).due(9_000, 0, 100, BYTES_MIN), Some(1_000));
    }

    #[test]
    fn history_is_due_by_its_size() {
        const MIB: u64 = 1 << 20;
        assert_eq!(updates(0, 5, MIB).due(5, 0, 1_000, BYTES_MIN), None);
        assert_eq!(updates(0, 6, MIB).due(6, 0, 1_000, BYTES_MIN), Some(4), "more than the least: the half of that is left");
        assert_eq!(updates(20 * MIB, 6, MIB).due(6, 0, 1_000, BYTES_MIN), None, "less than half of the live data");
        // One row alone may be more than the bound.
        assert_eq!(updates(0, 2, 100 * MIB).due(2, 0, 1_000, BYTES_MIN), Some(2));
        let mut history = updates(0, 2, 9 * MIB);
        history.stored(3, 32, true, Some(9 * MIB));
        assert_eq!(history.due(3, 0, 1_000, BYTES_MIN), Some(3));
        history.compacted(3);
        assert_eq!((history.bytes, history.live_bytes, history.due(3, 3, 1_000, BYTES_MIN)), (0, 0, None));
    }
}
