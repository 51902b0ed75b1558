//! The policy option `distribute-cpus-across-numa` (KEP-2902): a request that needs several NUMA nodes gets the same number of CPUs from
//! each, and what cannot be divided so that the nodes have equally many free CPUs afterwards. Pure.

use super::cpu_set::CpuSet;
use super::take;
use super::topology::Topology;

/// With more nodes than these there are too many combinations.
const NODES_MAX: usize = 16;

/// A combination of nodes, and how well the free CPUs are balanced after it was used.
struct Choice {
    /// Indices into the list of nodes.
    nodes: Vec<usize>,
    /// The nodes that give what cannot be divided.
    rest_from: Vec<usize>,
    /// A measure of how much the nodes' free CPUs differ; 0 is not at all.
    imbalance: u128,
}

/// The nodes' free CPUs, and the size of the groups in which CPUs are taken.
struct Nodes {
    free: Vec<usize>,
    group: usize,
    count: usize,
}

/// Takes that many of the free CPUs, in groups of this size; `None` when there are not enough.
pub(super) fn distributed(topology: &Topology, free: &CpuSet, count: usize, group: usize) -> Option<CpuSet> {
    let group = group.max(1);
    if count > free.len() {
        return None;
    }
    if count == 0 || !count.is_multiple_of(group) {
        return take::packed(topology, free, count);
    }
    let sets = take::numa_nodes(topology, free);
    if sets.len() > NODES_MAX {
        return take::packed(topology, free, count);
    }
    let nodes = Nodes { free: sets.iter().map(CpuSet::len).collect(), group, count };
    let (least, most) = bounds(topology, &nodes);
    let chosen = (least..=most).find_map(|k| nodes.best(k));
    chosen.and_then(|choice| fill(topology, sets, &nodes, &choice)).or_else(|| take::packed(topology, free, count))
}

/// The least and the highest number of nodes that may be needed.
fn bounds(topology: &Topology, nodes: &Nodes) -> (usize, usize) {
    let all = topology.all().len().div_ceil(nodes.group);
    let of_a_node = all.div_ceil(topology.count(super::topology::Level::Numa).max(1)).max(1);
    let needed = nodes.count.div_ceil(nodes.group);
    (needed.div_ceil(of_a_node).max(1), needed.min(nodes.free.len()))
}

impl Nodes {
    /// The CPUs that each of so many nodes gives.
    fn share(&self, nodes: usize) -> usize {
        self.count.checked_div(nodes).unwrap_or(0) / self.group * self.group
    }

    /// The best combination of `k` nodes.
    fn best(&self, k: usize) -> Option<Choice> {
        let all: Vec<usize> = (0..self.free.len()).collect();
        let choices = combinations(&all, k).into_iter().filter_map(|nodes| self.choice(nodes));
        // The first of several equal ones, as upstream.
        choices.reduce(|best, other| if other.imbalance < best.imbalance { other } else { best })
    }

    fn choice(&self, nodes: Vec<usize>) -> Option<Choice> {
        let free = |node: &usize| self.free.get(*node).copied().unwrap_or(0);
        let share = self.share(nodes.len());
        let in_groups: usize = nodes.iter().map(|node| free(node) / self.group * self.group).sum();
        if in_groups < self.count || nodes.iter().any(|node| free(node) < share) {
            return None;
        }
        let mut after = self.free.clone();
        nodes.iter().for_each(|node| reduce(&mut after, *node, share));
        let rest = self.count - share * nodes.len();
        if rest == 0 {
            let imbalance = imbalance(&after);
            return Some(Choice { nodes, rest_from: Vec::new(), imbalance });
        }
        let able: Vec<usize> = nodes.iter().copied().filter(|node| after.get(*node).is_some_and(|free| *free >= self.group)).collect();
        let subsets = (1..=able.len()).rev().flat_map(|k| combinations(&able, k));
        let choices = subsets.filter_map(|subset| Some((self.after_rest(&after, &subset, rest)?, subset)));
        let (imbalance, rest_from) = choices.reduce(|best, other| if other.0 < best.0 { other } else { best })?;
        Some(Choice { nodes, rest_from, imbalance })
    }

    /// The imbalance after the rest was taken from these nodes in turn; `None` when they do not have it.
    fn after_rest(&self, after: &[usize], subset: &[usize], mut rest: usize) -> Option<u128> {
        let mut after = after.to_vec();
        while rest > 0 {
            let before = rest;
            for node in subset {
                if rest > 0 && after.get(*node).is_some_and(|free| *free >= self.group) {
                    reduce(&mut after, *node, self.group);
                    rest = rest.saturating_sub(self.group);
                }
            }
            if rest == before {
                return None;
            }
        }
        Some(imbalance(&after))
    }
}

fn reduce(free: &mut [usize], node: usize, by: usize) {
    if let Some(free) = free.get_mut(node) {
        *free = free.saturating_sub(by);
    }
}

/// The square of the standard deviation, times the square of the number of nodes: whole numbers in the same order.
fn imbalance(free: &[usize]) -> u128 {
    let (mut sum, mut squares) = (0u128, 0u128);
    for free in free {
        let free = u128::try_from(*free).unwrap_or(u128::MAX);
        sum = sum.saturating_add(free);
        squares = squares.saturating_add(free.saturating_mul(free));
    }
    u128::try_from(free.len()).unwrap_or(u128::MAX).saturating_mul(squares).saturating_sub(sum.saturating_mul(sum))
}

/// Takes the CPUs of a choice.
fn fill(topology: &Topology, mut sets: Vec<CpuSet>, nodes: &Nodes, choice: &Choice) -> Option<CpuSet> {
    let mut taken = CpuSet::default();
    let mut take = |node: usize, count: usize| {
        let free = sets.get_mut(node)?;
        let cpus = take::packed(topology, free, count)?;
        *free = free.difference(&cpus);
        taken = taken.union(&cpus);
        Some(())
    };
    let share = nodes.share(choice.nodes.len());
    for node in &choice.nodes {
        take(*node, share)?;
    }
    let mut rest = nodes.count.checked_sub(share * choice.nodes.len())?;
    while rest > 0 {
        let before = rest;
        for node in &choice.rest_from {
            if rest > 0 && take(*node, nodes.group).is_some() {
                rest = rest.saturating_sub(nodes.group);
            }
        }
        if rest == before {
            return None;
        }
    }
    Some(taken)
}

/// All subsets of `k` elements, in order.
fn combinations(all: &[usize], k: usize) -> Vec<Vec<usize>> {
    if k == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for (at, first) in all.iter().enumerate() {
        for rest in combinations(all.get(at + 1..).unwrap_or_default(), k - 1) {
            found.push([vec![*first], rest].concat());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::topology::machines::*;
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    fn taken(topology: &Topology, free: &str, count: usize, group: usize) -> String {
        distributed(topology, &set(free), count, group).map_or_else(|| "-".to_owned(), |cpus| cpus.to_string())
    }

    #[test]
    fn a_request_of_several_nodes_is_divided_evenly() {
        let (nodes, smt) = (four_nodes(), dual_socket_smt());
        for (topology, free, count, group, wanted) in [
            (&nodes, "0-15", 4, 1, "0-3"),
            (&nodes, "0-15", 6, 1, "0-2,4-6"),
            (&nodes, "0-15", 9, 1, "0-2,4-6,8-10"),
            (&nodes, "0-15", 16, 1, "0-15"),
            (&nodes, "0-15", 17, 1, "-"),
            (&nodes, "0-15", 0, 1, ""),
            // Seven from two nodes: three from each, and one more.
            (&nodes, "0-15", 7, 1, "0-6"),
            // A node with too few free CPUs is left out.
            (&nodes, "0-3,5,8-11", 6, 1, "0-2,8-10"),
            (&smt, "0-11", 8, 2, "0-3,6-9"),
            (&smt, "0-11", 6, 2, "0,2,4,6,8,10"),
            // Not in groups of this size.
            (&smt, "0-11", 7, 2, "0-1,2,4,6,8,10"),
        ] {
            let wanted = if wanted == "-" { wanted.to_owned() } else { set(wanted).to_string() };
            assert_eq!(taken(topology, free, count, group), wanted, "{count} of {free} by {group}");
        }
    }

    #[test]
    fn subsets_are_complete() {
        assert_eq!(combinations(&[0, 1, 2], 2), [[0, 1], [0, 2], [1, 2]]);
        assert_eq!((combinations(&[0, 1], 0).len(), combinations(&[0, 1], 3).len()), (1, 0));
    }
}
