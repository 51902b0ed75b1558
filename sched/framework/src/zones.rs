//! The order in which a search visits the nodes. A search ends when it has enough feasible nodes; it goes from zone to zone, so that these
//! are of all zones and not those of the zone that was set up first. Upstream's `nodeTree`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::NodeInfo;

/// The labels of a node's region and zone, each with its deprecated name, which goes first as in upstream.
const LABELS: [[&str; 2]; 2] = [
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"],
    ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"],
];

/// The region and the zone of a node with these labels; empty when it has none. Upstream's `GetZoneKey`.
pub fn zone_of(labels: &BTreeMap<String, String>) -> [&str; 2] {
    LABELS.map(|names| names.iter().find_map(|name| labels.get(*name)).map_or("", String::as_str))
}

/// The indexes of the nodes, one of each zone in turn; empty when all are in one zone, so that their own order is as good.
pub fn interleaved(nodes: &[Arc<NodeInfo>]) -> Vec<usize> {
    let (mut zones, mut numbers): (Vec<Vec<usize>>, HashMap<[&str; 2], usize>) = (Vec::new(), HashMap::new());
    for (index, node) in nodes.iter().enumerate() {
        let number = *numbers.entry(zone_of(&node.labels)).or_insert(zones.len());
        match zones.get_mut(number) {
            Some(zone) => zone.push(index),
            None => zones.push(vec![index]),
        }
    }
    if zones.len() < 2 {
        return Vec::new();
    }
    let mut order = Vec::with_capacity(nodes.len());
    for round in 0.. {
        zones.retain(|zone| zone.len() > round);
        if zones.is_empty() {
            break;
        }
        order.extend(zones.iter().filter_map(|zone| zone.get(round)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> Arc<NodeInfo> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Arc::new(NodeInfo { labels: Arc::new(labels), ..NodeInfo::default() })
    }

    #[test]
    fn nodes_are_visited_zone_after_zone_until_each_zone_ends() {
        let zone = |name| node(&[("topology.kubernetes.io/zone", name)]);
        let nodes = [zone("a"), zone("a"), zone("a"), zone("b"), node(&[]), zone("b"), zone("a")];
        assert_eq!(interleaved(&nodes), [0, 3, 4, 1, 5, 2, 6]);
        let other = node(&[("topology.kubernetes.io/zone", "a"), ("topology.kubernetes.io/region", "r")]);
        assert_eq!(interleaved(&[zone("a"), zone("a"), other]), [0, 2, 1], "zones of different regions are different");
        let old = node(&[("failure-domain.beta.kubernetes.io/zone", "b"), ("topology.kubernetes.io/zone", "a")]);
        assert_eq!(interleaved(&[zone("b"), zone("b"), old.clone()]), [0; 0], "the deprecated label goes first");
        assert_eq!(interleaved(&[zone("a"), zone("a"), old]), [0, 2, 1]);
        assert!(interleaved(&[]).is_empty() && interleaved(&[node(&[]), node(&[])]).is_empty());
    }
}
