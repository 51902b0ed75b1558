//! Sums by topology domain: all nodes with the same value of a label are one domain.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// The sum of each domain of one topology, by the value of the node label.
#[derive(Debug, Default)]
pub(super) struct DomainSums {
    sums: HashMap<String, i64>,
    /// Computed at the first use after a change that may have changed it.
    lowest: OnceLock<Option<i64>>,
}

/// The sums of several topologies, by the key of the node label. A domain whose sum is 0 has none.
#[derive(Debug, Default)]
pub(super) struct TopologySums(HashMap<String, HashMap<String, i64>>);

impl DomainSums {
    /// Adds to a domain. A domain that is new is counted from then on, also with a sum of 0.
    pub(super) fn add(&mut self, domain: &str, number: i64) {
        let is_new = !self.sums.contains_key(domain);
        add(&mut self.sums, domain, number);
        if is_new || number != 0 {
            self.lowest = OnceLock::new();
        }
    }

    /// The sum of a domain, if the domain is counted.
    pub(super) fn get(&self, domain: &str) -> Option<i64> {
        self.sums.get(domain).copied()
    }

    /// The number of domains.
    pub(super) fn len(&self) -> usize {
        self.sums.len()
    }

    /// The lowest sum.
    pub(super) fn lowest(&self) -> Option<i64> {
        *self.lowest.get_or_init(|| self.sums.values().copied().min())
    }
}

/// Adds to an entry; the key is copied only for a new one.
fn add(sums: &mut HashMap<String, i64>, domain: &str, number: i64) {
    match sums.get_mut(domain) {
        Some(sum) => *sum += number,
        None => drop(sums.insert(domain.to_owned(), number)),
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
        add(domains, domain, number);
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
