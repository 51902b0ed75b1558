//! Which CPUs an exclusive request gets: whole sockets and NUMA nodes, then whole cores, then single threads, each time from the
//! groups with the fewest free CPUs (upstream's `takeByTopologyNUMAPacked`). Pure.

use std::collections::BTreeMap;

use super::cpu_set::CpuSet;
use super::topology::{Level, Topology};

/// Takes that many of the free CPUs; `None` when there are not enough.
pub(super) fn packed(topology: &Topology, free: &CpuSet, count: usize) -> Option<CpuSet> {
    if count > free.len() {
        return None;
    }
    let mut rest = Rest { free: free.clone(), count, taken: CpuSet::default() };
    let levels = levels(topology);
    for depth in 1..=levels.len() {
        let (Some(upper), Some(level)) = (levels.get(..depth), levels.get(depth - 1)) else { continue };
        for group in ordered(topology, &rest.free, upper) {
            if is_whole(topology, &group, *level) && rest.count >= group.len() {
                rest.take(&group);
            }
        }
    }
    for core in ordered(topology, &rest.free, &levels) {
        for cpu in core.iter() {
            if rest.count > 0 {
                rest.take(&CpuSet::from_iter([cpu]));
            }
        }
    }
    Some(rest.taken)
}

/// The kinds of groups from the largest to the smallest. A NUMA node has one socket or several, or a socket has several nodes.
fn levels(topology: &Topology) -> [Level; 3] {
    if topology.count(Level::Socket) >= topology.count(Level::Numa) {
        [Level::Numa, Level::Socket, Level::Core]
    } else {
        [Level::Socket, Level::Numa, Level::Core]
    }
}

/// What is still to be taken.
struct Rest {
    free: CpuSet,
    count: usize,
    taken: CpuSet,
}

impl Rest {
    fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.difference(cpus);
        self.taken = self.taken.union(cpus);
        self.count = self.count.saturating_sub(cpus.len());
    }
}

/// The free CPUs by groups of the last level; the groups of each level in ascending order of their free CPUs, then of their numbers.
pub(super) fn ordered(topology: &Topology, free: &CpuSet, levels: &[Level]) -> Vec<CpuSet> {
    let Some((level, lower)) = levels.split_first() else { return vec![free.clone()] };
    let mut groups: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in free.iter() {
        if let Some(group) = topology.group_of(cpu, *level) {
            groups.entry(group).or_default().insert(cpu);
        }
    }
    let mut groups: Vec<CpuSet> = groups.into_values().collect();
    // The sort is stable.
    groups.sort_by_key(CpuSet::len);
    groups.iter().flat_map(|group| ordered(topology, group, lower)).collect()
}

/// Whether these are all CPUs of their group.
fn is_whole(topology: &Topology, cpus: &CpuSet, level: Level) -> bool {
    let group = cpus.iter().next().and_then(|cpu| topology.group_of(cpu, level));
    group.is_some_and(|group| topology.in_group(level, group) == *cpus)
}

/// The NUMA nodes that have free CPUs, in the order in which they are used, with these CPUs.
pub(super) fn numa_nodes(topology: &Topology, free: &CpuSet) -> Vec<CpuSet> {
    let levels = levels(topology);
    let until = levels.iter().position(|level| *level == Level::Numa).map_or(0, |at| at + 1);
    ordered(topology, free, levels.get(..until).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::topology::machines::*;
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    /// What is taken of the free CPUs, as a list; `-` when there are not enough.
    fn taken(topology: &Topology, free: &str, count: usize) -> String {
        packed(topology, &set(free), count).map_or_else(|| "-".to_owned(), |cpus| cpus.to_string())
    }

    /// Upstream's cases.
    #[test]
    fn whole_sockets_then_cores_then_threads() {
        let (smt, dual, dual_smt) = (single_socket_smt(), dual_socket(), dual_socket_smt());
        for (topology, free, count, wanted) in [
            (&smt, "0-7", 9, "-"),
            (&smt, "0-7", 0, ""),
            (&smt, "0-7", 1, "0"),
            (&smt, "1,3,5-7", 1, "6"),
            (&smt, "0-7", 2, "0,4"),
            (&smt, "0-7", 3, "0-1,4"),
            (&smt, "0-7", 8, "0-7"),
            (&smt, "4-7", 2, "4-5"),
            (&smt, "0-3,5-7", 2, "1,5"),
            (&dual, "0-7", 4, "0-3"),
            (&dual, "1-7", 4, "4-7"),
            (&dual, "1-7", 3, "1-3"),
            (&dual, "0-3,7", 2, "0,7"),
            (&dual_smt, "0-11", 1, "0"),
            (&dual_smt, "0-11", 2, "0,6"),
            (&dual_smt, "0-11", 6, "0,2,4,6,8,10"),
            (&dual_smt, "1-11", 6, "1,3,5,7,9,11"),
            (&dual_smt, "1-11", 1, "6"),
            (&dual_smt, "0-11", 12, "0-11"),
            (&dual_smt, "0-1,3-5,7,9,11", 1, "0"),
        ] {
            assert_eq!(taken(topology, free, count), wanted, "{count} of {free}");
        }
    }

    #[test]
    fn a_socket_with_several_nodes_gives_whole_nodes() {
        let topology = four_nodes();
        for (free, count, wanted) in
            [("0-15", 4, "0-3"), ("1-15", 4, "4-7"), ("1-15", 8, "4-11"), ("1-15", 6, "1-2,4-7"), ("0-15", 16, "0-15"), ("1-15", 3, "1-3")]
        {
            assert_eq!(taken(&topology, free, count), wanted, "{count} of {free}");
        }
    }

    #[test]
    fn a_core_with_an_offline_thread_is_whole() {
        let topology = machine(&["0-2"], &["0-2"], &["0,2", "1"]);
        assert_eq!(taken(&topology, "0-2", 1), "1");
        assert_eq!(taken(&topology, "0-2", 2), "1-2".replace("1-2", "0-1"), "the whole core 1, then a thread");
    }

    #[test]
    fn nodes_with_free_cpus_are_in_order() {
        let nodes = numa_nodes(&four_nodes(), &set("0-3,5-7,8"));
        assert_eq!(nodes, ["8", "5-7", "0-3"].map(set));
    }
}
