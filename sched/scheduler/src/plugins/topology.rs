//! Sums by topology domain: all nodes with the same value of a label are one domain.

use std::collections::{BTreeMap, HashMap};

/// The sum of each domain of one topology, by the value of the node label.
#[derive(Debug, Default)]
pub(super) struct DomainSums(HashMap<String, i64>);

/// The sums of several topologies, by the key of the node label.
#[derive(Debug, Default)]
pub(super) struct TopologySums(HashMap<String, DomainSums>);

impl DomainSums {
    /// Adds to a domain. A domain that is new is counted from then on, also with a sum of 0.
    pub(super) fn add(&mut self, domain: &str, number: i64) {
        match self.0.get_mut(domain) {
            Some(sum) => *sum += number,
            None => {
                self.0.insert(domain.to_owned(), number);
            }
        }
    }

    /// The sum of a domain, if the domain is counted.
    pub(super) fn get(&self, domain: &str) -> Option<i64> {
        self.0.get(domain).copied()
    }

    /// The number of domains.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The lowest sum.
    pub(super) fn lowest(&self) -> Option<i64> {
        self.0.values().copied().min()
    }
}

impl TopologySums {
    /// Adds to the domain of a node with these labels. A node without the label is in no domain.
    pub(super) fn add(&mut self, key: &str, labels: &BTreeMap<String, String>, number: i64) {
        let Some(domain) = labels.get(key) else { return };
        match self.0.get_mut(key) {
            Some(domains) => domains.add(domain, number),
            None => self.0.entry(key.to_owned()).or_default().add(domain, number),
        }
    }

    /// Whether no domain has a sum.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of the domain that a node with these labels is in; 0 if it is in none.
    pub(super) fn get(&self, key: &str, labels: &BTreeMap<String, String>) -> i64 {
        self.0.get(key).and_then(|domains| domains.get(labels.get(key)?)).unwrap_or(0)
    }

    /// The sums of all domains that a node with these labels is in.
    pub(super) fn of_node<'s>(&'s self, labels: &'s BTreeMap<String, String>) -> impl Iterator<Item = i64> + 's {
        self.0.iter().filter_map(|(key, domains)| domains.get(labels.get(key)?))
    }
}
