//! Sums by topology domain: all nodes with the same value of a label are one domain.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use sched_framework::NodeInfo;

/// The sums of the domains of one topology. Domains have numbers, so that a look at a node compares no labels. The sums are those of a
/// snapshot whose nodes keep their labels and their indexes.
#[derive(Debug)]
pub(super) struct DomainSums {
    /// The domain of each node, by index of the node; `None` for a node without the label.
    of_node: Vec<Option<usize>>,
    /// The sum of each domain; `None` for a domain that is not counted.
    sums: Vec<Option<i64>>,
    /// The number of domains that are counted.
    len: usize,
    /// Computed at the first use after a change that may have changed it.
    lowest: OnceLock<Option<i64>>,
}

/// The sums of several topologies, by the key of the node label. A domain whose sum is 0 has none.
#[derive(Debug, Default)]
pub(super) struct TopologySums(HashMap<String, HashMap<String, i64>>);

impl DomainSums {
    /// The domains that the label `key` makes of the nodes. None of them is counted yet.
    pub(super) fn new(key: &str, nodes: &[Arc<NodeInfo>]) -> Self {
        let mut domains: HashMap<&str, usize> = HashMap::new();
        let mut of_node = Vec::with_capacity(nodes.len());
        for node in nodes {
            let next = domains.len();
            of_node.push(node.labels.get(key).map(|value| *domains.entry(value).or_insert(next)));
        }
        Self { of_node, sums: vec![None; domains.len()], len: 0, lowest: OnceLock::new() }
    }

    /// The domain of a node, if the node has the label.
    pub(super) fn domain(&self, node: &NodeInfo) -> Option<usize> {
        self.of_node.get(node.index).copied().flatten()
    }

    /// Adds to the domain of a node. A domain that is new is counted from then on, also with a sum of 0. A node without the label is in
    /// no domain.
    pub(super) fn add(&mut self, node: &NodeInfo, number: i64) {
        let Some(sum) = self.domain(node).and_then(|domain| self.sums.get_mut(domain)) else { return };
        if sum.is_none() || number != 0 {
            self.lowest = OnceLock::new();
        }
        self.len += usize::from(sum.is_none());
        *sum = Some(sum.unwrap_or(0) + number);
    }

    /// The sum of a domain; 0 if the domain is not counted.
    pub(super) fn sum(&self, domain: usize) -> i64 {
        self.sums.get(domain).copied().flatten().unwrap_or(0)
    }

    /// The number of domains that are counted.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of domains of these nodes.
    pub(super) fn distinct<'n>(&self, nodes: impl Iterator<Item = &'n NodeInfo>) -> usize {
        let mut is_among = vec![false; self.sums.len()];
        for node in nodes {
            if let Some(is_among) = self.domain(node).and_then(|domain| is_among.get_mut(domain)) {
                *is_among = true;
            }
        }
        is_among.into_iter().filter(|is_among| *is_among).count()
    }

    /// The lowest sum.
    pub(super) fn lowest(&self) -> Option<i64> {
        *self.lowest.get_or_init(|| self.sums.iter().copied().flatten().min())
    }
}

impl TopologySums {
    /// Adds to the domain of a node with these labels. A node without the label is in no domain.
    pub(super) fn add(&mut self, key: &str, labels: &BTreeMap<String, String>, number: i64) {
        let Some(domain) = labels.get(key) else { return };
        if !self.0.contains_key(key) {
            self.0.insert(key.to_owned(), HashMap::new());
        }
        let Some(domains) = self.0.get_mut(key) else { return };
        match domains.get_mut(domain) {
            Some(sum) => *sum += number,
            // The name is copied only for a new domain.
            None => drop(domains.insert(domain.to_owned(), number)),
        }
        if domains.get(domain) == Some(&0) {
            domains.remove(domain);
        }
        if domains.is_empty() {
            self.0.remove(key);
        }
    }

    /// Whether no domain has a sum.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of the domain that a node with these labels is in; 0 if it is in none.
    pub(super) fn get(&self, key: &str, labels: &BTreeMap<String, String>) -> i64 {
        self.0.get(key).and_then(|domains| domains.get(labels.get(key)?)).copied().unwrap_or(0)
    }

    /// The sums of all domains that a node with these labels is in.
    pub(super) fn of_node<'s>(&'s self, labels: &'s BTreeMap<String, String>) -> impl Iterator<Item = i64> + 's {
        self.0.iter().filter_map(|(key, domains)| domains.get(labels.get(key)?).copied())
    }
}
