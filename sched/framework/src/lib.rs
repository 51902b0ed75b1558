//! The scheduler's extension points, node snapshot, cycle state and verdicts.
