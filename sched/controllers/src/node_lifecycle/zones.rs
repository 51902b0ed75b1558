//! How fast lost Nodes may be evicted, by the state of their zone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use crate::config::NodeTiming;
use crate::nodes;

/// Only a zone with more lost Nodes than this number can be partly down.
const LOST_NODES_MIN: usize = 2;

/// Region and zone of a Node.
pub fn zone_of(node: &Node) -> String {
    node.metadata.labels.as_ref().map(sched_framework::zone_of).unwrap_or_default().join(":")
}

/// The Nodes of each zone, and how many of them are not ready.
pub fn sizes(nodes: &[Arc<Node>]) -> BTreeMap<String, (usize, usize)> {
    let mut sizes: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for node in nodes {
        let (all, unhealthy) = sizes.entry(zone_of(node)).or_default();
        *all += 1;
        *unhealthy += usize::from(!nodes::is_ready(node));
    }
    sizes
}

/// Evictions a second in a zone of `nodes` Nodes, of which `lost` are lost.
pub fn rate(nodes: usize, lost: usize, timing: &NodeTiming) -> f64 {
    let share = f64::from(u32::try_from(lost).unwrap_or(u32::MAX)) / f64::from(u32::try_from(nodes.max(1)).unwrap_or(u32::MAX));
    let partly_down = lost < nodes && lost > LOST_NODES_MIN && share >= timing.unhealthy_zone_threshold;
    match (partly_down, nodes > timing.large_cluster_size_threshold) {
        (false, _) => timing.eviction_rate,
        (true, true) => timing.secondary_eviction_rate,
        (true, false) => 0.0,
    }
}

/// A bucket that has at most one permission and fills at the zone's rate.
#[derive(Debug, Default)]
pub struct Ration {
    taken_at: Option<Instant>,
}

impl Ration {
    /// Takes the permission, or returns when there is one: `None` when there is never one at this rate.
    pub fn take(&mut self, rate: f64, now: Instant) -> Result<(), Option<Duration>> {
        if rate <= 0.0 {
            return Err(None);
        }
        let every = Duration::from_secs_f64(1.0 / rate);
        match self.taken_at.and_then(|at| every.checked_sub(now.duration_since(at))).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(Some(wait)),
            None => {
                self.taken_at = Some(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_partly_down_is_evicted_slowly_or_not_at_all() {
        let timing = NodeTiming::default();
        for (nodes, lost, expected) in [(10, 1, 0.1), (10, 5, 0.1), (10, 6, 0.0), (3, 2, 0.1), (100, 60, 0.01), (10, 10, 0.1)] {
            assert!((rate(nodes, lost, &timing) - expected).abs() < 1e-9, "{nodes} {lost}");
        }
    }

    #[test]
    fn permissions_come_at_the_rate() {
        let mut ration = Ration::default();
        let now = Instant::now();
        assert_eq!(ration.take(0.1, now), Ok(()));
        assert_eq!(ration.take(0.1, now + Duration::from_secs(4)), Err(Some(Duration::from_secs(6))));
        assert_eq!(ration.take(0.1, now + Duration::from_secs(10)), Ok(()));
        assert_eq!(ration.take(0.0, now), Err(None));
    }
}
