//! GangScheduling: the Pods of a gang are bound when enough of them fit at the same time, and not before. As upstream (KEP-4671), the
//! plugin has two decisions: whether a Pod may enter the scheduling queue (PreEnqueue), and whether the Pods that a cycle has placed are
//! enough (PlacementFeasible). `run/gang.rs` has the cycle, `pod_groups.rs` the groups.

use sched_framework::PodGroupInfo;

/// Whether the Pods of a group may enter the scheduling queue: the group exists, and so many Pods of a gang exist, bound or not, as it needs.
/// Upstream's `PreEnqueue`.
pub(crate) fn may_enqueue(group: Option<&PodGroupInfo>, pods: usize) -> bool {
    group.is_some_and(|group| group.min_count.is_none_or(|min_count| pods >= min_count))
}

/// Whether the Pods of a gang that are on nodes are enough.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Feasibility {
    /// They are.
    Feasible,
    /// They may be when more Pods were tried.
    Wait,
    /// They cannot be; the message says why, in upstream's words.
    Infeasible(String),
}

/// Upstream's `PlacementFeasible`. Of the Pods of a gang, `scheduled` are on nodes, assumed or bound, and `remaining` were not tried yet.
pub(crate) fn placement_feasible(min_count: usize, scheduled: usize, remaining: usize) -> Feasibility {
    if scheduled >= min_count {
        Feasibility::Feasible
    } else if scheduled + remaining < min_count {
        let counts = format!("{scheduled} scheduled, {remaining} remaining");
        Feasibility::Infeasible(format!("minCount ({min_count}) cannot be satisfied: {counts}"))
    } else {
        Feasibility::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(min_count: Option<usize>) -> PodGroupInfo {
        PodGroupInfo { uid: String::new(), generation: None, min_count, priority: 0, disrupts_all: false, scheduled: None }
    }

    #[test]
    fn pods_enter_the_queue_when_their_group_exists_and_is_complete() {
        let (gang, basic) = (group(Some(3)), group(None));
        for (group, pods, wanted) in
            [(None, 9, false), (Some(&basic), 1, true), (Some(&gang), 2, false), (Some(&gang), 3, true), (Some(&gang), 4, true)]
        {
            assert_eq!(may_enqueue(group, pods), wanted, "{group:?}, {pods} Pods");
        }
    }

    #[test]
    fn a_placement_is_feasible_when_enough_pods_are_on_nodes() {
        let infeasible = |message: &str| Feasibility::Infeasible(message.to_owned());
        for (min_count, scheduled, remaining, wanted) in [
            (3, 3, 0, Feasibility::Feasible),
            (3, 4, 2, Feasibility::Feasible),
            (3, 2, 1, Feasibility::Wait),
            (3, 0, 3, Feasibility::Wait),
            (3, 2, 0, infeasible("minCount (3) cannot be satisfied: 2 scheduled, 0 remaining")),
            (1_000_000, 0, 10, infeasible("minCount (1000000) cannot be satisfied: 0 scheduled, 10 remaining")),
        ] {
            assert_eq!(placement_feasible(min_count, scheduled, remaining), wanted, "{min_count} {scheduled} {remaining}");
        }
    }
}
