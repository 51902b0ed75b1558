//! The conditions of a Pod whose resources are resized in place, and which spec they are about.

/// The condition of a Pod that does not get the resources of its spec. Its reason is [`INFEASIBLE`] or [`DEFERRED`].
pub const PENDING: &str = "PodResizePending";
/// The condition of a Pod that does not have its allocated resources yet.
pub const IN_PROGRESS: &str = "PodResizeInProgress";
/// The node can never provide the resources of the spec.
pub const INFEASIBLE: &str = "Infeasible";
/// The node cannot provide the resources of the spec now.
pub const DEFERRED: &str = "Deferred";

/// Whether a condition that observed a generation of its Pod is about the present spec. A condition of an earlier generation is about another
/// spec, but for a deletion, which is one generation more and changes no spec.
pub fn is_of_spec(observed: Option<i64>, generation: Option<i64>, is_deleted: bool) -> bool {
    observed == generation || (is_deleted && observed.and_then(|observed| observed.checked_add(1)) == generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_about_its_generation_and_a_deletion_changes_no_spec() {
        for (observed, generation, is_deleted, wanted) in [
            (Some(2), Some(2), false, true),
            (Some(2), Some(2), true, true),
            (Some(2), Some(3), false, false),
            (Some(2), Some(3), true, true),
            (Some(2), Some(4), true, false),
            (Some(3), Some(2), true, false),
            (None, Some(1), true, false),
            (None, None, false, true),
            (Some(i64::MAX), Some(1), true, false),
        ] {
            assert_eq!(is_of_spec(observed, generation, is_deleted), wanted, "{observed:?} {generation:?} {is_deleted}");
        }
    }
}
